"""Folders as people have them: what is read, and a line for each kind of what is not."""

import pytest

from common.errors import UserError
from models.market.candle_tables import FileName
from pipelines.workloads.crypto import input_files
from pipelines.workloads.crypto.candles import files
from pipelines.workloads.crypto.candles.files import coins, finder, in_folder, read
from tests.workloads.crypto.candles.candle_tables import table

NAMES = ("ETH-USDT 15m export.csv", "BTCUSDT_15m.csv", "Binance_XRPUSDT_1h.csv")
OTHERS = (
    "a.h5",
    "b.h5",
    "c.h5",
    "d.h5",
    "notes.txt",
    "candles.xlsx",
    "BTCUSDT.csv",
    "BTC_USDT-8h-mark.feather",
    ".hidden",
)


@pytest.fixture
def folder(tmp_path):
    """A folder of three files of candles among others."""
    for name in (*NAMES, *OTHERS):
        table(300).to_csv(tmp_path / name, index=False)
    table(1).to_csv(tmp_path / "BTCUSDT.csv", index=False)  # one row tells no timeframe
    (tmp_path / "old").mkdir()
    return tmp_path


def test_whatever_is_passed_over_is_named_in_one_line_per_kind_with_the_reason(folder):
    found, passed_over = in_folder(folder, "15m")
    assert {(path.name, name.coin) for path, name in found} == {(NAMES[0], "ETHUSDT"), (NAMES[1], "BTCUSDT")}
    reasons = dict(line.removeprefix(f"passed over in {folder}: ").split(": ", 1) for line in passed_over)
    assert len(reasons) == len(passed_over) == 7
    assert "Feather (freqtrade convert-data" in reasons["a.h5, b.h5, c.h5 and 1 more"]
    assert reasons["candles.xlsx"] == "a spreadsheet; save it as CSV"
    assert reasons["notes.txt"] == ".txt: no format of candles"
    assert reasons["BTCUSDT.csv"].startswith("no timeframe")
    assert reasons["BTC_USDT-8h-mark.feather"].startswith("funding rates, mark prices")
    assert reasons["old"] == "folders are not looked into"
    assert reasons["Binance_XRPUSDT_1h.csv"] == "1h candles, where 15m are wanted"
    assert coins(folder, "15m") == ["BTCUSDT", "ETHUSDT"]
    assert finder(folder)("XRP/USDT", "1h") == [folder / "Binance_XRPUSDT_1h.csv"]


def test_a_prediction_reads_the_files_it_can_and_names_the_others(folder, capsys):
    (folder / NAMES[2]).unlink()
    given = list(input_files.read([folder]))
    assert [(each.input["coin"], each.error) for each in given] == [("BTCUSDT", ""), ("ETHUSDT", "")]
    assert capsys.readouterr().err.count("passed over in ") == 6


def test_a_coins_parts_are_one_input_of_a_folder_and_where_they_are_named(tmp_path):
    whole, parts = table(300), [tmp_path / f"BTCUSDT-15m-2024-12-{day}.csv" for day in ("30", "31")]
    for path, rows in zip(parts, (whole[:200], whole[200:]), strict=True):
        rows.to_csv(path, index=False)
    whole.to_csv(tmp_path / "ETHUSDT-15m.csv", index=False)
    others = [tmp_path / "ETHUSDT-15m.csv"]
    for paths in ([tmp_path], [*reversed(parts), *others]):
        bitcoin, ether = input_files.read(paths)
        assert bitcoin.source == str(parts[1])
        assert bitcoin.input["candles"].close.tolist() == ether.input["candles"].close.tolist()
        assert len(ether.input["candles"]) == 300
    (alone,) = input_files.read(parts[:1])
    assert len(alone.input["candles"]) == 200


def test_nothing_usable_is_a_mistake_that_the_user_can_mend(tmp_path, capsys):
    (tmp_path / "candles.h5").touch()
    with pytest.raises(UserError, match="no file of candles; name them like"):
        list(input_files.read([tmp_path]))
    assert "HDF5 keeps the names of columns as pickles" in capsys.readouterr().err
    with pytest.raises(UserError, match="no such file"):
        list(input_files.read([tmp_path / "none.csv"]))
    with pytest.raises(UserError, match=r"holds no 15m candles.*\n.*candles\.h5: HDF5"):
        coins(tmp_path, "15m")


def test_a_timeframe_that_the_name_lacks_is_that_of_the_rows(tmp_path, monkeypatch):
    given = table(300)
    dated = given.drop(index=[7, 8, 20]).set_index("time")  # as pandas writes tables: times without a heading
    dated.to_csv(tmp_path / "EURUSD.csv", index_label="")
    given.to_csv(tmp_path / "notes.csv", index=False)
    (tmp_path / "GBPUSD.csv").touch()
    found, passed_over = in_folder(tmp_path, "15m")
    assert [(path.name, name) for path, name in found] == [("EURUSD.csv", FileName("EURUSD", "15m"))]
    assert [line.split(": ")[1] for line in passed_over] == ["GBPUSD.csv", "notes.csv"]
    monkeypatch.setattr(files, "_table", None)  # the rows of a file that did not change are not read again
    assert finder(tmp_path)("EUR/USD", "15m") == [tmp_path / "EURUSD.csv"]
    with pytest.raises(UserError, match=r"give data\.timeframe=15m"):
        coins(tmp_path, "1h")


@pytest.mark.parametrize("kept", [[0, 2], [0, 1, 3]])  # 30 minutes apart, or 15 and 30
def test_steps_of_which_no_two_are_alike_tell_no_timeframe(tmp_path, kept):
    table(300).iloc[kept].to_csv(tmp_path / "BTCUSDT.csv", index=False)
    found, (line,) = in_folder(tmp_path)
    assert not found
    assert line.endswith("BTCUSDT.csv: no timeframe in the name, which would be like BTCUSDT-15m.csv, nor in the rows")


def test_a_file_without_a_timeframe_is_passed_over_beside_one_that_names_it(tmp_path):
    for name in ("BTCUSDT.csv", "BTCUSDT-15m.csv", "ETHUSDT.csv"):
        table(300).to_csv(tmp_path / name, index=False)
    assert finder(tmp_path)("BTC/USDT", "15m") == [tmp_path / "BTCUSDT-15m.csv"]
    assert finder(tmp_path)("ETH/USDT", "15m") == [tmp_path / "ETHUSDT.csv"]
    _, (line,) = in_folder(tmp_path, "15m")
    assert line.endswith("BTCUSDT.csv: no timeframe in the name, where another file of BTCUSDT says 15m")


@pytest.mark.parametrize("other", ["BTCUSDT-15m.png", "BTCUSDT-15m.csv.gz"])
def test_a_file_that_is_not_read_says_nothing_of_others(tmp_path, other):
    table(300).to_csv(tmp_path / "BTCUSDT.csv", index=False)
    (tmp_path / other).write_bytes(b"another kind")
    assert finder(tmp_path)("BTC/USDT", "15m") == [tmp_path / "BTCUSDT.csv"]


def test_a_line_of_any_length_is_told_as_no_table(tmp_path):
    (tmp_path / "BTCUSDT-15m.csv").write_text('time,"' + "x" * 200_000 + "\n1,2,3\n")
    with pytest.raises(UserError, match="this is not a table"):
        read(tmp_path / "BTCUSDT-15m.csv", "BTCUSDT", "15m", minimum_rows=1)


def test_rows_that_cannot_be_read_are_the_reason_and_not_a_missing_timeframe(tmp_path):
    (tmp_path / "BTCUSDT.csv").write_text("customer,demand\nBakery,3\n")
    _, (line,) = in_folder(tmp_path, "15m")
    assert "BTCUSDT.csv: cannot be read: there is no column for time" in line
