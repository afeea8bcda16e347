"""Candles: what is read, what is repaired and counted, what is refused and in which words."""

import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from common.errors import UserError
from pipelines.workloads.crypto import candles as feed

STEP = 900_000
START = 1_735_689_600_000 - 30 * STEP  # so that 2025 begins among the rows
NOW = 1_760_000_000_000
ROWS = 60


def table(rows: int = ROWS, step: int = STEP) -> pd.DataFrame:
    close = 100 * np.exp(np.cumsum(np.random.default_rng(0).normal(0, 0.003, rows)))
    start = np.concatenate([[100.0], close[:-1]])
    high, low = np.maximum(start, close) * 1.001, np.minimum(start, close) * 0.999
    time = START + step * np.arange(rows, dtype=np.int64)
    return pd.DataFrame({"time": time, "open": start, "high": high, "low": low, "close": close, "volume": 5.0})


def check(frame: pd.DataFrame, **options):
    frame = frame.reset_index(drop=True)
    frame.index += 1
    return feed.check(frame, "BTCUSDT", "15m", "a.csv", **{"now": NOW, "minimum_rows": 50, **options})


def read(path: Path, timeframe: str = "15m"):
    return feed.read(path, "BTCUSDT", timeframe, now=NOW, minimum_rows=50)


def same(one: feed.Candles, other: feed.Candles) -> bool:
    return one.digest() == other.digest()


CLEAN, CLEAN_FACTS = check(table())
MANY, _ = check(table(3000))


def klines(frame: pd.DataFrame, per_ms: int = 1) -> pd.DataFrame:
    ends = (frame.time + STEP) * per_ms - 1
    columns = [frame.time * per_ms, frame.open, frame.high, frame.low, frame.close, frame.volume, ends]
    return pd.concat([*columns, *(pd.Series(0, range(len(frame))) for _ in range(5))], axis=1)


@pytest.mark.parametrize("per_ms", [1, 1000])
def test_binance_klines_without_a_header_are_read_in_ms_and_us(tmp_path, per_ms):
    klines(table(), per_ms).to_csv(tmp_path / "BTCUSDT-15m.csv", header=False, index=False)
    candles, facts = read(tmp_path / "BTCUSDT-15m.csv")
    assert same(candles, CLEAN)
    assert facts["time_units"] == [{1: "ms", 1000: "us"}[per_ms]]


def test_files_joined_across_the_change_of_unit_and_with_their_headers_are_one(tmp_path):
    frame = table()
    path = tmp_path / "BTCUSDT-15m.csv"
    header = "open_time,open,high,low,close,volume,close_time,quote_volume,count,a,b,ignore\n"
    parts = [klines(frame[:30]), klines(frame[30:].reset_index(drop=True), 1000)]
    path.write_text("".join(header + part.to_csv(header=False, index=False) for part in parts))
    candles, facts = read(path)
    assert same(candles, CLEAN)
    assert facts["time_units"] == ["ms", "us"]
    assert facts["repeated_headers"] == 1


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


@pytest.mark.parametrize("suffix", ["csv", "json", "parquet", "feather"])
@pytest.mark.parametrize("zone", [None, "UTC", "Europe/Berlin"])
def test_all_formats_and_time_zones_give_the_same_candles(tmp_path, suffix, zone):
    path, frame = tmp_path / f"BTC_USDT-15m.{suffix}", table()
    if suffix == "json":
        path.write_text(json.dumps([[int(row[0]), *row[1:]] for row in frame.to_numpy().tolist()]))
    else:
        frame["date"] = pd.to_datetime(frame.pop("time"), unit="ms", utc=True)
        frame["date"] = frame.date.dt.tz_convert(zone) if zone else frame.date.dt.tz_localize(None)
        frame = frame[["date", "open", "high", "low", "close", "volume"]]
        write = {"csv": lambda: frame.to_csv(path, index=False), "feather": lambda: frame.to_feather(path)}
        write.get(suffix, lambda: frame.set_index("date").to_parquet(path))()
    candles, facts = read(path)
    assert same(candles, CLEAN)
    assert facts["naive_times"] == (ROWS if zone is None and suffix != "json" else 0)


def test_numbers_in_quotes_and_semicolons_are_read(tmp_path):
    path = tmp_path / "BTCUSDT-15m.csv"
    table().to_csv(path, index=False, sep=";", quoting=1)
    assert same(read(path)[0], CLEAN)


@settings(max_examples=20, deadline=None)
@given(st.permutations(range(ROWS)), st.lists(st.integers(0, ROWS - 1), max_size=5))
def test_any_order_and_any_identical_duplicates_give_the_same_candles_and_are_counted(order, again):
    rows = [*order, *again]
    candles, facts = check(table().iloc[rows])
    assert same(candles, CLEAN)
    latest = np.maximum.accumulate(rows)
    assert facts["unsorted"] == int((np.array(rows) < latest).sum())
    assert facts["duplicates"] == len(again)


def test_two_candles_of_one_time_that_differ_are_refused_by_their_time():
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


def test_text_in_a_column_is_refused_by_its_line_and_a_row_cut_short_is_a_missing_number(tmp_path):
    path = tmp_path / "BTCUSDT-15m.csv"
    lines = table(3000).to_csv(index=False).splitlines()
    good = [*lines]
    lines[17] = lines[17].rpartition(",")[0] + ",n/a"
    path.write_text("\n".join(lines))
    with pytest.raises(UserError, match=r"BTCUSDT: row 18, column volume: 'n/a' is not a number"):
        read(path)
    path.write_text("\n".join([*good[:-1], good[-1][:30]]))
    assert read(path)[1]["not_finite"] == 1
    path.write_text("\n".join([*good[:9], good[9] + ",1,2", *good[10:]]))
    with pytest.raises(UserError, match=r"not a table.*line 10"):
        read(path)


def test_gaps_are_counted_and_nothing_is_made_up():
    keep = np.ones(3000, bool)
    keep[[10, 11, 12, 500]] = False
    candles, facts = check(table(3000)[keep])
    assert (facts["gaps"], facts["missing_candles"], facts["longest_gap"]) == (2, 4, 3)
    assert [(segment.start, segment.stop) for segment in candles.segments()] == [(0, 10), (10, 497), (497, 2996)]


def test_candles_without_volume_and_jumps_are_counted_and_kept():
    frame = table()
    frame.loc[5, "volume"] = 0
    frame.loc[40:, ["open", "high", "low", "close"]] *= 1000
    candles, facts = check(frame)
    assert len(candles) == ROWS
    assert (facts["zero_volume"], facts["jumps"]) == (1, 1)


def test_the_candle_that_is_still_open_is_dropped_by_the_clock_the_file_or_its_own_end():
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


def test_a_file_written_while_its_last_candle_was_open_loses_it(tmp_path):
    path = tmp_path / "BTCUSDT-15m.csv"
    table().to_csv(path, index=False)
    os.utime(path, (0, int(CLEAN.time[-1]) // 1000 + 60))
    assert read(path)[1]["open_candle"] == 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda frame: frame.assign(time=frame.time // 60_000), "row 1: time .* is neither s, ms, us nor ns"),
        (lambda frame: frame.assign(time=frame.time + NOW - START), "row 2 opens at 2025-10-09.* in the future"),
        (lambda frame: frame.assign(time=START), r"0 \(all rows open at the same time\) apart, not 15m"),
        (lambda frame: table(step=300_000), "its candles are 5m apart, not 15m; give data.timeframe=5m"),
        (lambda frame: table(step=3_600_000), "its candles are 1h apart, not 15m"),
        (lambda frame: table(step=17_000), "its candles are 17 s apart, not 15m"),
        (
            lambda frame: frame.assign(time=frame.time + 899_999),
            "60 of 60 rows have times that are not multiples of 15m",
        ),
        (lambda frame: frame[:30], "30 rows are too few, 50 are needed; give a longer file or a lower data.minimum_"),
        (lambda frame: frame[:0], "0 rows are too few"),
        (lambda frame: frame.drop(columns="close"), r"no column for close \(columns: time, open, high, low, volume\)"),
        (lambda frame: frame.assign(Close=1.0), "there are 2 columns close; keep one"),
        (lambda frame: frame.assign(time="01/02/2024"), "row 1, column time: '01/02/2024' is not a time"),
        (lambda frame: frame.assign(volume=[[1]] * ROWS), r"row 1, column volume: \[1\] is not a number"),
    ],
)
def test_what_cannot_be_repaired_is_refused_in_a_line(change, message):
    with pytest.raises(UserError, match=message) as error:
        check(change(table()))
    assert str(error.value).startswith("a.csv: BTCUSDT: ")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", b"", "the file is empty"),
        ("a.csv", b"\n\n", "holds no rows"),
        ("a.csv", b"time,open,high,low,close,volume\n", "0 rows are too few"),
        ("a.csv", b"1,2,3\n4,5,6\n", "line 1 has 3 columns and there is no header"),
        ("a.csv", b"PK\x03\x04\xff\xfe", "no UTF-8 text; if it is an archive"),
        ("a.json", b"{", "not JSON"),
        ("a.json", b"[[1, 2]]", r"an array of rows \[time, open"),
        ("a.json", b"[" * 100_000, "not JSON"),
        ("a.parquet", b"PAR1 and more", "no parquet file"),
        ("a.feather", b"ARROW1 and more", "no feather file"),
        ("a.xlsx", b"1", r"\.xlsx is not read; give \.csv"),
    ],
)
def test_files_that_are_no_candles_are_refused_in_a_line(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError, match=message) as error:
        read(tmp_path / name)
    assert str(error.value).startswith(f"{tmp_path / name}: BTCUSDT: ")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", ["BTCUSDT-15m.csv", "BTC_USDT-15m.feather", "BTCUSDT_15m.parquet", "btcusdt-15m.JSON"])
@pytest.mark.parametrize("symbol", ["BTCUSDT", "BTC/USDT", "btc_usdt"])
def test_a_coin_is_found_by_the_common_ways_to_name_its_file(tmp_path, name, symbol):
    for other in (name, "ETHUSDT-15m.csv", "BTCUSDT-5m.csv", "BTCUSDT-15m.txt"):
        (tmp_path / other).touch()
    assert feed.find(tmp_path, symbol, "15m") == tmp_path / name


def test_no_file_two_files_and_files_in_parts_are_told_apart(tmp_path):
    with pytest.raises(
        UserError, match=r"no file of its 15m candles in data\.folder=.*; name it like BTCUSDT-15m\.csv"
    ):
        feed.find(tmp_path, "BTCUSDT", "15m")
    (tmp_path / "BTCUSDT-15m-2024-01.csv").touch()
    with pytest.raises(UserError, match=r"cat BTCUSDT-15m-\*\.csv > BTCUSDT-15m\.csv"):
        feed.find(tmp_path, "BTCUSDT", "15m")
    (tmp_path / "BTCUSDT-15m.csv").touch()
    (tmp_path / "BTC_USDT-15m.json").touch()
    with pytest.raises(UserError, match=r"BTCUSDT-15m\.csv, BTC_USDT-15m\.json for 15m; keep one"):
        feed.find(tmp_path, "BTCUSDT", "15m")
    with pytest.raises(UserError, match="no such folder"):
        feed.find(tmp_path / "none", "BTCUSDT", "15m")


def test_names_and_timeframes_that_cannot_be_are_refused():
    for name in ("../BTC", "", "BTC USDT", None):
        with pytest.raises(UserError, match="is not the name of a coin"):
            feed.canonical(name)
    with pytest.raises(UserError, match=r"data\.timeframe=7m is not known; give one of 1m, 3m"):
        feed.milliseconds("7m")


class Exchange:
    """Two pages of candles and an open one."""

    failing = False

    def __init__(self, options):
        self.rows = [[int(row[0]), *row[1:]] for row in table(1500).to_numpy().tolist()]

    def load_markets(self):
        return {"BTC/USDT:USDT": {}, "BTC/USDT": {}}

    def milliseconds(self):
        return self.rows[-1][0] + 1

    def fetch_ohlcv(self, market, timeframe, since, limit):
        assert (market, timeframe) == ("BTC/USDT", "15m")
        if self.failing:
            raise ConnectionError("no\nnetwork")
        return [row for row in self.rows if row[0] >= since][:limit]


def test_candles_are_downloaded_page_by_page_without_the_open_one(monkeypatch):
    ccxt = SimpleNamespace(exchanges=["binance"], binance=Exchange, BaseError=ConnectionError)
    monkeypatch.setitem(sys.modules, "ccxt", ccxt)
    candles, facts = feed.download("BTCUSDT", "15m", 365)
    assert same(candles, MANY.rows(slice(0, 1499)))
    assert facts["open_candle"] == 1
    assert facts["duplicates"] == 0
    with pytest.raises(UserError, match="XYZUSDT: the exchange does not trade XYZ/USDT"):
        feed.download("XYZUSDT", "15m", 365)
    monkeypatch.setattr(Exchange, "failing", True)
    with pytest.raises(UserError, match="BTCUSDT: binance did not answer: no network; try again later"):
        feed.download("BTCUSDT", "15m", 365)


def test_without_ccxt_the_command_that_installs_it_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "ccxt", None)
    with pytest.raises(UserError, match="pip install ccxt"):
        feed.download("BTCUSDT", "15m", 365)


def test_facts_of_clean_candles_count_nothing():
    counts = {"unsorted", "duplicates", "not_finite", "not_positive", "inconsistent", "off_grid", "open_candle", "gaps"}
    assert {CLEAN_FACTS[name] for name in counts} == {0}
    assert CLEAN_FACTS["first"] == "2024-12-31T16:30:00Z"
    assert json.loads(json.dumps(CLEAN_FACTS)) == CLEAN_FACTS
