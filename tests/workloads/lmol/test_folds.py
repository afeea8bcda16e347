"""Runs of all folds: what each member learns from, and the table over them."""

import json
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from pipelines.engine.workload import Evaluation
from pipelines.workloads.lmol import data, folds, report
from pipelines.workloads.lmol.config import Config
from tests.stages import ROOT, refused, stage
from tests.workloads.lmol.test_lmol import TINY, succeeded
from tests.workloads.lmol.test_lmol_data import user_folder


def test_each_image_is_in_the_test_part_of_one_member_which_sees_what_a_run_of_its_fold_does(tmp_path):
    source = tmp_path / "in"
    source.mkdir()
    user_folder(source, {f"{i:02}.png": i % 7 for i in range(40)})
    whole = Config.model_validate({"data": {"source": str(source), "fold": "all", "folds": 4, "size": 16, "theta": 1}})
    facts = data.prepare(whole, tmp_path / "all")
    members = data.expand(whole, tmp_path / "all")
    assert list(members) == ["fold-0", "fold-1", "fold-2", "fold-3"]
    assert [fold["test"]["images"] for fold in facts["folds"]] == [10] * 4
    tested = []
    for name, config in members.items():
        data.prepare(config, tmp_path / name)
        alone, member = (data.load(tmp_path / each, config.data.fold) for each in (name, "all"))
        for part in data.PARTS:
            assert np.array_equal(alone.parts[part], member.parts[part])
            assert np.array_equal(alone.pairs[part], member.pairs[part])
        assert np.array_equal(alone.images, member.images)
        assert data.expand(config, tmp_path / name) == {}
        tested += member.parts["test"].tolist()
    assert sorted(tested) == list(range(40))


def evaluations(own, other):
    """An evaluation for each fold, of these accuracies of the model and of another predictor."""
    for accuracy, theirs in zip(own, other, strict=True):
        row = {"predictor": "siamese", "accuracy": accuracy, "Pearson": 0.5, "Spearman": 0.5, "RMSE": 1.0, "MAE": 1.0}
        table = [row, {"predictor": "ridge", "accuracy": theirs, "lead in accuracy": accuracy - theirs}]
        summary = {"accuracy": accuracy, "n": 10, "images": 5, "seconds": 1.0, "theta": 0.0, "attribute": "age"}
        yield Evaluation("test", summary, table, {"first_image": ["a", "b"]})


def test_intervals_end_where_figures_do():
    """Means of two folds, give or take twelve times their error, do not end at an accuracy of 1.6."""
    each = dict(zip(("fold-0", "fold-1"), evaluations([0.95, 0.85], [0.2, 0.1]), strict=True))
    found = folds.joined(each, 3)
    assert found.table[0]["accuracy 95 %"] == found.summary["intervals"]["accuracy"] == [0.0, 1.0]
    assert found.table[1]["accuracy 95 %"][0] == 0.0
    assert found.table[1]["lead in accuracy 95 %"] == pytest.approx([0.75, 0.75])


def test_the_table_has_means_and_intervals_that_allow_for_shared_training_images():
    own, other = [0.8, 0.7, 0.9, 0.8, 0.85], [0.7, 0.65, 0.8, 0.75, 0.7]
    names = [f"fold-{fold}" for fold in range(5)]
    found = folds.joined(dict(zip(names, evaluations(own, other), strict=True)), 5)
    assert found.summary["accuracy"] == pytest.approx(np.mean(own))
    assert (found.summary["n"], found.summary["images"]) == (50, 25)
    assert found.summary["folds"]["fold-2"]["accuracy"] == 0.9
    assert found.summary["few"] == ""
    doubted = [replace(each, summary={**each.summary, "few": "x"}) for each in evaluations(own[:2], other[:2])]
    assert folds.joined(dict(zip(names[2:4], doubted, strict=True)), 5).summary["few"] == "x"
    _, doubted[1] = evaluations(own[:2], other[:2])  # of the folds one alone has too few images
    assert folds.joined(dict(zip(names[2:4], doubted, strict=True)), 5).summary["few"] == ""
    ahead = np.subtract(own, other)
    half = stats.t.ppf(0.975, 4) * np.sqrt(ahead.var(ddof=1) * (1 / 5 + 1 / 3))
    ridge = found.table[1]
    assert ridge["lead in accuracy"] == pytest.approx(ahead.mean())
    assert ridge["lead in accuracy 95 %"] == pytest.approx([ahead.mean() - half, ahead.mean() + half])
    assert ridge["Pearson"] is ridge["lead in Pearson"] is None
    assert found.examples["fold"] == [name for name in names for _ in range(2)]
    ((heading, text),) = report.sections(Config.model_validate({"data": {"fold": "all"}}), {}, [found], None)
    assert heading == "Better than the strongest alternative: ridge, over 5 folds"
    assert "9 points more" in text


def test_a_single_fold_has_no_interval_and_two_have_one():
    found = folds.joined({"fold-3": next(evaluations([0.8], [0.7]))}, 5)
    assert (found.table[0]["accuracy"], found.table[0]["accuracy 95 %"]) == (0.8, None)
    both = folds.joined(dict(zip(("fold-3", "fold-4"), evaluations([0.8, 0.7], [0.7, 0.7]), strict=True)), 5)
    half = stats.t.ppf(0.975, 1) * np.sqrt(0.005 * (1 / 2 + 1 / 3))
    assert both.table[1]["lead in accuracy 95 %"] == pytest.approx([0.05 - half, 0.05 + half])
    ((heading, _),) = report.sections(Config.model_validate({"data": {"fold": "all"}}), {}, [found], None)
    assert heading == "Too few examples to compare with the strongest alternative: ridge, over 5 folds"


def test_workloads_without_folds_refuse_the_option(tmp_path):
    done = stage(tmp_path, "train.py", "--workload", "cvrp", "--folds", "all")
    refused(done, "--folds all: cvrp has no data.fold")


@pytest.mark.slow
def test_one_command_trains_all_folds_and_one_evaluates_them_into_one_table(tmp_path):
    words = [*TINY, "data.folds=3", "evaluation.network_steps=0"]
    succeeded(stage(tmp_path, "train.py", *words, "--folds", "all"))
    succeeded(stage(tmp_path, "train.py", *words, "data.fold=1", "--name", "alone", "hardware.threads=1"))
    run = tmp_path / "runs/lmol/default"
    weights = "model/best/model.safetensors"
    member = run / "members/fold-1" / weights
    assert member.read_bytes() == (tmp_path / "runs/lmol/alone" / weights).read_bytes()
    done = succeeded(stage(tmp_path, "evaluate.py", "--workload", "lmol"))
    assert "over 3 folds" in done.stdout
    found = json.loads((run / "evaluations/test.json").read_text())
    assert list(found["folds"]) == ["fold-0", "fold-1", "fold-2"]
    assert found["images"] == 1797
    own = json.loads((run / "members/fold-1/evaluations/test.json").read_text())
    assert own["accuracy"] == found["folds"]["fold-1"]["accuracy"]


@pytest.mark.slow
def test_training_does_not_import_what_evaluations_need():
    program = """
        import sys
        from pipelines.workloads.lmol import WORKLOAD
        assert WORKLOAD.expand(WORKLOAD.config(), None) == {}
        import pipelines.workloads.lmol.task
        print("sklearn" in sys.modules)
    """
    lines = "\n".join(map(str.strip, program.splitlines()))
    done = subprocess.run([sys.executable, "-c", lines], cwd=ROOT, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("False\n", "")
