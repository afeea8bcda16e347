"""Files to which others write while they are followed: what is lost is told in a line, and looks go on."""

import itertools
import os
from dataclasses import replace

import pytest

from common.errors import UserError
from pipelines.workloads.crypto import data, following
from pipelines.workloads.crypto.candles import files
from pipelines.workloads.crypto.config import Config
from tests.models.market.test_signal_models import make as small_model
from tests.workloads.crypto.test_crypto import write

COIN, NOW, STEP = "AUSDT", 2_000_000_000_000, 900_000


@pytest.fixture
def looked(tmp_path):
    """A function that looks at a file of so many candles, at rest or just written: the times of new candles."""
    market = tmp_path / "market"
    write(market, COIN, 300)
    path, config = market / f"{COIN}-15m.csv", Config.model_validate({"data": {"folder": str(market)}})
    rows, feed, last = path.read_text().splitlines(), following.feed(config, tmp_path / "own"), [None]
    looks = itertools.count()

    def look(chosen=None, rest=True):
        if chosen:
            path.write_text("\n".join(rows[chosen]) + "\n")
        if rest:
            os.utime(path, ns=(1, path.stat().st_mtime_ns - 10**10))
        found = [int(each.time) for each in feed.new(COIN, last[0], NOW + next(looks))]
        last[0] = (found or last)[-1]
        return [next(n for n, row in enumerate(rows) if row.startswith(str(time))) for time in found]

    look.path = path
    return look


def test_candles_that_are_gone_are_named_until_there_are_newer_ones(looked):
    assert looked(slice(100)) == [99]
    for _ in range(2):
        with pytest.raises(UserError, match=r"AUSDT-15m\.csv has lost 40 candles, 20\d\d-.* to 20\d\d-.* UTC"):
            looked(slice(60))
    looked.path.rename(looked.path.with_suffix(".bak"))
    with pytest.raises(UserError, match=r"AUSDT: data\.folder=.* has no file of its 15m candles"):
        looked(rest=False)
    assert looked(slice(102)) == [100, 101]


def test_a_gap_that_training_fills_is_filled_and_has_no_answers_of_its_own(looked, tmp_path):
    assert looked(slice(100)) == [99]
    rows = looked.path.read_text().splitlines()
    filling = Config.model_validate({"data": {"folder": str(looked.path.parent), "fill": 3, "horizon": 2}})
    feed = following.feed(filling, tmp_path / "filling")
    model = small_model()
    feed.fit({COIN: model})  # trained before models knew what was filled
    assert feed.fill == 0
    model.config = replace(model.config, fill=2)
    feed.fit({COIN: model})
    feed.used = 50
    looked.path.write_text("\n".join([*rows[:60], *rows[62:70], *rows[73:], ""]))
    opened = [int(row.split(",")[0]) for row in rows]
    moments = list(feed.new(COIN, opened[56], NOW))
    assert [moment.time for moment in moments] == [*opened[57:60], *opened[62:70], *opened[73:]]
    assert moments[3].input["candles"]["time"] == opened[13:63]
    assert moments[3].input["candles"]["close"][-3:-1] == [float(rows[59].split(",")[4])] * 2
    assert moments[3].outcome[0] == opened[60]
    assert moments[11].input["candles"]["time"] == opened[73:74]
    assert [each.outcome and each.outcome[0] for each in moments[11:15]] == [None, None, opened[73], opened[74]]
    feed.save()
    kept, _ = files.read(tmp_path / f"filling/candles/{COIN}-15m.feather", COIN, "15m", minimum_rows=1)
    assert kept.time.tolist() == [*opened[:60], *opened[62:70], *opened[73:]]


def test_a_file_that_begins_after_the_last_answer_tells_what_is_between(looked, capsys):
    assert looked(slice(100)) == [99]
    assert looked(slice(90, 102)) == [100, 101]
    assert not capsys.readouterr().err
    assert looked(slice(110, 112)) == [110, 111]
    said = capsys.readouterr().err
    assert said.startswith("AUSDT: the candles between 20")
    assert said.endswith("UTC are gone, and get no answer\n")


def test_a_file_that_begins_anew_with_candles_that_are_open_gets_no_answer_yet(looked):
    assert looked(slice(100)) == [99]
    times = [NOW // STEP * STEP + STEP * at for at in range(2)]
    looked.path.write_text("\n".join(["time,open,high,low,close,volume", *(f"{at},1,3,0.5,2,10" for at in times), ""]))
    assert looked() == []


def test_a_file_that_is_written_to_without_a_pause_is_read_after_a_while(looked, monkeypatch):
    assert looked(slice(100)) == [99]
    assert looked(slice(101), rest=False) == []
    monkeypatch.setattr(following, "PATIENCE", 0)
    assert looked(slice(102), rest=False) == [100, 101]


def test_a_broken_link_beside_the_files_is_passed_over(looked):
    (looked.path.parent / "BUSDT.csv").symlink_to("nowhere")
    assert looked(slice(100)) == [99]


def test_a_folder_is_listed_as_often_for_many_coins_as_for_few(tmp_path, monkeypatch):
    listings, in_folder = [], files.in_folder
    monkeypatch.setattr(files, "in_folder", lambda *given: listings.append(1) or in_folder(*given))

    def counted(number):
        market = tmp_path / str(number)
        for coin in range(number):
            write(market, f"A{coin}USDT", 1200)
        config = Config.model_validate({"data": {"folder": str(market), "lookback": 16}})
        feed, counts = following.feed(config, tmp_path / "own"), []
        for work in (
            config.data.inputs,
            lambda: data.prepare(config, tmp_path / f"prepared {number}"),
            lambda: [list(feed.new(coin, None, NOW)) for coin in feed.series],
        ):
            listings.clear()
            work()
            counts.append(len(listings))
        return counts

    assert counted(2) == counted(5) == [2, 3, 1]
