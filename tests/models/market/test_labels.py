"""Labels: known moves and barriers, and no label without a full future."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.market.candles import Candles
from models.market.labels import LONG, NO_TRADE, SHORT, UNKNOWN, label
from pipelines.workloads.crypto.candles import simulated

RULES = ("fixed", "volatility", "triple_barrier")
COIN = simulated.simulate(("BTCUSDT",), 2000, "15m", 1)["BTCUSDT"]


def candles(close, high=None, low=None):
    close = np.asarray(close, np.float64)
    high, low = (close if each is None else np.asarray(each, np.float64) for each in (high, low))
    time = 1_704_067_200_000 + 900_000 * np.arange(len(close))
    return Candles("BTCUSDT", 900_000, time, close, high, low, close, np.ones(len(close)))


@pytest.mark.parametrize("rule", RULES)
def test_no_label_reaches_across_a_gap(rule):
    rows = np.r_[0:100, 102:200]
    whole = candles(100 * np.exp(np.cumsum(np.random.default_rng(0).normal(0, 0.004, 200))))
    labels = label(whole.rows(rows), rule, 3, 0.003)
    parts = [label(whole.rows(part), rule, 3, 0.003) for part in (slice(0, 100), slice(102, 200))]
    np.testing.assert_array_equal(labels, np.concatenate(parts))
    assert (labels[97:100] == UNKNOWN).all()


@pytest.mark.parametrize("rule", RULES)
@settings(max_examples=20, deadline=None)
@given(st.integers(100, 600), st.integers(1, 8))
def test_a_label_depends_on_no_more_than_its_horizon(rule, row, horizon):
    segment = COIN.segments()[0]
    whole = COIN.rows(segment)
    row = min(row, len(whole) - horizon - 1)
    cut = whole.rows(slice(0, row + horizon + 1))
    assert label(cut, rule, horizon, 0.003)[row] == label(whole, rule, horizon, 0.003)[row]
    assert label(cut.rows(slice(0, -1)), rule, horizon, 0.003)[row] == UNKNOWN


def test_a_move_of_exactly_the_threshold_is_no_trade():
    assert label(candles([1.0, 1.5, 0.75]), "fixed", 1, 0.5).tolist() == [NO_TRADE, NO_TRADE, UNKNOWN]


def test_the_volatility_rule_demands_more_after_volatile_candles_and_never_less_than_the_threshold():
    rng = np.random.default_rng(0)
    wild, calm = rng.normal(0, 0.02, 60), rng.normal(0, 1e-5, 60)
    # Both are beyond the threshold; half of 0.02 sqrt(3) lies between them.
    for past, last, expected in ((wild, 0.01, NO_TRADE), (wild, 0.02, LONG), (calm, 0.01, LONG)):
        close = 100 * np.exp(np.cumsum([0.0, *past, 0, 0, last]))
        assert label(candles(close), "volatility", 3, 0.003)[60] == expected
    calm_small = 100 * np.exp(np.cumsum([0.0, *calm, 0, 0, 0.002]))
    assert label(candles(calm_small), "volatility", 3, 0.003)[60] == NO_TRADE
    assert (label(candles(calm_small), "volatility", 3, 0.003)[:50] == UNKNOWN).all()


@pytest.mark.parametrize(
    ("highs", "lows", "expected"),
    [
        ([100.1, 100.9, 100.2], [99.9, 100.0, 99.9], NO_TRADE),
        ([100.1, 101.0, 100.2], [99.9, 100.0, 99.9], LONG),
        ([100.1, 100.2, 100.2], [99.9, 99.0, 99.9], SHORT),
        ([101.5, 100.2, 100.2], [99.9, 98.0, 99.9], LONG),  # the one touched first
        ([100.5, 102.0, 100.2], [98.9, 98.0, 99.9], SHORT),
        ([101.5, 100.2, 100.2], [98.5, 98.0, 99.9], NO_TRADE),  # both in one candle: both sides are stopped
        ([100.1, 100.2, 100.2, 105.0], [99.9, 99.9, 99.9, 95.0], NO_TRADE),  # after the horizon
    ],
)
def test_the_barrier_touched_first_decides_and_within_one_candle_it_is_the_stop(highs, lows, expected):
    close = np.full(len(highs) + 1, 100.0)
    made = candles(close, [100, *highs], [100, *lows])
    assert label(made, "triple_barrier", 3, 0.01)[0] == expected


def test_fewer_rows_than_the_horizon_have_no_label():
    assert (label(COIN.rows(slice(0, 3)), "fixed", 3, 0.003) == UNKNOWN).all()
