"""Simulated market: reproducible, similar to real coins, and exactly as predictable as configured."""

import numpy as np
import pytest

from models.market.candle_features import NAMES, compute
from pipelines.workloads.crypto.candles import simulated

COINS = ("BTCUSDT", "ETHUSDT", "SOLUSDT")
CANDLES = 20_000


@pytest.fixture(scope="module")
def fair():
    return simulated.simulate(COINS, CANDLES, "15m", 0)


@pytest.fixture(scope="module")
def planted():
    return simulated.simulate(COINS, CANDLES, "15m", 0, signal=1.0)


def returns(candles):
    moves = np.diff(np.log(candles.close))
    return moves[np.diff(candles.time) == candles.timeframe_ms]


def correlation(values, lag):
    return float(np.corrcoef(values[:-lag], values[lag:])[0, 1])


def test_a_coin_does_not_depend_on_the_other_coins_and_a_longer_market_begins_with_the_shorter(fair):
    alone = simulated.simulate(("ETHUSDT",), CANDLES, "15m", 0)["ETHUSDT"]
    assert alone.digest() == fair["ETHUSDT"].digest()
    short = simulated.simulate(("ETHUSDT",), 5000, "15m", 0)["ETHUSDT"]
    assert short.digest() == alone.rows(alone.time < simulated.START + 5000 * 900_000).digest()


def test_the_seed_and_the_name_make_another_coin(fair):
    other = simulated.simulate(("BTCUSDT",), 1000, "15m", 1)["BTCUSDT"]
    assert not np.allclose(other.close[:900], fair["BTCUSDT"].close[:900])
    assert not np.allclose(fair["ETHUSDT"].close[:900], fair["BTCUSDT"].close[:900])


@pytest.mark.parametrize("signal", [0.0, 1.0, 3.0])
def test_every_candle_encloses_its_prices_and_lies_on_the_grid(signal):
    for candles in simulated.simulate(COINS, 5000, "1h", 3, signal).values():
        assert np.isfinite(candles.close).all()
        assert (candles.low > 0).all()
        assert (candles.volume > 0).all()
        assert (candles.high >= np.maximum(candles.open, candles.close)).all()
        assert (candles.low <= np.minimum(candles.open, candles.close)).all()
        assert not (candles.time % candles.timeframe_ms).any()
        assert (np.diff(candles.time) > 0).all()


def test_returns_have_fat_tails_clustered_volatility_and_a_common_market(fair):
    for candles in fair.values():
        moves = returns(candles)
        assert 0.0015 < moves.std() < 0.006
        assert ((moves - moves.mean()) ** 4).mean() / moves.var() ** 2 > 5
        assert correlation(np.abs(moves), 1) > 0.15
        assert correlation(np.abs(moves), 20) > 0.1
        assert np.corrcoef(np.log(candles.volume), np.log(candles.high / candles.low))[0, 1] > 0.4
        assert 1 <= len(candles.segments()) - 1 <= 20
        assert len(candles) > 0.99 * CANDLES
    one, other = fair["BTCUSDT"], fair["ETHUSDT"]
    _, first, second = np.intersect1d(one.time, other.time, return_indices=True)
    assert np.corrcoef(np.diff(np.log(one.close[first])), np.diff(np.log(other.close[second])))[0, 1] > 0.15


def explained(candles, last_row_only):
    """Return the share of the variance of the next three candles' return that a linear fit explains out of sample."""
    table, names = compute(candles), NAMES
    close = np.log(candles.close)
    future, moves = np.full(len(close), np.nan), np.full((len(close), 30), np.nan)
    future[:-3] = close[3:] - close[:-3]
    for lag in range(30):
        moves[lag + 1 :, lag] = np.diff(close)[: len(close) - lag - 1]
    volatility = table[:, [names.index("volatility_20")]]
    inputs = table if last_row_only else moves / volatility
    rows = np.flatnonzero(np.isfinite(table).all(1) & np.isfinite(moves).all(1) & np.isfinite(future))
    train, test = rows[: len(rows) * 7 // 10], rows[len(rows) * 7 // 10 + 60 :]
    scale = inputs[train].std(0) + 1e-12
    design = np.column_stack([(inputs - inputs[train].mean(0)) / scale, np.ones(len(inputs))])
    target = future / volatility[:, 0]
    weights = np.linalg.lstsq(design[train], target[train], rcond=None)[0]
    return 1 - np.mean((target[test] - design[test] @ weights) ** 2) / target[test].var()


def test_without_signal_the_past_says_nothing_about_the_direction(fair):
    for candles in fair.values():
        assert explained(candles, last_row_only=False) < 0.01
        assert explained(candles, last_row_only=True) < 0.01


def test_the_planted_signal_is_in_the_window_and_less_of_it_in_the_last_row(planted):
    for candles in planted.values():
        window, row = explained(candles, last_row_only=False), explained(candles, last_row_only=True)
        assert window > 0.12
        assert window > 1.4 * row
