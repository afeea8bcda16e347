"""Features: known values, and nothing from the future or from beyond a gap."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.market.candle_features import MEMORY, NAMES, TAIL, compute
from models.market.candles import Candles
from pipelines.workloads.crypto.candles import simulated

COIN = simulated.simulate(("BTCUSDT",), 1200, "15m", 5)["BTCUSDT"].rows(slice(0, 800))
WHOLE = COIN.segments()[0]


def candles(close, high=None, low=None, open_=None, volume=None, step=900_000):
    close = np.asarray(close, np.float64)
    high, low, open_ = (close if each is None else np.asarray(each, np.float64) for each in (high, low, open_))
    volume = np.ones(len(close)) if volume is None else np.asarray(volume, np.float64)
    return Candles("BTCUSDT", step, 1_704_067_200_000 + step * np.arange(len(close)), open_, high, low, close, volume)


def column(table, name):
    return table[:, NAMES.index(name)]


def near(found, expected):
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12, equal_nan=True)


@settings(max_examples=15, deadline=None)
@given(st.integers(1, 799))
def test_features_of_truncated_data_equal_those_of_the_full_data(rows):
    near(compute(COIN.rows(slice(0, rows))), compute(COIN)[:rows])


def test_no_later_candle_changes_a_feature():
    later = np.arange(len(COIN)) >= 500
    factor = np.where(later, 1.5, 1.0)
    prices = {each: getattr(COIN, each) * factor for each in ("open", "high", "low", "close", "volume")}
    changed = Candles(COIN.symbol, COIN.timeframe_ms, COIN.time, **prices)
    near(compute(changed)[:500], compute(COIN)[:500])


@settings(max_examples=15, deadline=None)
@given(st.integers(1, 600))
def test_features_do_not_depend_on_where_the_history_begins(start):
    full, part = compute(COIN), compute(COIN.rows(slice(start, None)))
    warm = np.isfinite(part).all(1)
    assert warm.any()
    near(part[warm], full[start:][warm])


def test_a_row_is_used_once_its_whole_memory_exists_and_not_before():
    table = compute(candles(COIN.close[:300]))
    assert np.isnan(table[: MEMORY - 1]).all()
    assert np.isfinite(table[MEMORY - 1 :]).all()


def test_nothing_crosses_a_gap():
    rows = np.r_[0:400, 403:800]
    broken = candles(COIN.close, COIN.high, COIN.low, COIN.open, COIN.volume).rows(rows)
    table = compute(broken)
    assert np.isnan(table[400 : 400 + MEMORY - 1]).all()
    near(table[400:], compute(broken.rows(slice(400, None))))
    near(table[:400], compute(broken.rows(slice(0, 400))))


def test_flat_prices_without_volume_give_finite_features():
    table = compute(candles(np.full(400, 5.0), volume=np.zeros(400)))
    assert np.isfinite(table[MEMORY:]).all()
    assert column(table, "rsi_14")[-1] == 50
    assert column(table, "percent_b_20")[-1] == 0.5
    assert column(table, "volatility_20")[-1] == 0


def test_a_rise_of_one_percent_per_candle_gives_the_values_by_hand():
    close = 1.01 ** np.arange(400)
    made = candles(close, high=close * 1.02, low=close * 0.99, open_=close)
    table = compute(made)
    last = dict(zip(NAMES, table[-1], strict=True))
    assert last["log_return_1"] == pytest.approx(np.log(1.01))
    assert last["log_return_3"] == pytest.approx(3 * np.log(1.01))
    assert last["log_return_12"] == pytest.approx(12 * np.log(1.01))
    assert last["rsi_14"] == 100
    assert last["volatility_20"] == pytest.approx(0, abs=1e-12)
    assert (last["body"], last["upper_wick"], last["lower_wick"]) == pytest.approx((0, 2 / 3, 1 / 3))
    # sum of share (1 - share)^k 1.01^-k over k
    for span in (12, 26, 50):
        share = 2 / (span + 1)
        assert last[f"close_over_ema_{span}"] == pytest.approx((1 - (1 - share) / 1.01) / share - 1, abs=2e-3)
    mean, deviation = close[-20:].mean(), close[-20:].std()
    assert last["percent_b_20"] == pytest.approx((close[-1] - mean + 2 * deviation) / (4 * deviation))
    assert last["band_width_20"] == pytest.approx(4 * deviation / mean)


def test_wilder_and_exponential_averages_agree_with_the_recursive_ones_up_to_the_tail():
    made = COIN.rows(WHOLE)
    close = pd.Series(made.close)
    moves = close.diff().dropna()
    gains, losses = (part.clip(lower=0).ewm(alpha=1 / 14, adjust=False).mean() for part in (moves, -moves))
    table = compute(made)
    warm = slice(MEMORY, None)
    strength = (100 * gains / (gains + losses)).reindex(close.index).to_numpy()
    np.testing.assert_allclose(column(table, "rsi_14")[warm], strength[warm], atol=100 * 5 * TAIL)
    expected = (close / close.ewm(span=50, adjust=False).mean() - 1).to_numpy()
    np.testing.assert_allclose(column(table, "close_over_ema_50")[warm], expected[warm], atol=1e-3)


def test_hours_and_weekdays_turn_in_utc():
    made = candles(np.linspace(5, 6, 24 * 14), step=3_600_000)  # from Monday, 2024-01-01
    table = compute(made)
    hours, days = np.arange(24 * 14) % 24, np.arange(24 * 14) // 24 % 7
    warm = slice(MEMORY, None)
    near(column(table, "hour_sin")[warm], np.sin(2 * np.pi * hours / 24)[warm])
    near(column(table, "weekday_cos")[warm], np.cos(2 * np.pi * days / 7)[warm])


def test_features_are_free_of_scale():
    prices = {each: getattr(COIN, each) * 1000 for each in ("open", "high", "low", "close")}
    scaled = Candles(COIN.symbol, COIN.timeframe_ms, COIN.time, **prices, volume=COIN.volume * 7)
    once, larger = (compute(each) for each in (COIN, scaled))
    np.testing.assert_allclose(larger, once, rtol=1e-6, atol=1e-9)


def test_features_come_in_the_order_that_is_asked_for_and_unknown_ones_are_named():
    names = ("rsi_14", "log_return_1")
    chosen = compute(COIN)[:, [NAMES.index(name) for name in names]]
    near(compute(COIN, names)[MEMORY - 1 :], chosen[MEMORY - 1 :])
    with pytest.raises(ValueError, match=r"no feature moon here: .*; train again without them"):
        compute(COIN, ("moon", "rsi_14"))
