"""Features: known values, and nothing from the future or from beyond a gap."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.market.candle_features import SETS, TAIL, compute, memory
from models.market.candles import Candles
from pipelines.workloads.crypto.candles import simulated

COIN = simulated.simulate(("BTCUSDT",), 1200, "15m", 5)["BTCUSDT"].rows(slice(0, 800))
WHOLE = COIN.segments()[0]


def candles(close, high=None, low=None, open_=None, volume=None, step=900_000):
    close = np.asarray(close, np.float64)
    high, low, open_ = (close if each is None else np.asarray(each, np.float64) for each in (high, low, open_))
    volume = np.ones(len(close)) if volume is None else np.asarray(volume, np.float64)
    return Candles("BTCUSDT", step, 1_704_067_200_000 + step * np.arange(len(close)), open_, high, low, close, volume)


def column(table, names, name):
    return table[:, names.index(name)]


def near(found, expected):
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12, equal_nan=True)


@pytest.mark.parametrize("name", SETS)
@settings(max_examples=15, deadline=None)
@given(st.integers(1, 799))
def test_features_of_truncated_data_equal_those_of_the_full_data(name, rows):
    near(compute(COIN.rows(slice(0, rows)), name)[0], compute(COIN, name)[0][:rows])


@pytest.mark.parametrize("name", SETS)
def test_no_later_candle_changes_a_feature(name):
    later = np.arange(len(COIN)) >= 500
    factor = np.where(later, 1.5, 1.0)
    prices = {each: getattr(COIN, each) * factor for each in ("open", "high", "low", "close", "volume")}
    changed = Candles(COIN.symbol, COIN.timeframe_ms, COIN.time, **prices)
    near(compute(changed, name)[0][:500], compute(COIN, name)[0][:500])


@pytest.mark.parametrize("name", SETS)
@settings(max_examples=15, deadline=None)
@given(st.integers(1, 600))
def test_features_do_not_depend_on_where_the_history_begins(name, start):
    full, part = compute(COIN, name)[0], compute(COIN.rows(slice(start, None)), name)[0]
    warm = np.isfinite(part).all(1)
    assert warm.any()
    near(part[warm], full[start:][warm])


@pytest.mark.parametrize("name", SETS)
def test_a_row_is_used_once_its_whole_memory_exists_and_not_before(name):
    table, _ = compute(candles(COIN.close[:300]), name)
    assert np.isnan(table[: memory(name) - 1]).all()
    assert np.isfinite(table[memory(name) - 1 :]).all()


@pytest.mark.parametrize("name", SETS)
def test_nothing_crosses_a_gap(name):
    rows = np.r_[0:400, 403:800]
    broken = candles(COIN.close, COIN.high, COIN.low, COIN.open, COIN.volume).rows(rows)
    table, _ = compute(broken, name)
    assert np.isnan(table[400 : 400 + memory(name) - 1]).all()
    near(table[400:], compute(broken.rows(slice(400, None)), name)[0])
    near(table[:400], compute(broken.rows(slice(0, 400)), name)[0])


@pytest.mark.parametrize("name", SETS)
def test_flat_prices_without_volume_give_finite_features(name):
    table, names = compute(candles(np.full(400, 5.0), volume=np.zeros(400)), name)
    assert np.isfinite(table[memory(name) :]).all()
    assert column(table, names, "rsi_14")[-1] == 50
    if name == "default":
        assert column(table, names, "percent_b_20")[-1] == 0.5
        assert column(table, names, "volatility_20")[-1] == 0


def test_a_rise_of_one_percent_per_candle_gives_the_values_by_hand():
    close = 1.01 ** np.arange(400)
    made = candles(close, high=close * 1.02, low=close * 0.99, open_=close)
    table, names = compute(made, "default")
    last = dict(zip(names, table[-1], strict=True))
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
    table, names = compute(made, "default")
    warm = slice(memory("default"), None)
    strength = (100 * gains / (gains + losses)).reindex(close.index).to_numpy()
    np.testing.assert_allclose(column(table, names, "rsi_14")[warm], strength[warm], atol=100 * 5 * TAIL)
    expected = (close / close.ewm(span=50, adjust=False).mean() - 1).to_numpy()
    np.testing.assert_allclose(column(table, names, "close_over_ema_50")[warm], expected[warm], atol=1e-3)


def test_the_fifteen_legacy_features_follow_their_formulas():
    made = COIN.rows(WHOLE)
    frame = pd.DataFrame({each: getattr(made, each) for each in ("high", "low", "close", "volume")})
    close, delta = frame.close, frame.close.diff()
    before = close.shift()
    ranges = [frame.high - frame.low, (frame.high - before).abs(), (frame.low - before).abs()]
    gain, loss = (part.clip(lower=0).rolling(14).mean() for part in (delta, -delta))
    macd = close.ewm(span=12, adjust=False).mean() - close.ewm(span=26, adjust=False).mean()
    signal = macd.ewm(span=9, adjust=False).mean()
    middle, band = close.rolling(20).mean(), 2 * close.rolling(20).std()
    expected = {
        "returns": close.pct_change(),
        "log_returns": np.log(close / before),
        "rsi_14": 100 - 100 / (1 + gain / loss),
        "macd": macd,
        "macd_signal": signal,
        "macd_diff": macd - signal,
        "atr_14": pd.concat(ranges, axis=1).max(axis=1).rolling(14).mean(),
        "ema_20": close.ewm(span=20, adjust=False).mean(),
        "ema_50": close.ewm(span=50, adjust=False).mean(),
        "bb_upper": middle + band,
        "bb_middle": middle,
        "bb_lower": middle - band,
        "bb_width": 2 * band / middle,
        "volatility": close.pct_change().rolling(20).std(),
        "volume_change": frame.volume.pct_change(),
    }
    table, names = compute(made, "legacy")
    assert names == tuple(expected)
    for name, values in expected.items():
        exponential = name.startswith(("macd", "ema"))  # averages that are cut off, in units of the price
        tolerance = {"atol": 1e-3 * made.close.mean()} if exponential else {"rtol": 1e-9, "atol": 1e-9}
        found = column(table, names, name)[memory("legacy") :]
        np.testing.assert_allclose(found, values.to_numpy()[memory("legacy") :], err_msg=name, **tolerance)


def test_hours_and_weekdays_turn_in_utc():
    made = candles(np.linspace(5, 6, 24 * 14), step=3_600_000)  # from Monday, 2024-01-01
    table, names = compute(made, "default")
    hours, days = np.arange(24 * 14) % 24, np.arange(24 * 14) // 24 % 7
    warm = slice(memory("default"), None)
    near(column(table, names, "hour_sin")[warm], np.sin(2 * np.pi * hours / 24)[warm])
    near(column(table, names, "weekday_cos")[warm], np.cos(2 * np.pi * days / 7)[warm])


def test_default_features_are_free_of_scale_and_legacy_ones_are_in_units_of_the_price():
    prices = {each: getattr(COIN, each) * 1000 for each in ("open", "high", "low", "close")}
    scaled = Candles(COIN.symbol, COIN.timeframe_ms, COIN.time, **prices, volume=COIN.volume * 7)
    once, larger = (compute(each, "default")[0] for each in (COIN, scaled))
    np.testing.assert_allclose(larger, once, rtol=1e-6, atol=1e-9)
    ratio = compute(scaled, "legacy")[0][-1] / compute(COIN, "legacy")[0][-1]
    assert int((ratio > 500).sum()) == 9  # of 15


def test_volume_after_a_candle_without_volume_is_no_infinite_change():
    volume = np.ones(400)
    volume[300] = 0
    table, names = compute(candles(COIN.close[:400], volume=volume), "legacy")
    assert table[[300, 301], names.index("volume_change")].tolist() == [-1, 0]


def test_an_unknown_set_is_never_replaced_by_another_number_of_features():
    with pytest.raises(KeyError, match="all"):
        compute(COIN, "all")
    assert [len(names) for names in SETS.values()] == [22, 15]
    assert [compute(COIN, name)[0].shape[1] for name in SETS] == [22, 15]
