"""Files of candles: found under their usual names, read in every format, refused with a reason."""

import gzip
import json
import os
import zipfile

import pandas as pd
import pytest

from common.errors import UserError
from pipelines.workloads.crypto.candles import files
from pipelines.workloads.crypto.candles.files import coins, finder
from tests.workloads.crypto.candles.candle_tables import CLEAN, NOW, ROWS, STEP, same, table


def read(path, timeframe: str = "15m"):
    return files.read(path, "BTCUSDT", timeframe, now=NOW, minimum_rows=50)


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


def test_files_joined_with_their_headers_and_across_the_change_of_unit_read_as_one(tmp_path):
    frame = table()
    path = tmp_path / "BTCUSDT-15m.csv"
    header = "open_time,open,high,low,close,volume,close_time,quote_volume,count,a,b,ignore\n"
    parts = [klines(frame[:30]), klines(frame[30:].reset_index(drop=True), 1000)]
    path.write_text("".join(header + part.to_csv(header=False, index=False) for part in parts))
    candles, facts = read(path)
    assert same(candles, CLEAN)
    assert facts["time_units"] == ["ms", "us"]
    assert facts["repeated_headers"] == 1


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


def test_text_in_a_column_is_refused_with_its_line_and_a_truncated_row_is_a_missing_number(tmp_path):
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


def test_the_last_candle_is_dropped_if_it_was_open_when_the_file_was_written(tmp_path):
    path = tmp_path / "BTCUSDT-15m.csv"
    table().to_csv(path, index=False)
    os.utime(path, (0, int(CLEAN.time[-1]) // 1000 + 60))
    assert read(path)[1]["open_candle"] == 1


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", b"", "the file is empty"),
        ("a.csv", b"\n\n", "holds no rows"),
        ("a.csv", b"time,open,high,low,close,volume\n", "0 rows are too few"),
        ("a.csv", b"1,2,3\n4,5,6\n", "line 1 has 3 columns and there is no header"),
        ("a.csv", b"PK\x03\x04\xff\xfe", "not UTF-8 text; save it as UTF-8; if it is an archive"),
        ("a.json", b"{", "not JSON"),
        ("a.json.gz", b"[[1, 2]]", "not JSON"),
        ("a.zip", b"PK\x03\x04 and more", "no readable zip file"),
        ("a.json", b"[[1, 2]]", r"an array of rows \[time, open"),
        ("a.json", b"[" * 100_000, "not JSON"),
        ("a.parquet", b"PAR1 and more", "not a parquet file"),
        ("a.feather", b"ARROW1 and more", "not a feather file"),
        ("a.xlsx", b"1", r"\.xlsx files cannot be read; give \.csv"),
    ],
)
def test_files_without_candles_are_refused_in_one_line(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError, match=message) as error:
        read(tmp_path / name)
    assert str(error.value).startswith(f"{tmp_path / name}: BTCUSDT: ")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", ["BTCUSDT-15m.csv", "BTC_USDT-15m.feather", "BTCUSDT_15m.parquet", "btcusdt-15m.JSON"])
@pytest.mark.parametrize("symbol", ["BTCUSDT", "BTC/USDT", "btc_usdt"])
def test_a_coins_file_is_found_under_its_common_names(tmp_path, name, symbol):
    for other in (name, "ETHUSDT-15m.csv", "BTCUSDT-5m.csv", "BTCUSDT-15m.txt"):
        (tmp_path / other).touch()
    assert finder(tmp_path)(symbol, "15m") == [tmp_path / name]


def test_a_missing_file_and_two_files_have_messages_of_their_own(tmp_path):
    with pytest.raises(
        UserError, match=r"data\.folder=.* has no file of its 15m candles; name it like BTCUSDT-15m\.csv"
    ):
        finder(tmp_path)("BTCUSDT", "15m")
    (tmp_path / "BTCUSDT-15m.csv").touch()
    (tmp_path / "BTC_USDT-15m.json").touch()
    with pytest.raises(UserError, match=r"BTCUSDT-15m\.csv, BTC_USDT-15m\.json for 15m; keep only one"):
        finder(tmp_path)("BTCUSDT", "15m")
    with pytest.raises(UserError, match="no such folder"):
        finder(tmp_path / "none")


def test_the_names_of_freqtrade_are_read_spot_and_futures_and_compressed(tmp_path):
    rows = json.dumps([[int(row[0]), *row[1:]] for row in table().to_numpy().tolist()]).encode()
    (tmp_path / "XRP_USDT_USDT-15m-futures.json.gz").write_bytes(gzip.compress(rows))
    (tmp_path / "XRP_USDT_USDT-8h-funding_rate.feather").touch()
    (path,) = finder(tmp_path)("XRP/USDT:USDT", "15m")
    assert same(read(path)[0], CLEAN)
    assert coins(tmp_path, "15m") == ["XRPUSDTUSDT"]


def test_monthly_zips_are_read_as_one_file(tmp_path):
    frame = table()
    for month, part in (("2025-01", frame[30:]), ("2024-12", frame[:30])):
        text = klines(part.reset_index(drop=True)).to_csv(header=False, index=False)
        with zipfile.ZipFile(tmp_path / f"BTCUSDT-15m-{month}.zip", "w") as archive:
            archive.writestr(f"BTCUSDT-15m-{month}.csv", text)
    paths = finder(tmp_path)("BTCUSDT", "15m")
    candles, facts = read(paths)
    assert same(candles, CLEAN)
    assert facts["file"] == ["BTCUSDT-15m-2024-12.zip", "BTCUSDT-15m-2025-01.zip"]
    assert facts["unsorted"] == 0


@pytest.mark.parametrize("header", ["open_time", "Date"])
def test_months_of_which_some_have_a_header_are_read_as_one_file(tmp_path, header):
    frame, names = table(), [header, "open", "high", "low", "close", "volume", "close_time", *"abcde"]
    klines(frame[:30]).to_csv(tmp_path / "BTCUSDT-15m-2024-12.csv", header=False, index=False)
    later = klines(frame[30:].reset_index(drop=True)).set_axis(names, axis=1)
    later.to_csv(tmp_path / "BTCUSDT-15m-2025-01.csv", index=False)
    candles, facts = read(finder(tmp_path)("BTCUSDT", "15m"))
    assert same(candles, CLEAN)
    assert facts["not_finite"] == 0


@pytest.mark.parametrize("separator", [" ", "|"])
def test_a_table_of_other_separators_is_refused_with_those_that_are_read(tmp_path, separator):
    table().to_csv(path := tmp_path / "BTCUSDT-15m.csv", index=False, sep=separator)
    with pytest.raises(UserError, match="no line has several columns, separated by commas, semicolons or tabs"):
        read(path)


def test_an_archive_that_holds_too_much_or_not_one_table_is_refused(tmp_path, monkeypatch):
    path = tmp_path / "BTCUSDT-15m.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a.csv", "0" * 1000)
    monkeypatch.setattr(files, "MOST_BYTES", 999)
    with pytest.raises(UserError, match="holds more than 999 bytes"):
        read(path)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("b.csv", "")
    with pytest.raises(UserError, match="there are 2 CSV files in it"):
        read(path)


def test_a_folder_lists_its_coins_of_a_timeframe(tmp_path):
    for name in ("ETH_BTC-15m.feather", "BTCUSDT-15m-2024-01.zip", "BTCUSDT-15m-2024-02.zip", "A-5m.csv", "notes.csv"):
        (tmp_path / name).touch()
    assert coins(tmp_path, "15m") == ["BTCUSDT", "ETHBTC"]
    with pytest.raises(UserError, match=r"holds no 1h candles \(found there: 15m, 5m\)"):
        coins(tmp_path, "1h")


def test_prices_are_read_to_their_last_bit(tmp_path):
    path, frame = tmp_path / "BTCUSDT-15m.csv", table(500)
    frame.to_csv(path, index=False)  # which writes as many digits as tell the number from all others
    candles, _ = read(path)
    for name in ("open", "high", "low", "close"):
        assert getattr(candles, name).tolist() == frame[name].tolist()
