"""How often the first grade is given where there is nothing to find, and where there is something.

`false_positives` has leans that persist, drift or follow a season, over returns whose volatility changes.
`python tests/workloads/crypto/verdict/test_error_rates.py` prints the rates for several sizes of the effect.
"""

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[4]))
from pipelines.workloads.crypto.verdict.classification import class_shares
from pipelines.workloads.crypto.verdict.judge import LEVEL, PREDICTIVE, judge
from pipelines.workloads.crypto.verdict.significance import holm, p_value
from tests.workloads.crypto.verdict.autoregressive import HORIZON, VOLATILITY, Coins, simulate
from tests.workloads.crypto.verdict.samples import guesses

CANDLES, FAMILY = 20_000, 20
TRAIN, TEST = slice(200, 14_000), np.arange(17_060, CANDLES - HORIZON)


def p_values(coins: Coins, means: np.ndarray) -> np.ndarray:
    """The p-values (K,) of models that expect `means` (m, K) of the next three returns, and know the rest."""
    probabilities, labels = coins.probabilities(TEST, means), coins.labels
    expected = VOLATILITY * np.sqrt(HORIZON * coins.variances[TEST + 1])
    found = []
    for coin in range(means.shape[1]):
        moves = coins.moves[TEST, coin] / expected[:, coin]
        judged = judge(
            probabilities[:, coin],
            labels[TEST, coin],
            class_shares(labels[TRAIN, coin]),
            guesses(coin, labels[TEST, coin]),
            moves,
            np.ones(100),
            horizon=HORIZON,
            later=moves,
            last=np.zeros(len(moves)),
            resamples=100,
        )
        found.append(judged["tests"][PREDICTIVE]["p"])
    return np.array(found)


def given(p: np.ndarray) -> float:
    """The share of coins that get the grade in evaluations of FAMILY coins each."""
    return float(np.mean(np.concatenate([holm(each) <= LEVEL for each in p.reshape(-1, FAMILY)])))


def tilted(coins: Coins, size: float) -> np.ndarray:
    """What models expect that have found ten lags where there are none."""
    weights = np.random.default_rng(3).normal(size=(10, coins.returns.shape[1]))
    weights *= size / np.sqrt((weights**2).sum(0))
    return sum(weights[lag] * coins.returns[TEST - lag] for lag in range(10))


def oracle(coins: Coins) -> np.ndarray:
    phi = coins.phi
    return (phi + phi**2 + phi**3) * coins.returns[TEST]


def false_positives(horizon: int, lean: str, coins: int, candles: int = 7000, seed: int = 0) -> float:
    """The share of score tests at LEVEL of leans that have nothing to do with what follows."""
    generator, count = np.random.default_rng(seed), candles + horizon
    found = []
    for _ in range(coins):
        volatility = np.exp(0.5 * persistent(generator, count, 0.995)) if lean == "volatile" else 1.0
        prices = np.cumsum(generator.standard_normal(count) * volatility)
        moves = (prices[horizon:] - prices[:-horizon]) / np.sqrt(horizon)
        leans = {
            "white": lambda: generator.standard_normal(candles),
            "trend": lambda: np.linspace(-1, 1, candles) + 0.2 * generator.standard_normal(candles),
            "season": lambda: np.sin(np.arange(candles) * np.pi / 144) + 0.2 * generator.standard_normal(candles),
        }.get(lean, lambda: persistent(generator, candles, 0.99))()
        found.append(p_value((leans - leans.mean()) * np.clip(moves, -4, 4), horizon))
    return float(np.mean(np.array(found) <= LEVEL))


def persistent(generator: np.random.Generator, count: int, share: float) -> np.ndarray:
    from scipy.signal import lfilter  # slow to import

    return lfilter([np.sqrt(1 - share**2)], [1, -share], generator.standard_normal(count))


@pytest.mark.slow
@pytest.mark.parametrize(("horizon", "lean"), [(3, "volatile"), (48, "trend"), (96, "persistent")])
def test_no_more_leans_than_the_level_seem_right_at_any_horizon(horizon, lean):
    assert 0.005 <= false_positives(horizon, lean, 600) <= 0.045  # 2,000 coins: 0.015 to 0.032


@pytest.mark.slow
def test_of_200_coins_of_noise_hardly_any_is_called_predictive():
    coins = simulate(200, CANDLES, 0.0, 1)
    for size in (0.02, 0.1):
        p = p_values(coins, tilted(coins, size))
        assert np.mean(p <= LEVEL) <= 0.05, "alone"
        assert given(p) <= LEVEL


@pytest.mark.slow
def test_the_true_process_is_called_predictive_among_20_coins():
    coins = simulate(100, CANDLES, 0.15, 65)
    assert given(p_values(coins, oracle(coins))) >= 0.9


if __name__ == "__main__":
    for horizon in (3, 12, 48, 96):
        for lean in ("white", "persistent", "trend", "season", "volatile"):
            print(f"horizon {horizon}, {lean}: {false_positives(horizon, lean, 2000):.4f}", flush=True)
    noise = simulate(200, CANDLES, 0.0, 1)
    for size in (0.005, 0.02, 0.1):
        p = p_values(noise, tilted(noise, size))
        print(f"noise, tilt {size}: alone {np.mean(p <= LEVEL):.3f}, among {FAMILY} {given(p):.3f}")
    for phi in (0.1, 0.15, 0.2):
        coins = simulate(100, CANDLES, phi, 50 + int(100 * phi))
        p = p_values(coins, oracle(coins))
        print(f"oracle, phi {phi}: alone {np.mean(p <= LEVEL):.3f}, among {FAMILY} {given(p):.3f}")
