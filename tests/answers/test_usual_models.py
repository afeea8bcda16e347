"""Which model answers where no run is named: the newest run's, else the one that ships."""

import os
from functools import partial
from types import SimpleNamespace

import pytest

from common.errors import UserError
from common.input_files import Inputs
from models import io, shipped
from models.market.candles import COLUMNS
from models.market.signal_model import SignalConfig, SignalModel
from models.routing.inputs import RoutingInput, RoutingSettings
from pipelines import serve, workloads
from pipelines.answers import trained
from pipelines.server import app
from pipelines.server.limits import Limits
from tests.processor import within
from tests.stages import refused, stage

LINE = '{"depot": [0, 0], "customers": [[1, 0], [0, 1]], "demands": [1, 1], "capacity": 2}'


def run(name, seconds, member=""):
    """Make a run of routes whose best model is that many seconds old."""
    folder = trained.Run("cvrp", name).folder
    best = folder / member / "model/best"
    io.save(io.load(shipped.FOLDER / "cvrp-20"), best)
    (folder / "config.yaml").touch()
    os.utime(best / "config.json", (2e9 - seconds, 2e9 - seconds))


def test_the_newest_run_answers_else_the_model_that_ships(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert trained.usual("cvrp") == trained.ALL
    assert trained.usual("lmol") == "lmol-digits"
    run("default", 60)
    run("older", 90)
    assert trained.usual("cvrp") == "default"
    run("coins", 30, "members/AAA")
    assert trained.usual("cvrp") == "coins"
    run("forgotten", 0)
    (tmp_path / "runs/cvrp/forgotten/config.yaml").unlink()
    assert trained.usual("cvrp") == "coins"
    assert trained.find("cvrp", None, None, "cpu").name == "coins"
    assert capsys.readouterr().err == "model: runs/cvrp/coins, the newest run; --name shipped takes what ships\n"


def test_routes_are_not_planned_by_a_run_that_learnt_other_problems_or_is_worse_than_what_ships(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(trained, "_trained", lambda word, name, folders, device: name)

    def answering():
        return trained.find("cvrp", None, None, "cpu"), capsys.readouterr().err

    run("windows", 30)
    (tmp_path / "runs/cvrp/windows/config.yaml").write_text("data:\n  problem: vrptw\n")
    name, said = answering()
    assert name == trained.ALL
    assert said.startswith("models: cvrp-20, cvrp-50, cvrp-100, cvrp-mixed, which ship: runs/cvrp/windows ")
    assert said.endswith("learnt data.problem=vrptw; --name windows takes it\n")
    run("plain", 10)
    assert answering() == ("plain", "model: runs/cvrp/plain, the newest run; --name shipped takes what ships\n")
    (tmp_path / "runs/cvrp/plain/config.yaml").write_text("data:\n  problem: cvrp\n")
    judged = tmp_path / "runs/cvrp/plain/evaluations/test.json"
    judged.parent.mkdir()

    def evaluated(page, seconds=0):
        judged.write_text(page)
        os.utime(judged, (2e9 - seconds, 2e9 - seconds))

    evaluated('{"shipped_saves": [-0.1, 0.3]}')
    assert answering()[0] == "plain"
    evaluated('{"shipped_saves": [0.1, 0.34]}', seconds=20)  # of other weights, as it went on to train
    assert answering()[0] == "plain"
    evaluated('{"shipped_saves": [0.1, 0.34]}')
    name, said = answering()
    assert name == trained.ALL
    assert "plain has tours that are 0.1 to 0.34 % longer than the shipped policies'; --name plain takes" in said
    assert "cvrp/shipped" in serve.usual_runs()
    assert "plain has tours that are 0.1 to 0.34 % longer" in capsys.readouterr().err
    for damaged in ("{", "[]", '{"shipped_saves": 3}', '{"shipped_saves": [null, null]}'):
        evaluated(damaged)
        assert answering()[0] == "plain"


def test_a_run_that_was_never_evaluated_says_so_and_how_far_its_training_came(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    run("short", 30)
    run("coins", 30, "members/AAA")
    for name, member in (("short", ""), ("coins", "members/AAA")):
        path = tmp_path / "runs/cvrp" / name / member / "metrics.jsonl"
        path.write_text('{"step": 10, "train/loss": 1}\n{"step": 1020, "val/cost": 9}\n{"step": null}\n')
        found, said = trained.find("cvrp", name, None, "cpu"), capsys.readouterr().err
        assert said == f"runs/cvrp/{name}: {found.unjudged}\n"
        assert found.unjudged.startswith(
            "never evaluated, trained for 1,020 updates; python pipelines/evaluate.py --work"
        )
        shown = app.described(serve.opened(f"cvrp/{name}", "cpu", Limits()))
        assert (shown["unjudged"], shown["verdict"]) == (found.unjudged, "")
        (tmp_path / "runs/cvrp" / name / "verdict.txt").write_text("Worse\n")
        capsys.readouterr()
        assert trained.find("cvrp", name, None, "cpu").unjudged == capsys.readouterr().err == ""


def test_a_run_of_several_models_that_take_any_input_says_which_one_answers(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for name in ("fold-0", "fold-1"):
        run("folds", 30, f"members/{name}")
    said = "runs/cvrp/folds: fold-1 answers; --name folds/fold-0 takes another model of the run"
    trained.find("cvrp", "folds", None, "cpu")
    assert said in capsys.readouterr().err.splitlines()


def test_a_run_that_was_trained_on_since_its_evaluation_says_that_its_verdict_is_of_earlier_weights(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    run("short", 30)
    run("coins", 30, "members/AAA")
    for name, member in (("short", ""), ("coins", "members/AAA")):
        folder = tmp_path / "runs/cvrp" / name
        (folder / member / "metrics.jsonl").write_text('{"step": 1020, "val/cost": 9}\n')
        (folder / "verdict.txt").write_text("Better\n")
        (folder / member / "outcome.json").write_text('{"state": "done", "models": {"best/model.safetensors": "1"}}')
        (folder / "judged.json").write_text('[{"best/model.safetensors": "1"}]')
        for seconds, verdict in ((0, "Better"), (10, "of earlier weights: Better")):
            if seconds:  # trained again, to another model
                (folder / member / "outcome.json").write_text('{"models": {"best/model.safetensors": "2"}}')
            capsys.readouterr()
            shown = app.described(serve.opened(f"cvrp/{name}", "cpu", Limits()))
            assert shown["verdict"] == trained.Run("cvrp", name).verdict() == verdict
            assert shown["unjudged"].startswith(
                "trained on since its evaluation, now for 1,020 updates; py" * (seconds > 0)
            )
            assert bool(shown["unjudged"]) == bool(capsys.readouterr().err) == (seconds > 0)


def test_an_older_run_answers_where_the_newest_is_worse_than_what_ships(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run("good", 60)
    run("worse", 30)
    (tmp_path / "runs/cvrp/good/config.yaml").write_text("data:\n  problem: cvrp\n")
    (tmp_path / "runs/cvrp/worse/config.yaml").write_text("data:\n  problem: vrptw\n")
    said = []
    assert trained.usual("cvrp", said.append) == "good"
    assert said == [
        "model: runs/cvrp/good, as runs/cvrp/worse learnt data.problem=vrptw; --name shipped takes what ships"
    ]


def test_the_copy_of_a_shipped_model_that_was_evaluated_is_no_run_that_answers(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run("cvrp-20", 0)
    assert trained.usual("cvrp") == trained.ALL
    (tmp_path / "runs/cvrp/cvrp-20/metrics.jsonl").write_text('{"step": 1}\n')  # trained under that name
    assert trained.usual("cvrp") == "cvrp-20"


def test_the_workload_chooses_among_the_models_that_ship(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    known = workloads.inputs("cvrp")

    def fitting(given):
        return "cvrp-50" if len(given["customers"]) > 2 else "cvrp-20"

    monkeypatch.setattr(
        workloads, "inputs", lambda word: Inputs(RoutingInput, RoutingSettings, known.read, shipped=fitting)
    )
    found = trained.find("cvrp", None, None, "cpu")
    assert capsys.readouterr().err.startswith("models: cvrp-20, cvrp-50, cvrp-100, cvrp-mixed, which ship:")
    small = found.read({"depot": [0, 0], "customers": [[1, 0], [0, 1]], "demands": [1, 1], "capacity": 2})
    large = found.read({"depot": [0, 0], "customers": [[1, 0]] * 3, "demands": [1] * 3, "capacity": 9})
    assert [found.member_for(each) for each in (small, large)] == ["cvrp-20", "cvrp-50"]
    answers = found.together([small, large], {})
    assert [answer["cost"] for answer in answers] == pytest.approx([2 + 2**0.5, 2])


@pytest.mark.parametrize("fresh", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_the_command_says_which_model_answers_and_a_new_process_answers_soon(tmp_path, fresh):
    (tmp_path / "one.jsonl").write_text(LINE)
    before = os.times()
    done = stage(tmp_path, "predict.py", "one.jsonl", fresh=fresh)
    after = os.times()
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("\n") == 1
    assert "cvrp-mixed, which ship: there is no run yet; --name takes another" in done.stderr
    assert within(after.children_user - before.children_user + after.children_system - before.children_system, 5)


def test_a_workload_without_run_and_shipped_model_says_how_to_train_one(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(shipped, "FOLDER", tmp_path)
    with pytest.raises(UserError, match="no run of bep yet, and no model of it ships; train one: accelerate launch"):
        trained.usual("bep")
    with pytest.raises(UserError, match="no run of bep yet"):
        serve.usual_runs()


def test_a_server_takes_one_model_of_each_workload(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for workload in workloads.names():
        (tmp_path / f"shipped/{workload}-small").mkdir(parents=True)
        (tmp_path / f"shipped/{workload}-small/run.yaml").touch()
    monkeypatch.setattr(shipped, "FOLDER", tmp_path / "shipped")
    for words, runs in (
        ([], [f"{workload}/{workload}-small" for workload in workloads.names()]),
        (["--workload", "tinystories"], ["tinystories/tinystories-small"]),
        (["--workload", "cvrp", "--name", "mine"], ["cvrp/mine"]),
    ):
        monkeypatch.setattr("sys.argv", ["serve.py", *words])
        assert serve.named(serve.parsed()) == runs


def test_nothing_usable_ends_with_2(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder/notes.md").touch()
    done = stage(tmp_path, "predict.py", "folder")
    refused(done, "it holds .md (1)")
    assert done.stderr.count("it holds .md (1)") == 1
    refused(stage(tmp_path, "predict.py", "folder", "absent.vrp"), "nothing could be answered")
    refused(stage(tmp_path, "predict.py"), "there is no input")
    (tmp_path / "folder/notes.txt").write_text("no instance\n")
    refused(stage(tmp_path, "predict.py", "folder"), "there is no input in folder")


def test_a_file_without_an_input_is_named_beside_others(tmp_path):
    for name, text in (("empty.txt", " \n"), ("one.txt", "The cat\n")):
        (tmp_path / name).write_text(text)
    empty, one = workloads.inputs("tinystories").read([tmp_path])
    assert empty.input is None
    assert empty.error.endswith("empty.txt: there is no input in this file")
    assert one.input["prompt"] == "The cat"


def test_what_a_folder_holds_beside_its_inputs_is_counted_in_one_line(tmp_path):
    (tmp_path / "folder/below").mkdir(parents=True)
    for name in ("notes.md", "more.MD", "README", ".hidden", "a.vrp"):
        (tmp_path / "folder" / name).touch()
    done = stage(tmp_path, "predict.py", "folder")
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("folder: ")]
    assert line.startswith("folder: passed over .md (2), folder (1), without an ending (1); what is read: .npz, .vrp, ")


@pytest.mark.parametrize("device", ["gpu", "cuda:77", "meta"])
def test_a_device_that_there_is_not_is_named(device):
    with pytest.raises(UserError, match=f"--device {device}: .*; give one such as cpu"):
        trained.find("crypto", "crypto-simulated", None, device)


def test_of_models_of_several_coins_none_answers_for_candles_without_the_name_of_a_coin():
    models = {
        coin: SimpleNamespace(config=SignalConfig(features=("body",), lookback=4, coins=(coin,))) for coin in "AB"
    }
    for model in models.values():
        model.takes = partial(SignalModel.takes, model)
    empty = dict.fromkeys(COLUMNS, ())
    one, both = (
        trained.Trained("crypto", "mine", workloads.inputs("crypto"), each) for each in ({"A": models["A"]}, models)
    )
    named, nameless = (both.read({"coin": coin, "candles": empty}) for coin in ("A", None))
    assert (both.member_for(named), one.member_for(named), one.member_for(nameless)) == ("A", "A", "A")
    with pytest.raises(UserError, match="none of the models takes this input; there are models of A, B"):
        both.member_for(nameless)
