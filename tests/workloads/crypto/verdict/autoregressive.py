"""Coins whose returns are an AR(1) process with GARCH volatility, many at once, and their true class probabilities."""

from dataclasses import dataclass

import numpy as np

from models.market.candles import Candles

HORIZON, THRESHOLD = 3, 0.003
VOLATILITY, STEP = 0.004, 900_000
FREEDOM = 6  # degrees, of Student's t
GARCH = (0.03, 0.07, 0.90)
GRID, DRAWS = 40, 4000


@dataclass(frozen=True)
class Coins:
    """Returns (n, K), the variance before each in units of its mean (n + 1, K), and the sums of the next 3 (n, K)."""

    phi: float
    returns: np.ndarray
    variances: np.ndarray
    moves: np.ndarray

    @property
    def labels(self) -> np.ndarray:
        up, down = np.log1p(THRESHOLD), np.log1p(-THRESHOLD)
        return 1 + (self.moves > up).astype(int) - (self.moves < down)

    def probabilities(self, rows: np.ndarray, means: np.ndarray) -> np.ndarray:
        """Return (m, K, 3) for the rows, if the next three returns add up to `means` (m, K) and the true noise."""
        logs = np.log(self.variances[rows + 1])
        grid = np.linspace(*np.quantile(logs, [0.001, 0.999]), GRID)
        tables = np.stack([np.sort(self._noise(np.exp(each))) for each in grid])
        place = np.searchsorted((grid[1:] + grid[:-1]) / 2, logs)
        found = np.empty((*means.shape, 3))
        for number, table in enumerate(tables):
            chosen = place == number
            found[chosen, 0] = np.searchsorted(table, np.log1p(-THRESHOLD) - means[chosen]) / DRAWS
            found[chosen, 2] = 1 - np.searchsorted(table, np.log1p(THRESHOLD) - means[chosen]) / DRAWS
        found[..., 1] = 1 - found[..., 0] - found[..., 2]
        found = np.clip(found, 1e-3, 1)
        return found / found.sum(-1, keepdims=True)

    def _noise(self, variance: float) -> np.ndarray:
        """Return draws of what the noise adds to the next three returns."""
        shocks = student(np.random.default_rng(1), (HORIZON, DRAWS))
        now, last, total = np.full(DRAWS, variance), np.zeros(DRAWS), np.zeros(DRAWS)
        for shock in shocks:
            noise = np.sqrt(now) * shock
            last = self.phi * last + VOLATILITY * noise
            total, now = total + last, GARCH[0] + GARCH[1] * noise**2 + GARCH[2] * now
        return total


def student(generator: np.random.Generator, shape) -> np.ndarray:
    return generator.standard_t(FREEDOM, shape) * np.sqrt((FREEDOM - 2) / FREEDOM)


def simulate(count: int, candles: int, phi: float, seed: int) -> Coins:
    shocks = student(np.random.default_rng(seed), (candles, count))
    returns, variances = np.zeros((candles, count)), np.ones((candles + 1, count))
    for t in range(candles):
        noise = np.sqrt(variances[t]) * shocks[t]
        variances[t + 1] = GARCH[0] + GARCH[1] * noise**2 + GARCH[2] * variances[t]
        returns[t] = VOLATILITY * noise + (phi * returns[t - 1] if t else 0)
    level = np.cumsum(returns, 0)
    moves = np.zeros_like(returns)
    moves[:-HORIZON] = level[HORIZON:] - level[:-HORIZON]
    return Coins(phi, returns, variances, moves)


def candles_of(coins: Coins, number: int) -> Candles:
    generator, returns = np.random.default_rng(number), coins.returns[:, number]
    close = 100 * np.exp(np.cumsum(returns))
    first = np.concatenate([[100.0], close[:-1]])
    reach = np.abs(generator.normal(0, 0.4 * VOLATILITY, (2, len(close))))
    high, low = np.maximum(first, close) * (1 + reach[0]), np.minimum(first, close) * (1 - reach[1])
    volume = np.exp(generator.normal(5, 0.5, len(close))) * (1 + np.abs(returns) / VOLATILITY)
    times = 1_609_459_200_000 + STEP * np.arange(len(close))
    return Candles(f"C{number}USDT", STEP, times, first, high, low, close, volume)
