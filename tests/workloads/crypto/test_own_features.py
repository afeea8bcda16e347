"""Features of a user's own: causal by test, known by their file's hash, the same in training and in an answer."""

import json

import numpy as np
import pytest
import torch

from common.config import build
from common.disk.prepared import MANIFEST, folder_for
from common.errors import UserError
from exporters.onnx.cnn_lstm import random_candles
from models import io
from models.market import candle_features, own_features
from models.market.candles import COLUMNS
from pipelines.answers import trained
from pipelines.run.folder import Run
from pipelines.workloads.crypto import Config, data, task

SOUND = """
import numpy as np
MEMORY = 250

def features(candles):
    close = np.log(candles.close)
    slow = np.full(len(close), np.nan)
    slow[249:] = close[249:] - close[:-249]
    return {"drift_249": slow, "heat": candles.volume / candles.volume.clip(min=1e-9)}
"""
CANDLES = random_candles(0, 700, 900_000)


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(SOUND)
    return tmp_path


def config_of(*words):
    words = ["data.simulated_candles=3000", "data.symbols=[AAAUSDT]", "data.lookback=12", *words]
    return build(Config, {}, [*words, "data.features=mine.py:features", "model.coins=[AAAUSDT]"], "")


def test_they_stand_behind_the_default_ones_and_hold_where_candles_are_cut(here):
    own = own_features.load("mine.py:features")
    own.check(CANDLES)
    names, table = own_features.compute(CANDLES, own)
    assert names == (*candle_features.NAMES, "drift_249", "heat")
    np.testing.assert_array_equal(table[:, :-2], candle_features.compute(CANDLES))
    np.testing.assert_array_equal(own_features.compute(CANDLES, own, ["heat", "body"])[1][:, 0], table[:, -1])
    assert np.isfinite(table[249:]).all()


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("{'x': np.append(candles.close[1:], 0)}", "x of candle .* looks ahead: it changes when later candles"),
        ("{'x': candles.close / candles.close.mean()}", "looks ahead"),
        ("{'x': candles.close.cumsum()}", "x of candle .* depends on more than 174 candles: say so in that file"),
        ("{'body': candles.close}", r"returns body of shape \(700,\) for 700 .*; return .* no default feature's name"),
        ("{'4h:x': candles.close}", r"returns 4h:x of shape \(700,\) for 700 candles; return .*, without a colon"),
        ("{'x': candles.close[1:]}", r"returns x of shape \(699,\)"),
        ("candles.close[:2]", r"returns '\[.*'; return {NAME: a number for each candle}"),
        ("{}", r"returns '{}'; return {NAME"),
        ("{'x': candles.close.cumsum()}\nMEMORY = 0", "x of candle .* depends on more than 1 candles"),
    ],
)
def test_what_looks_ahead_or_too_far_back_is_refused(here, body, said):
    (here / "mine.py").write_text(f"import numpy as np\ndef features(candles):\n    return {body}\n")
    with pytest.raises(UserError, match=said):
        own_features.load("mine.py:features").check(CANDLES)


def test_a_feature_that_is_never_finite_is_named(here):
    (here / "mine.py").write_text("def features(candles):\n    return {'x': candles.close * float('inf')}\n")
    with pytest.raises(
        UserError, match=r"no window fits: 188 .*, but x is finite in 0 of 2\d{3} candles, the label kn"
    ):
        data.prepare(config_of(), here / "data")


def test_a_memory_that_is_one_candle_too_short_is_refused(here):
    (here / "mine.py").write_text(SOUND.replace("MEMORY = 250", "MEMORY = 249"))
    with pytest.raises(UserError, match=r"drift_249 of candle .* depends on more than 249 candles"):
        own_features.load("mine.py:features").check(CANDLES)


def test_a_file_or_a_function_that_there_is_not_is_named(here):
    with pytest.raises(UserError, match=r"data.features=mine.py:other: mine.py has no function other"):
        own_features.load("mine.py:other")
    with pytest.raises(UserError, match=r"there is no file 'my.py'; give default, or FILE.py:FUNCTION"):
        data.prepare(build(Config, {}, ["data.features=my.py:features"], ""), here / "data")


def test_a_folder_may_have_an_at_sign_in_its_name(here):
    (here / "anna@firm.com").mkdir()
    (here / "anna@firm.com/mine.py").write_text(SOUND)
    word = build(Config, {}, ["data.features=anna@firm.com/mine.py:features"], "").data.features
    own = own_features.load(word)
    assert word == f"anna@firm.com/mine.py:features@{own.sha256}"
    (here / "anna@firm.com/mine.py").write_text(TARGET)
    rule = build(Config, {}, ["data.label=anna@firm.com/mine.py:side"], "").data.label
    own_features.load(rule, "data.label")
    assert set(own_features.labelled(CANDLES, rule, 3, 0.003)) == {-1, 0, 1, 2}
    with pytest.raises(UserError, match=r"anna@firm\.com/mine\.py has changed"):
        own_features.load(word)


def test_a_model_answers_with_the_file_it_was_trained_with_or_not_at_all(here, monkeypatch):
    monkeypatch.setattr(own_features, "LOADED", {})
    config, folder = config_of(), here / "data"
    (folder / MANIFEST).parent.mkdir()
    (folder / MANIFEST).write_text(json.dumps(data.prepare(config, folder)))
    coin = data.load(folder, "AAAUSDT")
    assert coin.names[-2:] == ("drift_249", "heat")
    run = Run("crypto", "mine")
    run.keep_config(config)
    model = task.untrained(config, [coin], 0)
    assert model.config.own == {
        "word": "mine.py:features",
        "sha256": config.data.features.partition("@")[2],
        "memory": 250,
    }
    io.save(model, run.best)
    # What it scales for an answer is what training had.
    ends = coin.folds[0]["test"][:1]
    used = coin.candles.rows(slice(ends[0] - model.candles_needed + 1, ends[0] + 1))
    assert model.candles_needed == 250 + 12 - 1
    torch.testing.assert_close(
        model.scaled(used), torch.from_numpy(coin.scaled(0)[ends[0] - 11 : ends[0] + 1]), rtol=1e-5, atol=1e-5
    )
    given = {"coin": "AAAUSDT", "candles": {name: getattr(used, name).tolist() for name in COLUMNS}}

    def asked(known):
        return known.together([known.read(given)], {"now": "newest"})[0]

    own_features.LOADED.clear()
    alone = trained.of_folder("crypto", run.best, "cpu")
    with pytest.raises(UserError, match=r"needs mine.py:features, SHA-256 \w+: give --name RUN, or call models.market"):
        asked(alone)
    assert own_features.LOADED == {}  # a model's folder runs no code
    assert set(asked(trained.find("crypto", "mine", None, "cpu"))["probabilities"]) == {"SHORT", "NO_TRADE", "LONG"}
    # Another file is another data set, and no answer of the old model.
    (here / "mine.py").write_text(SOUND.replace('"heat"', '"warmth"'))
    assert folder_for("crypto", config_of().data, 2) != folder_for("crypto", config.data, 2)
    assert run.config(Config) == config
    with pytest.raises(UserError, match=r"mine.py has changed: .* bring that version back, or train again"):
        trained.find("crypto", "mine", None, "cpu")
    with pytest.raises(UserError, match=r"mine.py has changed"):
        data.prepare(run.config(Config), here / "again")


TARGET = """
import numpy as np
MEMORY = 50

def side(candles):
    close, found = candles.close, np.full(len(candles.close), np.nan)
    usual = np.full(len(close), np.nan)
    usual[49:] = np.lib.stride_tricks.sliding_window_view(candles.high / candles.low, 50).mean(1) - 1
    found[:-3] = np.sign((close[3:] / close[:-3] - 1) / usual[:-3] / 2).astype(float) * (
        np.abs(close[3:] / close[:-3] - 1) > usual[:-3])
    found[np.isnan(usual)] = np.nan
    return found
"""


def targeted(here, text=TARGET):
    (here / "target.py").write_text(text)
    words = ["data.simulated_candles=3000", "data.symbols=[AAAUSDT]", "data.lookback=12"]
    return build(Config, {}, [*words, "data.label=target.py:side", "model.coins=[AAAUSDT]"], "")


def test_a_target_of_ones_own_is_learnt_and_known_when_it_is_recalibrated(here):
    config, folder = targeted(here), here / "data"
    (folder / MANIFEST).parent.mkdir()
    (folder / MANIFEST).write_text(json.dumps(data.prepare(config, folder)))
    coin = data.load(folder, "AAAUSDT")
    moves, usual = coin.candles.close[3:] / coin.candles.close[:-3] - 1, coin.candles.high / coin.candles.low - 1
    for row in (200, 1000, 1500):
        beyond = abs(moves[row]) > usual[row - 49 : row + 1].mean()
        assert coin.labels[row] == 1 + np.sign(moves[row]) * beyond
    assert set(coin.labels[coin.folds[0]["test"]]) == {0, 1, 2}
    last = coin.candles.segments()[-1].stop
    assert (coin.labels[last - 3 : last] == -1).all()
    assert coin.facts["label"]["rule"] == config.data.label
    assert config.data.label.startswith("target.py:side@")
    run = Run("crypto", "targets")
    run.keep_config(config)
    model = task.untrained(config, [coin], 0)
    io.save(model, run.best)
    own_features.LOADED.clear()
    with pytest.raises(ValueError, match=r"needs target\.py:side"):
        own_features.labelled(coin.candles, **model.config.about["label"])
    trained.find("crypto", "targets", None, "cpu")
    np.testing.assert_array_equal(own_features.labelled(coin.candles, **model.config.about["label"]), coin.labels)
    (here / "target.py").write_text(TARGET + "\n")
    with pytest.raises(UserError, match=r"target.py has changed: .* bring that version back"):
        trained.find("crypto", "targets", None, "cpu")


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("np.sign(np.append(close[4:], [close[-1]] * 4) - close)", "looks more than data.horizon=3 candles ahead"),
        ("np.sign(close - close.mean())", "ahead: it changes when later candles are cut off"),
        ("close * 0 + 2", r"returns 2 to 2; return -1, 0, 1 or NaN"),
        ("close[1:]", r"returns target of shape"),
        ("close * np.nan", r"no window fits: 188 .* of 2\d{3} candles, the label known in 0$"),
        ("close * 0  # \nMEMORY = 500", "target.py:side depends on 500 candles, and a window on 185: a lower MEMORY"),
    ],
)
def test_a_target_may_look_ahead_no_further_than_the_horizon(here, body, said):
    text = f"import numpy as np\ndef side(candles):\n    close = candles.close\n    return {body}\n"
    config = targeted(here, text)
    with pytest.raises(UserError, match=said):
        data.prepare(config, here / "data")
