"""Simulated market: candles that resemble those of real coins, with an adjustable amount of predictability.

The log return of a coin in candle t is sigma_t z_t - sigma_t^2 / 2, which makes the price a martingale. z_t mixes the
market's shock with the coin's own, both drawn from Student's t distribution. sigma_t is the product of a GARCH(1, 1)
process (Bollerslev 1986), the market's regime (a Markov chain, Hamilton 1989) and the hour of the day.
"""

import hashlib
import math
from collections import deque
from collections.abc import Sequence

import numpy as np

from models.market.candle_tables import canonical, milliseconds
from models.market.candles import DAY, Candles

START = 1_704_067_200_000  # 2024-01-01 UTC, when the first candle opens
BASE_VOLATILITY = 0.0025  # of the log return in 15 minutes
QUARTER_HOUR = 900_000
DEGREES_OF_FREEDOM = 5
LARGEST_SHOCK = 8.0  # standard deviations
ARCH, GARCH = 0.07, 0.90
# calm, normal, wild: volatility, mean duration in candles, drift in standard deviations (times the signal)
REGIMES = ((0.6, 600, 0.02), (1.0, 800, 0.0), (1.9, 150, -0.04))
HOURS_AMPLITUDE = 0.25
PATH = 8  # simulated trades within a candle, which give its high and low
GAPS_PER_CANDLE = 1 / 12_000  # of the whole market, and again of each coin
MEAN_GAP = 4  # candles
# The planted signal: expected shock = signal PULL tanh(u_t), u_t = sum over k > 0 of DECAY^k sin(2 pi k / PERIOD)
# z_(t-k-DELAY), scaled to variance 1. The weights change sign within the window and leave out the newest candles, so
# the returns and averages of the last row show less of the signal than the window does.
PULL = 0.5
PERIOD = 16  # candles
DELAY = 8  # candles
DECAY = 0.9


def simulate(
    symbols: Sequence[str], candles: int, timeframe: str, seed: int, signal: float = 0.0
) -> dict[str, Candles]:
    """Return the candles of each coin over a period of `candles` candles, a few of them missing.

    With `signal` 0 past candles say nothing about the direction of the next one; with 1 about a tenth of the variance
    of a return is a function of the 30 candles before it. A coin depends on (seed, symbol) and the course of the market
    on the seed alone, so neither the other coins nor their order matter, and a longer market begins with the shorter.
    """
    step = milliseconds(timeframe)
    time = START + step * np.arange(candles, dtype=np.int64)
    shock = _shocks(_generator(seed, "market shock"), candles)
    regime = _regimes(_generator(seed, "market regime"), candles)
    open_to_trade = ~_gaps(_generator(seed, "market gaps"), candles)
    return {
        symbol: _coin(canonical(symbol), step, time, shock, regime, seed, signal).rows(
            open_to_trade & ~_gaps(_generator(seed, "gaps", symbol), candles)
        )
        for symbol in symbols
    }


def _coin(
    symbol: str, step: int, time: np.ndarray, market: np.ndarray, regime: np.ndarray, seed: int, signal: float
) -> Candles:
    num = len(time)
    character = _generator(seed, "character", symbol)
    share = character.uniform(0.4, 0.8)  # correlation with the market's shock
    scale = BASE_VOLATILITY * character.uniform(0.8, 1.5) * math.sqrt(step / QUARTER_HOUR)
    first_price = 10 ** character.uniform(-1, 4.5)
    turnover = 10 ** character.uniform(4, 6)

    volatility, _, drift = np.array(REGIMES).T
    level = scale * volatility[regime] * (1 + HOURS_AMPLITUDE * np.sin(2 * np.pi * (time % DAY / DAY - 0.35)))
    noise = share * market + math.sqrt(1 - share**2) * _shocks(_generator(seed, "shock", symbol), num)
    shock, garch = _recursion(noise, signal * drift[regime], signal * PULL)
    sigma = level * garch

    path = np.cumsum(_generator(seed, "path", symbol).standard_normal((num, PATH)), 1) / math.sqrt(PATH)
    position = np.arange(1, PATH + 1) / PATH
    path += position * (shock - path[:, -1])[:, None]  # a Brownian bridge that ends at the close
    path = path * sigma[:, None] - position * (sigma**2 / 2)[:, None]
    close = math.log(first_price) + np.cumsum(path[:, -1])
    start = np.concatenate([[math.log(first_price)], close[:-1]])
    noise = _generator(seed, "volume", symbol).standard_normal(num)
    volume = np.exp(math.log(turnover) - close + 0.8 * np.log(sigma / scale) + 0.4 * np.abs(shock) + 0.5 * noise)
    open_, close = np.exp(start), np.exp(close)
    high = np.maximum(np.exp(start + path.max(1)), np.maximum(open_, close))
    low = np.minimum(np.exp(start + path.min(1)), np.minimum(open_, close))
    return Candles(symbol, step, time, open_, high, low, close, volume)


def _recursion(noise: np.ndarray, drift: np.ndarray, pull: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the shocks including the planted signal, and their GARCH volatility around 1; both (N,)."""
    turn = 2 * math.pi / PERIOD
    lags = np.arange(1, 200)
    gain = 1 / math.sqrt(float(((DECAY**lags * np.sin(turn * lags)) ** 2).sum()))
    first, second, enter = 2 * DECAY * math.cos(turn), -(DECAY**2), gain * DECAY * math.sin(turn)
    shocks, volatilities = [], []
    variance, now, before = 1.0, 0.0, 0.0
    waiting = deque([0.0] * DELAY, DELAY + 1)
    for surprise, tilt in zip(noise.tolist(), drift.tolist(), strict=True):
        shock = surprise + tilt + pull * math.tanh(now)
        shocks.append(shock)
        volatilities.append(math.sqrt(variance))
        variance = 1 - ARCH - GARCH + variance * (GARCH + ARCH * surprise * surprise)
        waiting.append(shock)
        now, before = first * now + second * before + enter * waiting[0], now
    return np.array(shocks), np.array(volatilities)


def _shocks(generator: np.random.Generator, num: int) -> np.ndarray:
    scale = math.sqrt((DEGREES_OF_FREEDOM - 2) / DEGREES_OF_FREEDOM)  # to variance 1
    return np.clip(scale * generator.standard_t(DEGREES_OF_FREEDOM, num), -LARGEST_SHOCK, LARGEST_SHOCK)


def _regimes(generator: np.random.Generator, num: int) -> np.ndarray:
    """Return row numbers (N,) of REGIMES; when one ends, either of the other two follows."""
    state, states = 1, []
    for chance, other in generator.random((num, 2)).tolist():
        states.append(state)
        if chance < 1 / REGIMES[state][1]:
            state = (state + (1 if other < 0.5 else 2)) % len(REGIMES)
    return np.array(states, dtype=np.int64)


def _gaps(generator: np.random.Generator, num: int) -> np.ndarray:
    """Return the missing candles as a mask (N,) bool."""
    draws = generator.random((num, 2))
    missing = np.zeros(num, bool)
    for start in np.flatnonzero(draws[:, 0] < GAPS_PER_CANDLE):
        missing[start : start + (1 + int(-MEAN_GAP * math.log(1 - draws[start, 1])))] = True
    return missing


def _generator(seed: int, *names: str) -> np.random.Generator:
    """Return a random stream for these names; drawing more from one stream leaves the others unchanged."""
    key = hashlib.sha256("\0".join([str(seed), *names]).encode()).digest()
    return np.random.default_rng(int.from_bytes(key[:16], "little"))
