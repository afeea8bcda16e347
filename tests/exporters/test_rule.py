"""The rule of the evaluation in every answer: predict, serve, page and strategy."""

import json
import subprocess
from dataclasses import replace

import pytest
import torch

from exporters import __main__ as exporters
from exporters.onnx import cnn_lstm
from exporters.onnx.cnn_lstm import random_candles
from models import io
from models.market.candles import COLUMNS
from models.market.rule import NEVER
from pipelines.answers import trained
from pipelines.server.limits import Limits
from tests.exporters.test_to_freqtrade import ABOUT, frame_of, strategy_of, with_rule
from tests.exporters.web.models import MODELS, asked
from tests.server.test_server import ask, served

CANDLES = random_candles(3, 300, MODELS["crypto"]().config.timeframe_ms)


@pytest.fixture
def model():
    made = MODELS["crypto"]()
    made.config = replace(made.config, about=ABOUT)
    return made


def signal_of(folder, **settings):
    given = {"coin": None, "candles": {name: getattr(CANDLES, name).tolist() for name in COLUMNS}}
    known = trained.of_folder("crypto", folder, "cpu")
    (answer,) = known.together([known.read(given)], {"now": "newest", **settings})
    return answer


def test_answers_follow_the_rule_unless_a_threshold_is_asked_for(tmp_path, model):
    io.save(model, tmp_path)
    before = signal_of(tmp_path)
    assert before["verdict"] == NEVER
    likeliest = max(before["probabilities"], key=before["probabilities"].get)
    assert before["signal"] == likeliest
    side = max(("SHORT", "LONG"), key=before["probabilities"].get)
    for threshold, expected in ((None, "NO_TRADE"), (0.01, side), (1.0, "NO_TRADE")):
        with_rule(model, tmp_path, threshold)
        found = signal_of(tmp_path)
        assert found["signal"] == expected
        assert found["headline"] == "0 of 2 coins pay their costs: no trade"
        assert ("reason" in found) == (expected == "NO_TRADE")
        why = f"from {threshold} on, best on validation; the verdict is the test's"
        assert found.get("signal_is") == (why if expected == side else None)
        assert threshold is None or found.get("reason") in (None, "no side reaches 1, the best threshold")
        assert found["probabilities"] == before["probabilities"]
        assert signal_of(tmp_path, threshold=0.01)["signal"] == side
        assert "signal_is" not in signal_of(tmp_path, threshold=0.01)
    with torch.no_grad():
        model.location.add_(0.1)
    io.save(model, tmp_path)
    assert signal_of(tmp_path)["verdict"] == NEVER  # these weights were not evaluated


def test_answers_are_corrected_by_the_newest_labels_and_say_where_candles_do_not_reach_back(tmp_path, model):
    io.save(model, tmp_path)
    before = signal_of(tmp_path)
    with_rule(model, tmp_path, 0.4, recalibration=40)
    found, known = signal_of(tmp_path), io.load(tmp_path)
    assert "recalibration" not in before
    assert found["recalibration"] == "the last 40 labels"
    assert found["probabilities"] != before["probabilities"]
    assert sum(found["probabilities"].values()) == pytest.approx(1)
    columns = {name: getattr(CANDLES, name) for name in COLUMNS}
    newest = int(CANDLES.time[-1]) + known.config.timeframe_ms
    whole = known.probabilities(columns, None, newest)[-1].tolist()
    assert list(found["probabilities"].values()) == pytest.approx(whole, abs=1e-6)
    with_rule(model, tmp_path, 0.4, recalibration=400)
    used = io.load(tmp_path).candles_used()
    left = 400 - used + len(CANDLES)
    assert signal_of(tmp_path)["recalibration"] == f"{left} of 400 labels, as there are 300 of {used} candles"


@pytest.mark.parametrize("content", ["{", '{"weights": 3}', "[]", '{"weights": "", "headline": "", "coins": {}}'])
def test_a_damaged_rule_is_one_error(tmp_path, model, content):
    io.save(model, tmp_path)
    (tmp_path / "rule.json").write_text(content)
    with pytest.raises(ValueError, match=r"rule.json is damaged .*; evaluate the run again"):
        io.load(tmp_path)


def test_an_export_keeps_the_rule_and_its_card_begins_with_the_verdict(tmp_path, model):
    folder = tmp_path / "crypto/one/model/best"
    io.save(model, folder)
    with_rule(model, folder, None)
    earlier = (folder / "rule.json").read_text().replace('"threshold"', '"temperature": 1.0, "threshold"')
    (folder / "rule.json").write_text(earlier)
    exporters.export("safetensors", tmp_path / "crypto/one", "best", None)
    out = tmp_path / "crypto/one/exports/safetensors"
    assert io.load(out).rule == io.load(folder).rule
    assert "temperature" not in (out / "rule.json").read_text()
    said = (out / "README.md").read_text()
    assert "## Verdict\n\n**0 of 2 coins pay their costs: no trade**" in said
    assert "NO_TRADE: not trading was best on validation" in said


@pytest.mark.slow
def test_a_coin_without_a_threshold_is_traded_nowhere(tmp_path, model, monkeypatch, logged):
    monkeypatch.setattr(cnn_lstm, "FRESH", 2)
    run = tmp_path / "crypto/one"
    folder = run / "model/best"
    io.save(model, folder)
    with_rule(model, folder, None)
    columns = {name: getattr(CANDLES, name).tolist() for name in COLUMNS}
    given = {"coin": "AAAUSDT", "candles": columns}
    with served([f"crypto={folder}"], Limits(body_bytes=200_000, seconds=20)) as port:
        status, answer = ask(port, "/runs/crypto/best/predict", {"inputs": [given], "settings": {"now": "newest"}})
    assert status == 200, answer
    exporters.export("web", run, "best", None)
    words = asked(run / "exports/web/index.html", [["predict", given]])
    page = json.loads(subprocess.run(words, capture_output=True, text=True, check=True, timeout=600).stdout)
    found = [signal_of(folder), *answer["outputs"], *page["answers"]]
    for each in found:
        assert (each["signal"], each["reason"]) == ("NO_TRADE", "not trading was best on validation")
        assert each["headline"] == "0 of 2 coins pay their costs: no trade"
    exporters.export("freqtrade", run, "best", None)
    strategy = strategy_of(run / "exports/freqtrade", monkeypatch)
    (coin,) = model.config.coins
    assert not strategy.populate_indicators(frame_of(CANDLES), {"pair": coin})["signal"].any()
    assert f"{coin}: NO_TRADE: not trading was best on validation" in logged()


@pytest.mark.parametrize(
    ("threshold", "told"),
    [
        (0.9, {"signal": "NO_TRADE", "reason": "no side reaches 0.9, the best threshold"}),
        (0.01, {"signal_is": "from 0.01 on, best on validation; the verdict is the test's"}),
    ],
)
def test_a_page_says_why_a_candle_is_not_traded_and_by_what_rule_it_is(tmp_path, model, threshold, told):
    run = tmp_path / "crypto/one"
    io.save(model, run / "model/best")
    with_rule(model, run / "model/best", threshold)
    exporters.export("web", run, "best", None)
    columns = {name: getattr(CANDLES, name).tolist() for name in COLUMNS}
    words = asked(run / "exports/web/index.html", [["predict", {"coin": "AAAUSDT", "candles": columns}]])
    page = json.loads(subprocess.run(words, capture_output=True, text=True, check=True, timeout=600).stdout)
    for answer in (*page["answers"], signal_of(run / "model/best")):
        assert {name: answer[name] for name in told} == told


def test_a_page_says_that_it_does_not_recalibrate(tmp_path, model):
    run = tmp_path / "crypto/one"
    io.save(model, run / "model/best")
    own = signal_of(run / "model/best")["probabilities"]
    with_rule(model, run / "model/best", 0.4, recalibration=40)
    exporters.export("web", run, "best", None)
    columns = {name: getattr(CANDLES, name).tolist() for name in COLUMNS}
    words = asked(run / "exports/web/index.html", [["predict", {"coin": "AAAUSDT", "candles": columns}]])
    page = json.loads(subprocess.run(words, capture_output=True, text=True, check=True, timeout=600).stdout)
    assert page["difference"] < 1e-5
    (answer,) = page["answers"]
    assert answer["recalibration"].startswith("none in this page")
    assert answer["probabilities"] == pytest.approx(own, abs=1e-5)
