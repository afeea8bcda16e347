"""Checks of candles: repairs with their counts, refusals with their messages."""

import json

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from common.errors import UserError
from tests.workloads.crypto.candles.candle_tables import (
    CLEAN,
    CLEAN_FACTS,
    MANY,
    NOW,
    ROWS,
    START,
    STEP,
    check,
    same,
    table,
)


@settings(max_examples=20, deadline=None)
@given(st.permutations(range(ROWS)), st.lists(st.integers(0, ROWS - 1), max_size=5))
def test_any_order_and_any_identical_duplicates_give_the_same_candles_and_are_counted(order, again):
    rows = [*order, *again]
    candles, facts = check(table().iloc[rows])
    assert same(candles, CLEAN)
    latest = np.maximum.accumulate(rows)
    assert facts["unsorted"] == int((np.array(rows) < latest).sum())
    assert facts["duplicates"] == len(again)


def test_different_candles_of_the_same_time_are_refused_with_that_time():
    frame = pd.concat([table(), table().iloc[[30]].assign(volume=6.0)])
    with pytest.raises(UserError, match=r"a\.csv: BTCUSDT: rows 31 and 61 both open at 2025-01-01T00:00:00Z but differ "
                                        r"\(volume 5 and 6\)"):  # fmt: skip
        check(frame)


@pytest.mark.parametrize(
    ("column", "value", "counted"),
    [
        ("close", -1.0, "not_positive"),
        ("low", 0.0, "not_positive"),
        ("volume", -1.0, "not_positive"),
        ("high", 1.0, "inconsistent"),
        ("low", 1e9, "inconsistent"),
        ("open", np.nan, "not_finite"),
        ("volume", np.inf, "not_finite"),
        ("time", np.nan, "not_finite"),
    ],
)
def test_a_broken_row_among_thousands_becomes_a_gap_and_many_refuse_the_file(column, value, counted):
    frame = table(3000).astype({"time": float})
    frame.loc[1000, column] = value
    candles, facts = check(frame)
    assert facts[counted] == 1
    assert (facts["gaps"], facts["missing_candles"]) == (1, 1)
    assert same(candles, MANY.rows(np.arange(3000) != 1000))
    frame.loc[1000:1003, column] = value
    with pytest.raises(UserError, match=r"a\.csv: BTCUSDT: 4 of 3000 rows have .*first row 1001 .*none is trusted"):
        check(frame)


def test_the_last_candle_is_dropped_if_the_clock_the_file_or_its_closing_time_shows_it_open():
    opens = int(CLEAN.time[-1])
    for options in ({"now": opens + STEP - 1}, {"written": opens + 1}):
        candles, facts = check(table(), **options)
        assert facts["open_candle"] == 1
        assert same(candles, CLEAN.rows(slice(0, ROWS - 1)))
    for options in ({"now": opens + STEP}, {"written": opens + STEP}, {"written": 0}):
        assert check(table(), **options)[1]["open_candle"] == 0
    frame = table().assign(close_time=table().time + STEP - 1)
    assert check(frame)[1]["open_candle"] == 0
    frame.loc[ROWS - 1, "close_time"] -= STEP // 2
    assert check(frame)[1]["open_candle"] == 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda frame: frame.assign(time=frame.time // 60_000), "row 1: time .* is neither s, ms, us nor ns"),
        (lambda frame: frame.assign(time=frame.time + NOW - START), "row 2 opens at 2025-10-09.* in the future"),
        (lambda frame: frame.assign(time=START), r"0 \(all rows open at the same time\) apart, not 15m"),
        (lambda frame: table(step=300_000), "its candles are 5m apart, not 15m; give data.timeframe=5m"),
        (lambda frame: table(step=3_600_000), "its candles are 1h apart, not 15m"),
        (lambda frame: table(step=2_700_000), "its candles are 45 min apart, not 15m; only candles of 1m, 3m, 5m,"),
        (lambda frame: table(step=17_000), "its candles are 17 s apart, not 15m"),
        (
            lambda frame: frame.assign(time=frame.time + 899_999),
            "60 of 60 rows have times that are not multiples of 15m in UTC",
        ),
        (lambda frame: frame[:30], "30 rows are too few, 50 are needed; give more candles or a lower data.minimum_"),
        (lambda frame: frame[:0], "0 rows are too few"),
        (lambda frame: frame.drop(columns="close"), r"no column for close \(columns: time, open, high, low, volume\)"),
        (lambda frame: frame.assign(Close=1.0), "there are 2 columns close; keep only one"),
        (lambda frame: frame.assign(time="01/02/2024"), "row 1, column time: '01/02/2024' is not a time"),
        (lambda frame: frame.assign(volume=[[1]] * ROWS), r"row 1, column volume: \[1\] is not a number"),
    ],
)
def test_tables_that_cannot_be_repaired_are_refused_in_one_line(change, message):
    with pytest.raises(UserError, match=message) as error:
        check(change(table()))
    assert str(error.value).startswith("a.csv: BTCUSDT: ")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_the_unit_of_time_is_recognised_by_its_magnitude(unit):
    frame = table()
    if unit == "s":
        frame["time"] //= 1000
    else:
        frame["time"] *= {"ms": 1, "us": 1000, "ns": 1_000_000}[unit]
    candles, facts = check(frame)
    assert same(candles, CLEAN)
    assert facts["time_units"] == [unit]


def test_clean_candles_have_counts_of_zero():
    counts = {"unsorted", "duplicates", "not_finite", "not_positive", "inconsistent", "off_grid", "open_candle", "gaps"}
    assert {CLEAN_FACTS[name] for name in counts} == {0}
    assert CLEAN_FACTS["first"] == "2024-12-31T16:30:00Z"
    assert json.loads(json.dumps(CLEAN_FACTS)) == CLEAN_FACTS


def test_a_volume_of_a_dash_is_a_missing_number():
    frame = table(3000).astype({"volume": object})
    frame.loc[1000, "volume"] = "-"
    candles, facts = check(frame)
    assert (facts["not_finite"], facts["missing_candles"]) == (1, 1)
    assert same(candles, MANY.rows(np.arange(3000) != 1000))
