"""Preparation as a whole: candles in, tables and facts out, a bad coin left out alone."""

import json
import re
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from common.disk.files import sha256
from common.errors import UserError
from models.market.candles import VALUES
from pipelines.workloads.crypto import data as stage
from pipelines.workloads.crypto.candles import simulated
from pipelines.workloads.crypto.config import Config, Data, Model
from pipelines.workloads.crypto.splits import PARTS, Fold
from pipelines.workloads.crypto.task import members
from tests.workloads.crypto.disjoint import assert_disjoint, windows

COINS = ("BTCUSDT", "ETHUSDT", "SOLUSDT")
MADE = simulated.simulate(COINS, 2500, "15m", 0)


def config(**changed):
    """A config without its own checks, since `prepare` has checks too."""
    return Config.model_construct(data=Data.model_construct(**{"symbols": COINS, "simulated_candles": 2500, **changed}))


def write(folder, candles, name, rows=slice(None)):
    part = candles.rows(rows)
    frame = pd.DataFrame({"time": part.time, **{each: getattr(part, each) for each in VALUES}})
    frame.to_csv(folder / name, index=False)


@pytest.fixture
def files(tmp_path):
    folder = tmp_path / "files"
    folder.mkdir()
    for symbol in COINS:
        write(folder, MADE[symbol], f"{symbol}-15m.csv")
    return folder


@pytest.mark.parametrize("split", ["chronological", "walk_forward"])
def test_prepared_coins_are_loaded_again_with_parts_that_share_nothing(tmp_path, monkeypatch, split):
    facts = stage.prepare(config(split=split, folds=3, simulated_candles=4000), tmp_path)
    assert json.loads(json.dumps(facts, allow_nan=False)) == facts
    assert facts["failed"] == {}
    coins = {symbol: stage.load(tmp_path, symbol) for symbol in COINS}
    for fold in range({"chronological": 1, "walk_forward": 3}[split]):
        ends = {symbol: coin.folds[fold] for symbol, coin in coins.items()}
        times = {symbol: coin.candles.time for symbol, coin in coins.items()}
        assert_disjoint(times, Fold((0, 0, 0, 0), ends), 3, 60, 900_000)
        for symbol, coin in coins.items():
            counts = facts["coins"][symbol]["classes"][fold]
            for part in PARTS:
                assert sum(counts[part].values()) == len(coin.folds[fold][part]) > 0
            rows = np.unique(windows(coin.folds[fold]["train"], 60))
            np.testing.assert_allclose(coin.scaled(fold)[rows].mean(0), 0, atol=1e-3)
    monkeypatch.setattr(Path, "glob", None)  # which would list a folder of hundreds of coins for each of them
    coin = stage.load(tmp_path, "ETHUSDT")
    assert coin.candles.digest() == facts["coins"]["ETHUSDT"]["hash"]
    assert (coin.features.dtype, coin.labels.dtype) == (np.float32, np.int8)
    assert coin.facts["label"] == {"rule": "fixed", "horizon": 3, "threshold": 0.003}


def test_files_and_the_simulated_market_give_the_same_coins_and_preparing_twice_the_same_bytes(tmp_path, files):
    made, read, again = (tmp_path / name for name in ("made", "read", "again"))
    facts = stage.prepare(config(), made)
    stage.prepare(config(folder=str(files)), read)
    stage.prepare(config(), again)
    assert stage.load(read, "BTCUSDT").candles.digest() == facts["coins"]["BTCUSDT"]["hash"]
    written = {path.relative_to(made): path.read_bytes() for path in made.rglob("*") if path.is_file()}
    assert written == {path.relative_to(again): path.read_bytes() for path in again.rglob("*") if path.is_file()}


def test_the_order_of_features_is_stored_by_name_and_followed_when_loading(tmp_path):
    stage.prepare(config(symbols=("BTCUSDT",)), tmp_path)
    coin = stage.load(tmp_path, "BTCUSDT")
    page = json.loads((tmp_path / "BTCUSDT-15m.json").read_text())
    assert tuple(page["features"]) == coin.names
    page["features"] = page["features"][::-1]  # as if they had been sorted
    (tmp_path / "BTCUSDT-15m.json").write_text(json.dumps(page))
    turned = stage.load(tmp_path, "BTCUSDT")
    np.testing.assert_array_equal(turned.features, coin.features[:, ::-1])


def test_rows_without_a_future_belong_to_no_part(tmp_path):
    stage.prepare(config(horizon=7), tmp_path)
    for symbol in COINS:
        coin = stage.load(tmp_path, symbol)
        assert (coin.labels == -1).sum() == 7 * len(coin.candles.segments())
        used = np.concatenate([coin.folds[0][part] for part in PARTS])
        assert (coin.labels[used] >= 0).all()


def test_unusable_coins_are_listed_and_do_not_stop_the_others(tmp_path, files):
    names = [*COINS, "XRPUSDT", "ADAUSDT", "BNBUSDT", "DOGEUSDT", "LTCUSDT", "PAXUSDT"]
    still = {name: np.ones(len(MADE["BTCUSDT"])) for name in VALUES}
    write(files, replace(MADE["BTCUSDT"], **still), "PAXUSDT-15m.csv")
    write(files, MADE["BTCUSDT"], "XRPUSDT-15m.csv", slice(0, 30))
    (files / "ADAUSDT-15m.csv").touch()
    (files / "BNBUSDT-15m.parquet").write_bytes(b"no parquet")
    write(files, MADE["BTCUSDT"], "DOGEUSDT-15m.csv", np.flatnonzero(np.arange(2400) % 60))
    facts = stage.prepare(config(symbols=tuple(names), folder=str(files)), tmp_path / "out")
    assert facts["symbols"] == list(COINS)
    reasons = {
        "XRPUSDT": "XRPUSDT: 30 rows are too few, 500 are needed",
        "ADAUSDT": "the file is empty",
        "BNBUSDT": "not a parquet file",
        "DOGEUSDT": "no window fits: 236 candles without a gap are needed",
        "LTCUSDT": "no file of its 15m candles",
        "PAXUSDT": "PAXUSDT: its price never moves, so there is nothing to learn; leave the coin out",
    }
    assert facts["failed"].keys() == reasons.keys()
    for symbol, reason in reasons.items():
        assert reason in facts["failed"][symbol]
        assert "\n" not in facts["failed"][symbol]
    with pytest.raises(UserError, match="XRPUSDT is not among the prepared coins"):
        stage.load(tmp_path / "out", "XRPUSDT")


@pytest.mark.parametrize(
    ("rows", "shift"), [(slice(0, 800), -10_000), pytest.param(slice(1600, None), 0, marks=pytest.mark.slow)]
)
def test_a_coin_that_ended_or_was_listed_late_is_cut_by_its_own_time(tmp_path, files, rows, shift):
    alone = stage.prepare(config(folder=str(files)), tmp_path / "alone")
    other = MADE["BTCUSDT"].rows(np.arange(len(MADE["BTCUSDT"]))[rows])  # a copy
    other.time[:] += shift * 900_000
    write(files, other, "XRPUSDT-15m.csv")
    settings = config(symbols=("XRPUSDT", *COINS), folder=str(files))
    facts = stage.prepare(settings, tmp_path / "all")
    assert facts["failed"] == {}
    assert facts["folds"] == alone["folds"]
    assert {symbol: facts["coins"][symbol] for symbol in COINS} == alone["coins"]
    coin = stage.load(tmp_path / "all", "XRPUSDT")
    assert_disjoint({"XRPUSDT": coin.candles.time}, Fold((0, 0, 0, 0), {"XRPUSDT": coin.folds[0]}), 3, 60, 900_000)
    tested = coin.candles.time[coin.folds[0]["test"]]
    (_, _, since, end), *_ = alone["coins"]["BTCUSDT"]["cuts"]
    assert ((tested >= since) & (tested < end)).all() != bool(shift)  # the others' test holds that of a late one
    first = datetime.fromtimestamp(facts["coins"]["XRPUSDT"]["cuts"][0][0] / 1000, UTC)
    assert f"cut by their own time: XRPUSDT ({first:%Y-%m-%dT%H:%M:%SZ} to " in facts["note"]
    # A model of all coins leaves it to a model of its own.
    (tmp_path / "all/manifest.json").write_text(json.dumps(facts))
    pooled = Config.model_construct(data=settings.data, model=Model(pooled=True))
    found = {name: member.symbols for name, member in members(pooled, tmp_path / "all").items()}
    assert found == {"all": COINS, "XRPUSDT": ("XRPUSDT",)}


def test_a_coin_that_its_own_time_leaves_no_part_of_is_named_with_its_dates(tmp_path, files):
    write(files, MADE["BTCUSDT"], "XRPUSDT-15m.csv", slice(0, 530))
    facts = stage.prepare(config(symbols=(*COINS, "XRPUSDT"), folder=str(files)), tmp_path / "all")
    assert re.search(
        r"XRPUSDT: its \d+ windows \(2024-.* to 2024-.*\) are too few to train", facts["failed"]["XRPUSDT"]
    )


def test_if_no_coin_can_be_used_all_reasons_are_given(tmp_path, files):
    (files / "BTCUSDT-15m.csv").write_text("")
    with pytest.raises(UserError, match=r"none of the 2 coins can be used:\n.*BTCUSDT: the file is empty.*\n.*XRPUSDT"):
        stage.prepare(config(symbols=("BTCUSDT", "XRPUSDT"), folder=str(files)), tmp_path / "out")
    with pytest.raises(UserError, match=r"^the only coin cannot be used:\n.*BTCUSDT: the file is empty"):
        stage.prepare(config(symbols=("BTCUSDT",), folder=str(files)), tmp_path / "out")
    with pytest.raises(UserError, match=r"data\.simulated_candles=400 left"):
        stage.prepare(config(simulated_candles=400), tmp_path / "out")


def test_the_files_of_named_coins_are_inputs(files):
    made = config(symbols=("BTCUSDT", "eth/usdt"), folder=str(files))
    assert made.data.coins() == ["BTCUSDT", "ETHUSDT"]
    assert made.data.inputs() == [files / "BTCUSDT-15m.csv", files / "ETHUSDT-15m.csv"]
    assert config().data.inputs() == []


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"symbols": ()}, r"data\.symbols names no coin"),
        ({"symbols": ("BTCUSDT", "BTC/USDT")}, r"data\.symbols names BTCUSDT twice"),
        ({"symbols": ("../etc",)}, "'../etc' is not the name of a coin"),
        ({"timeframe": "15"}, r"data\.timeframe=15 is not known"),
        ({"split": "walk_forward", "folds": 1}, r"data\.folds=1 must be 2 or more"),
        ({"folder": "missing"}, r"data\.folder=missing: no such folder"),
    ],
)
def test_invalid_settings_are_refused_once_and_in_one_line(tmp_path, changed, message):
    with pytest.raises(UserError, match=message) as error:
        stage.prepare(config(**changed), tmp_path)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"source": "files"}, r"data\.source=files needs data\.folder"),
        ({"source": "simulate", "folder": "x"}, r"data\.folder=x has no effect with data\.source=simulate"),
    ],
)
def test_a_folder_goes_with_files_alone(changed, message):
    with pytest.raises(ValueError, match=message):
        Data(**changed)


def test_candles_that_changed_since_they_were_prepared_are_refused(tmp_path):
    stage.prepare(config(symbols=("BTCUSDT",)), tmp_path)
    page = json.loads((tmp_path / "BTCUSDT-15m.json").read_text())
    (tmp_path / "BTCUSDT-15m.json").write_text(json.dumps({**page, "hash": "0" * 64}))
    with pytest.raises(UserError, match="the candles have changed since preparation"):
        stage.load(tmp_path, "BTCUSDT")


def renewed(files, tmp_path, **changed):
    """Prepare the files anew from what tmp_path/old holds; returns the facts, and what they are of each coin."""
    settings = config(folder=str(files), symbols=None, **changed)
    facts = stage.prepare(settings, tmp_path / "new", tmp_path / "old")
    return facts, {symbol: Config(model={"coins": (symbol,)}).content(facts) for symbol in facts["symbols"]}


@pytest.fixture
def old(tmp_path, files):
    """The manifest of the coins in tmp_path/old, and the content of each."""
    settings = config(folder=str(files), symbols=None)
    (tmp_path / "old").mkdir()
    facts = stage.prepare(settings, tmp_path / "old")
    facts["inputs"] = {str(path): sha256(path) for path in settings.data.inputs()}
    (tmp_path / "old/manifest.json").write_text(json.dumps(facts))
    return facts, {symbol: Config(model={"coins": (symbol,)}).content(facts) for symbol in facts["symbols"]}


def of_coin(folder, symbol):
    return {path.name: path.read_bytes() for path in folder.rglob(f"{symbol}-15m*/*")} | {
        "page": (folder / f"{symbol}-15m.json").read_bytes()
    }


def test_a_repaired_a_longer_and_a_new_file_redo_these_coins_alone(tmp_path, files, old):
    longer = simulated.simulate(COINS, 3000, "15m", 0)["SOLUSDT"]
    grown = longer.time[-1] - MADE["SOLUSDT"].time[-1]
    write(files, MADE["ETHUSDT"], "ETHUSDT-15m.csv", slice(1, None))
    write(files, longer, "SOLUSDT-15m.csv")
    write(files, MADE["ETHUSDT"], "ADAUSDT-15m.csv")
    facts, content = renewed(files, tmp_path)
    assert facts["symbols"] == ["ADAUSDT", *COINS]
    assert [symbol for symbol in COINS if content[symbol] == old[1][symbol]] == ["BTCUSDT"]
    assert of_coin(tmp_path / "new", "BTCUSDT") == of_coin(tmp_path / "old", "BTCUSDT")
    before, after = (each["coins"] for each in (old[0], facts))
    assert facts["folds"] == old[0]["folds"]  # those of the coins that stay
    for symbol in ("ETHUSDT", "ADAUSDT"):
        assert after[symbol]["cuts"] == before["BTCUSDT"]["cuts"]
    ((start, *_, end),) = before["SOLUSDT"]["cuts"]
    ((again, validation, test, later),) = after["SOLUSDT"]["cuts"]
    assert (again, later) == (start, end + grown)
    assert [validation - start, test - start] == pytest.approx(
        [0.7 * (later - start), 0.85 * (later - start)], rel=1e-3
    )
    coin = stage.load(tmp_path / "new", "SOLUSDT")
    assert_disjoint({"SOLUSDT": coin.candles.time}, Fold((0, 0, 0, 0), {"SOLUSDT": coin.folds[0]}), 3, 60, 900_000)


def test_a_file_that_says_the_same_in_other_bytes_changes_nothing_and_one_that_is_gone_neither(tmp_path, files, old):
    text = (files / "BTCUSDT-15m.csv").read_text()
    (files / "BTCUSDT-15m.csv").write_text(text.replace(",", ";"))
    (files / "SOLUSDT-15m.csv").unlink()
    facts, content = renewed(files, tmp_path)
    assert content == old[1]
    assert facts["symbols"] == list(COINS)
    assert of_coin(tmp_path / "new", "SOLUSDT") == of_coin(tmp_path / "old", "SOLUSDT")


def test_a_file_that_was_spoilt_makes_its_coin_fail_and_a_mended_one_brings_it_back(tmp_path, files, old):
    whole = (files / "BTCUSDT-15m.csv").read_text()
    (files / "BTCUSDT-15m.csv").write_text(whole[:100])
    facts, _ = renewed(files, tmp_path)
    assert facts["symbols"] == ["ETHUSDT", "SOLUSDT"]
    assert "too few" in facts["failed"]["BTCUSDT"]
    (tmp_path / "new/manifest.json").write_text(json.dumps({**facts, "inputs": old[0]["inputs"]}))
    (files / "BTCUSDT-15m.csv").write_text(whole)
    (tmp_path / "old").rename(tmp_path / "first")
    (tmp_path / "new").rename(tmp_path / "old")
    facts, content = renewed(files, tmp_path)
    assert (sorted(facts["symbols"]), facts["failed"]) == (sorted(COINS), {})
    assert content == old[1]


def test_a_model_learns_from_the_newest_rows_of_a_window_alone(tmp_path):
    stage.prepare(config(symbols=("BTCUSDT",)), tmp_path)
    coin = stage.load(tmp_path, "BTCUSDT")
    rows = coin.folds[0]["train"]
    parts = coin.newest(300).folds[0]
    np.testing.assert_array_equal(parts["train"], rows[rows > rows[-1] - 300])
    assert 0 < len(parts["train"]) <= 300
    for part in ("validation", "test"):
        np.testing.assert_array_equal(parts[part], coin.folds[0][part])
    assert coin.newest(None) is coin
