"""Other coins' candles and longer timeframes as inputs: found where they matter, and never from the future."""

import json
import re

import numpy as np
import pandas as pd
import pytest
import torch

from common.config import build
from common.disk.prepared import MANIFEST
from common.errors import UserError
from exporters.onnx.cnn_lstm import random_candles
from models import io
from models.market import candle_features, other_candles, own_features
from models.market.candles import COLUMNS, VALUES, Candles
from pipelines.answers import trained
from pipelines.run.folder import Run
from pipelines.workloads.crypto import Config, data, experts, following, input_files, task
from pipelines.workloads.crypto.candles import files
from pipelines.workloads.crypto.splits import PARTS
from pipelines.workloads.crypto.windows import below_each_other, pooled

STEP = 900_000
OTHERS = ("1h", "BBBUSDT")
AAA, BBB = random_candles(1, 900, STEP), random_candles(2, 900, STEP)


def named(candles, symbol):
    return Candles(symbol, candles.timeframe_ms, **candles.columns())


def both(rows=slice(None), absent=()):
    """AAA with BBB beside it, of which some candles are missing."""
    there = np.delete(np.arange(900), absent)
    return other_candles.beside(named(AAA, "AAAUSDT").rows(rows), {"BBBUSDT": named(BBB, "BBBUSDT").rows(there)})


def test_features_stand_behind_the_default_ones_and_are_those_of_the_others():
    names, table = own_features.compute(both(), None, others=OTHERS)
    assert names[:22] == candle_features.NAMES
    assert names[22:] == tuple(f"{other}:{name}" for other in OTHERS for name in other_candles.NAMES)
    theirs = candle_features.compute(BBB, other_candles.NAMES)
    np.testing.assert_array_equal(table[:, 29:], theirs)
    # Of four candles each, the newest of which is the row's own.
    hour = names.index("1h:log_return_1")
    np.testing.assert_allclose(table[199:, hour], np.log(AAA.close[199:] / AAA.close[195:-4]))
    np.testing.assert_array_equal(own_features.compute(both(), None, names[22:], OTHERS)[1], table[:, 22:])


def test_hours_are_those_that_an_exchange_gives_at_the_full_hour():
    table = other_candles.columns(AAA, ["1h"])
    hours = AAA.time // 3_600_000
    frame = pd.DataFrame({name: getattr(AAA, name) for name in COLUMNS}).assign(hour=hours).groupby("hour")
    whole = frame.agg({"time": "first", "open": "first", "high": "max", "low": "min", "close": "last", "volume": "sum"})
    full = (frame.size() == 4).to_numpy()
    made = Candles("", 3_600_000, *(whole[name].to_numpy()[full] for name in COLUMNS))
    ends = np.searchsorted(AAA.time, made.time + 3 * STEP)
    expected = candle_features.compute(made, other_candles.NAMES)
    found = np.stack(list(table.values()), 1)[ends]
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("row", [250, 500, 899])
def test_a_row_knows_no_later_candle_and_none_before_its_memory(row):
    whole = own_features.compute(both(), None, others=OTHERS)[1]
    memory = other_candles.memory(OTHERS, STEP)
    assert memory == 200
    for rows in (slice(0, row + 1), slice(row + 1 - memory, row + 1)):
        cut = own_features.compute(both(rows), None, others=OTHERS)[1]
        np.testing.assert_allclose(cut[-1], whole[row], rtol=1e-6, atol=1e-9)
        assert np.isfinite(cut[-1]).all()


def test_a_candle_that_one_of_them_lacks_is_a_gap_of_both():
    found = both(absent=[400, 401])
    assert [len(found.rows(each)) for each in found.segments()] == [400, 498]
    np.testing.assert_array_equal(found.context["BBBUSDT"].time, found.time)
    _, table = own_features.compute(found, None, others=OTHERS)
    assert np.isnan(table[400 : 400 + 199]).any(1).all()
    assert np.isfinite(table[400 + 199 :]).all()
    assert found.digest() != both().digest() != AAA.digest()
    with pytest.raises(UserError, match=r"AAAUSDT and BBBUSDT, of data\.context, have no candles at the same times"):
        other_candles.beside(named(AAA, "AAAUSDT").rows(slice(0, 9)), {"BBBUSDT": BBB.rows(slice(9, 20))})


@pytest.mark.parametrize("timeframe", ["5m", "4d", "x"])
def test_timeframes_that_are_no_multiple_are_refused(timeframe):
    with pytest.raises(UserError, match=rf"timeframes: {timeframe} is no multiple of 15m; give some of 15m, 30m, 1h"):
        build(Config, {}, [f"data.timeframes=[{timeframe}]"], "")


def test_candles_of_no_length_have_no_longer_ones():
    with pytest.raises(UserError, match=r"1h is no multiple of 0 min; leave it out$"):
        other_candles.factor("1h", 0)  # as a model's folder may have it


def following_coin(num, seed, lag=5):
    """BBB, a random walk, and AAA, whose returns repeat 0.7 of BBB's `lag` candles before."""
    generator = np.random.default_rng(seed)
    theirs, noise = 0.004 * generator.standard_normal((2, num))
    own = 0.7 * np.concatenate([np.zeros(lag), theirs[:-lag]]) + 0.7 * noise
    return {"AAAUSDT": candles_of(own, "AAAUSDT"), "BBBUSDT": candles_of(theirs, "BBBUSDT")}


def candles_of(returns, symbol):
    close = 100 * np.exp(np.cumsum(returns))
    open = np.r_[100.0, close[:-1]]
    volume = np.ones(len(close))
    time = 1_600_000_200_000 + STEP * np.arange(len(close))
    return Candles(symbol, STEP, time, open, np.maximum(open, close), np.minimum(open, close), close, volume)


def write(folder, candles):
    folder.mkdir(exist_ok=True)
    frame = pd.DataFrame({"time": candles.time, **{name: getattr(candles, name) for name in VALUES}})
    frame.to_csv(folder / f"{candles.symbol}-15m.csv", index=False)


@pytest.fixture
def market(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    coins = following_coin(3000, 0)
    for candles in coins.values():
        write(tmp_path / "candles", candles)
    return coins


def prepared(*words):
    words = ["data.folder=candles", "data.lookback=12", "data.symbols=[AAAUSDT]", "model.coins=[AAAUSDT]", *words]
    config = build(Config, {}, words, "")
    folder = config.data.candles_folder.parent / f"data-{abs(hash(tuple(words)))}"
    folder.mkdir()
    (folder / MANIFEST).write_text(json.dumps(data.prepare(config, folder)))
    return config, folder


def gained(word):
    """What the linear expert gains on the shares of the classes, in nats."""
    config, folder = prepared(word)
    coin = data.load(folder, "AAAUSDT")
    model = task.untrained(config, [coin], 0)
    train, validation, test = (pooled([coin], 0, part, model.stretch) for part in PARTS)
    moves = task.horizon_moves(coin, config.data.horizon, model)
    experts.fit_linear(model, train, validation, torch.from_numpy(below_each_other([moves], model.stretch)))
    (logs,) = experts.over(test, lambda *given: (model.linear(*given),))
    labels = test.labels[experts.rows_of(test)]
    shares = torch.bincount(labels, minlength=3) / len(labels)
    return float(logs.gather(1, labels[:, None]).mean() - (shares * shares.log()).sum())


@pytest.mark.slow
def test_a_coin_that_follows_another_is_found_with_it_and_not_without(market, monkeypatch):
    monkeypatch.setattr(experts, "PENALTIES", (4e-3,))
    assert gained("data.context=[]") < 0.02
    assert gained("data.context=[bbb/usdt]") > 0.15


def test_answers_of_files_and_feeds_are_what_training_had(market, tmp_path):
    config, folder = prepared("data.context=[BBBUSDT]", "data.timeframes=[1h]")
    coin = data.load(folder, "AAAUSDT")
    assert coin.facts["context"] == list(coin.candles.context) == ["BBBUSDT"]
    run = Run("crypto", "mine")
    run.keep_config(config)
    model = task.untrained(config, [coin], 0)
    assert (model.config.others, model.config.context) == (OTHERS, ("BBBUSDT",))
    assert model.candles_needed == 200 + 12 - 1
    for value in model.state_dict().values():
        if value.is_floating_point():
            value.copy_(0.1 * torch.randn(value.shape, generator=torch.Generator().manual_seed(0)))
    model.check()
    io.save(model, run.best)
    ends = coin.folds[0]["test"][-1]
    used = coin.candles.rows(slice(ends - 210, ends + 1))
    rows = torch.from_numpy(coin.scaled(0)[ends - 11 : ends + 1])
    torch.testing.assert_close(model.scaled(used), rows, rtol=1e-4, atol=1e-4)
    expected = model.eval()(rows[None])[0, -1].softmax(-1)

    known = trained.find("crypto", "mine", None, "cpu")
    for candles in market.values():
        write(tmp_path / "cut", candles.rows(slice(0, ends + 1)))
    (given,) = input_files.read([tmp_path / "cut/AAAUSDT-15m.csv"])
    from_file_input = input_files.fitted(given, [model])
    (from_file,) = known.together([known.asked(given)], {"now": "newest"})
    torch.testing.assert_close(torch.tensor(list(from_file["probabilities"].values())), expected, rtol=0, atol=1e-5)

    opened = following.feed(config, tmp_path / "follow")
    opened.fit({"AAAUSDT": model})
    last = int(coin.candles.time[ends])
    moment = next(opened.new("AAAUSDT", last - STEP, last + 2 * STEP))
    assert moment.time == last
    (from_feed,) = known.together([known.read(moment.input)], {"now": "newest"})
    assert from_feed["probabilities"] == pytest.approx(from_file["probabilities"], abs=1e-6)
    list(opened.new("BBBUSDT", last - STEP, last + 2 * STEP))
    assert opened.strangeness(model, "AAAUSDT", last - STEP, last).keys() == {last}
    (itself,) = opened.new("BBBUSDT", last - STEP, last + STEP)
    assert itself.input["context"] == {"BBBUSDT": itself.input["candles"]}
    opened.save()
    assert sorted(path.name for path in (tmp_path / "follow/candles").iterdir()) == [
        "AAAUSDT-15m.feather",
        "BBBUSDT-15m.feather",
    ]

    # Without the other coin there is no answer, nor where it has not closed yet.
    (alone,) = known.together([known.read({**from_file_input, "context": {}})], {"now": "newest"})
    assert alone == {"error": "this model takes the candles of BBBUSDT, too; give them as context"}
    write(tmp_path / "cut", market["BBBUSDT"].rows(slice(0, ends)))
    input_files._beside.cache_clear()
    (late,) = known.together([known.asked(given)], {"now": "newest"})
    assert re.match(r"BBBUSDT, as context, lacks the candle of 20.*; 211 without a gap", late["error"])
    (tmp_path / "cut/BBBUSDT-15m.csv").unlink()
    input_files._beside.cache_clear()
    with pytest.raises(UserError, match=r"BBBUSDT: data.folder=.* has no file of its 15m candles"):
        known.asked(given)
    # Exports compute features by this alone.
    with pytest.raises(ValueError, match=r"there is no feature 1h:log_return_1, .* here: your own, and those of other"):
        candle_features.compute(coin.candles, model.config.features)


def test_a_change_of_the_other_coin_prepares_anew(market, tmp_path):
    config, folder = prepared("data.context=[BBBUSDT]")
    kept = json.loads((folder / MANIFEST).read_text())
    kept["inputs"] = {str(path): data.sha256(path) for path in config.data.inputs()}
    (folder / MANIFEST).write_text(json.dumps(kept))
    assert [path.name for path in config.data.inputs()] == ["AAAUSDT-15m.csv", "BBBUSDT-15m.csv"]
    assert data._unchanged(config.data, kept, files.finder(config.data.candles_folder)) == ["AAAUSDT"]
    write(tmp_path / "candles", market["BBBUSDT"].rows(slice(0, -1)))
    assert data._unchanged(config.data, kept, files.finder(config.data.candles_folder)) == []
    again = tmp_path / "again"
    again.mkdir()
    facts = data.prepare(config, again, folder)
    assert facts["coins"]["AAAUSDT"]["hash"] != kept["coins"]["AAAUSDT"]["hash"]
    assert facts["coins"]["AAAUSDT"]["checks"]["without_context"] == 1
    assert facts["note"] == ""
    write(tmp_path / "candles", market["BBBUSDT"].rows(slice(0, 2000)))  # as one that has ended
    note = data.prepare(config, tmp_path / "third")["note"]
    assert note == "candles left out, as coins of data.context lack them: AAAUSDT (1,000)"
