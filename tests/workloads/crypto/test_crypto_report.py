"""Page of a run: all coins in order of evidence with their pictures, and reasons for those that are missing."""

import json

import pytest
from matplotlib.figure import Figure

from pipelines.engine.run import Run
from pipelines.report import page as report
from pipelines.report import tables
from pipelines.workloads.crypto.evaluation import evaluate
from pipelines.workloads.crypto.report import MOST_OPEN, sections
from tests.workloads.crypto.standin import CPU, fitted, map_items, prepared


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """An evaluated run of two coins, and a third coin without a model."""
    folder = tmp_path_factory.mktemp("reported")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        yield evaluated_run(folder)


def evaluated_run(folder):
    config = prepared(folder / "data", symbols=("AAAUSDT", "BBBUSDT", "CCCUSDT"), simulated_candles=2500)
    models = fitted(config, folder / "data")
    del models["CCCUSDT"]
    run = Run("crypto", "default")
    run.begin(config, 1, {})
    for entry in ({"step": 1, "train/loss": 1.1}, {"step": 2, "train/loss": 1.0, "val/log_loss": 1.2}):
        run.member("AAAUSDT").folder.mkdir(parents=True, exist_ok=True)
        run.member("AAAUSDT").record(entry)
    evaluation, *_ = evaluate(config, models, folder / "data", CPU, map_items)
    kept = report.keep(run, [evaluation])
    members = {"CCCUSDT": {"state": "failed", "reason": "loss is <nan> at step 7"}}
    (run.folder / "members.json").write_text(json.dumps(members))
    return config, models, kept, run


@pytest.fixture(scope="module")
def shown(run):
    return sections(*run)


def rewritten(run, num):
    """Return the same run with `num` copies of its first coin."""
    config, models, _, old = run
    new = Run("crypto", "many")
    new.begin(config, 1, {})
    summary = json.loads((old.evaluations / "test.json").read_text())
    page = json.loads((old.evaluations / "test" / "AAAUSDT.json").read_text())
    names = [f"A{number}USDT" for number in range(num)]
    summary["table"] = [{**summary["table"][0], "coin": name} for name in names]
    summary |= dict.fromkeys(names, summary["AAAUSDT"])
    summary["files"] = [f"test/{name}.json" for name in names]
    new.evaluations.mkdir()
    (new.evaluations / "test.json").write_text(json.dumps(summary))
    (new.evaluations / "test").mkdir()
    for name in names:
        (new.evaluations / "test" / f"{name}.json").write_text(json.dumps({**page, "symbol": name}))
    return config, models, report.keep(new, []), new


def test_the_page_ranks_all_coins_and_shows_each_with_its_pictures(run, shown):
    (heading, ranking), (_, coins) = shown
    order = [row["coin"] for row in json.loads((run[3].evaluations / "test.json").read_text())["table"]]
    assert heading == "Coins by evidence"
    assert order[-1] == "CCCUSDT"
    places = [coins.index(f"<b>{symbol}: ") for symbol in order[:-1]]
    assert places == sorted(places)
    assert coins.count("<svg") == coins.count("<details open>") == 2
    for text in (
        "confusion matrix",
        "calibration, error",
        "buy-and-hold",
        "AAAUSDT val/log_loss",
        "logistic regression",
    ):
        assert text in coins
    assert "The candles are simulated" in ranking


def test_accuracy_is_shown_beside_the_majority(run, shown):
    summary = json.loads((run[3].evaluations / "test.json").read_text())
    for row in summary["table"][:2]:
        accuracy, majority = (tables.shown(row[name]) for name in ("accuracy", "majority"))
        assert f"accuracy {accuracy}, always the majority class {majority}" in shown[1][1]


def test_the_reason_why_a_member_was_not_trained_is_shown(shown):
    assert "loss is &lt;nan&gt; at step 7" in shown[0][1]


def test_many_coins_are_collapsed_and_none_is_left_out(run, tmp_path, monkeypatch):
    monkeypatch.setattr("pipelines.workloads.crypto.report._pictures", lambda page, run: Figure(figsize=(1, 1)))
    (_, ranking), (_, coins) = sections(*rewritten(run, MOST_OPEN + 1))
    assert coins.count("<details>") == MOST_OPEN + 1
    assert "<details open>" not in coins
    assert "no trained model" in ranking


def test_the_whole_page_is_written_from_the_runs_files(run, shown):
    report.write(run[3], run[2], shown)
    page = run[3].report.read_text()
    assert page.index("Evaluation: test") < page.index("Coins by evidence") < page.index("Coin by coin")
