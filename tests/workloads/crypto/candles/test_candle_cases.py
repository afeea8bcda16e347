"""Names and tables as people have them: Python and the page read them alike, by one table of cases."""

import json
import re
import subprocess
from pathlib import Path

import numpy as np
import pytest

from common import browser
from common.errors import UserError
from models import io
from models.market.candle_tables import RULES, file_name
from models.market.candles import COLUMNS
from pipelines.workloads.crypto.candles import files

CASES = json.loads((Path(__file__).parent / "candle_cases.json").read_text())
TABLES = {name: (text, expected) for name, text, expected in CASES["tables"]}
PLAIN = {"time": [1704067200000, 1704068100000], "open": [1, 2], "high": [3, 4], "low": [0.5, 1], "close": [2, 3]}
PLAIN["volume"] = [10, 11]
WRITTEN = {
    "thousands": ('"41,718.2"', '"1,234,567"', "41,700", 41718.2, 1234567.0),
    "decimal commas": ('"42.000,50"', '"1,234K"', "42000,00", 42000.5, 1234.0),
    "units": ("41718.25", "1.2M", "41700", 41718.25, 1.2e6),
    "billions": ("41718.25", "3.4B", "41,700.00", 41718.25, 3.4e9),
}
ASK = """
const fs = require("fs"), script = fs.readFileSync(process.argv[1], "utf8");
const { rules, cases, written } = JSON.parse(fs.readFileSync(0, "utf8")), 
  wanted = "candleFileName, readCandles, simulatedCandles";
const { candleFileName, readCandles, simulatedCandles } =
  require("vm").runInNewContext(`${script}\\n({ ${wanted} })`);
const about = { rules, timeframe_ms: 900000, candles_needed: 233 };
const read = text => { try { return readCandles(text, about).candles; } catch ({ message }) { return { message }; } };
console.log(JSON.stringify({
  names: cases.names.map(([stem]) => candleFileName(stem, rules)),
  written: written.map(read),
  tables: cases.tables.map(([, text]) => read(text)),
  simulated: simulatedCandles(about, 1, 3000) }));
"""


@pytest.fixture(scope="module")
def page():
    """What the functions of the page's panel make of the cases."""
    words = ["node", "-e", ASK, str(browser.FOLDER / "signals.js")]
    given = json.dumps({"rules": RULES._asdict(), "cases": CASES, "written": [*map(written, WRITTEN)]})
    done = subprocess.run(words, input=given, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize(("stem", "coin", "timeframe", "part"), [[*case, None][:4] for case in CASES["names"]])
def test_the_pair_and_the_timeframe_are_found_in_a_name(stem, coin, timeframe, part):
    wanted = (coin, timeframe, part, "") if coin else ("", "", False, RULES.reasons[timeframe])
    assert tuple(file_name(stem)) == wanted


@pytest.mark.parametrize("name", TABLES)
def test_a_table_is_read_or_refused_with_the_reason(tmp_path, name):
    text, expected = TABLES[name]
    path = tmp_path / ("BTCUSDT-15m.json" if text.startswith("[") else "BTCUSDT-15m.csv")
    path.write_text(text, newline="")
    if expected != "plain":
        with pytest.raises(UserError, match=re.escape(expected)):
            files.read(path, "BTCUSDT", "15m", minimum_rows=1)
        return
    candles, _ = files.read(path, "BTCUSDT", "15m", minimum_rows=1)
    newest = candles.rows(candles.segments()[-1])
    assert {column: getattr(newest, column).tolist() for column in COLUMNS} == PLAIN


@pytest.mark.slow  # needs node
def test_the_page_reads_every_name_and_table_alike(page):
    for (stem, *_), found in zip(CASES["names"], page["names"], strict=True):
        known = file_name(stem)
        assert found == ({"reason": known.reason} if known.reason else {k: getattr(known, k) for k in found}), stem
    for (name, _, expected), found in zip(CASES["tables"], page["tables"], strict=True):
        assert found == PLAIN if expected == "plain" else expected in found["message"], name


@pytest.mark.slow  # needs node
def test_the_candles_that_a_page_simulates_hold_the_signal_that_the_shipped_model_learnt(page):
    candles = {name: np.array(values) for name, values in page["simulated"].items()}
    model = io.load(Path(io.__file__).parent / "pretrained/crypto-simulated")
    found = model.probabilities(candles, now=int(candles["time"][-1]) + 900_000).double().numpy()[:-3]
    close = candles["close"][-len(found) - 3 :]
    move = close[3:] / close[:-3] - 1
    labels = np.where(move < -0.003, 0, np.where(move > 0.003, 2, 1))
    shares = np.bincount(labels) / len(labels)
    prior = -(shares * np.log(shares)).sum()
    assert -np.log(found[np.arange(len(labels)), labels]).mean() < prior - 0.05  # 0.11 of it in 4,000 candles


def written(name):
    price, volume, other, *_ = WRITTEN[name]
    first = f'1704067200000,{price},{price},"{other}","{other}",{volume}'
    return f"time,open,high,low,close,volume\n{first}\n1704068100000,{price},{price},{price},{price},7\n"


@pytest.mark.parametrize("name", WRITTEN)
def test_numbers_are_read_by_the_marks_of_the_whole_table(tmp_path, name):
    *_, value, total = WRITTEN[name]
    (path := tmp_path / "BTCUSDT-15m.csv").write_text(written(name))
    candles, _ = files.read(path, "BTCUSDT", "15m", minimum_rows=1)
    assert (candles.open.tolist(), candles.volume.tolist()) == ([value, value], [total, 7.0])


@pytest.mark.slow  # needs node
def test_the_page_reads_numbers_by_the_marks_of_the_whole_table(page):
    for (*_, value, total), found in zip(WRITTEN.values(), page["written"], strict=True):
        assert (found["open"], found["volume"]) == ([value, value], [total, 7.0])


@pytest.mark.parametrize("beside", ["1704067200000", "UTC", "0"])
def test_what_stands_beside_a_day_matters_only_where_days_repeat(tmp_path, beside):
    rows = [f"2024-01-0{day},{beside},1,3,0.5,2,10" for day in (1, 2)]
    (tmp_path / "A.csv").write_text("\n".join(["Date,Time,Open,High,Low,Close,Volume", *rows]))
    candles, _ = files.read(tmp_path / "A.csv", "A", "1d", minimum_rows=2)
    assert list(candles.time) == [1704067200000, 1704153600000]
