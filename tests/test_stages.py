"""The commands a user types, on a CVRP too small to learn anything.

Slow tests run each entry point once by a new interpreter: only there does it import everything itself.
"""

import errno
import itertools
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import numpy as np
import pytest
import safetensors.torch
import torch
import yaml

from common.errors import UserError
from common.foreign_text import from_csv
from pipelines import evaluate, loading
from pipelines.workloads.cvrp.input_files import as_input
from pipelines.workloads.cvrp.instances.generated import problems_of
from pipelines.workloads.cvrp.prepare import load
from tests import forked
from tests.report.pages import checked
from tests.stages import command, records, refused, stage

TINY = [
    "data.customers=6",
    "data.capacity=12",
    "data.validation_instances=16",
    "data.test_instances=8",
    "model.layers=1",
    "model.width=16",
    "model.heads=2",
    "training.steps=12",
    "training.batch_size=8",
    "training.log_steps=1",
    "training.validation_steps=4",
    "training.checkpoint_steps=3",
    "data.labels=8",
    "training.imitation_steps=4",
    "evaluation.reference_instances=4",
    "evaluation.reference_seconds=0.05",
]
ROLLOUT = ["training.baseline=rollout", "training.challenge_instances=400"]  # by default, each validation takes 2,000
VRP = """\
NAME : tiny
TYPE : CVRP
DIMENSION : 5
EDGE_WEIGHT_TYPE : EUC_2D
CAPACITY : 10
NODE_COORD_SECTION
1 0 0
2 0 10
3 0 20
4 10 0
5 20 0
DEMAND_SECTION
1 0
2 5
3 5
4 5
5 5
DEPOT_SECTION
1
-1
EOF
"""


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A folder with a trained and evaluated run."""
    folder = tmp_path_factory.mktemp("trained")
    done = stage(folder, "train.py", *TINY)
    assert done.returncode == 0, done.stderr
    done = stage(folder, "evaluate.py")
    assert done.returncode == 0, done.stderr
    return folder


def test_training_leaves_everything_a_later_stage_needs(trained):
    run = trained / "runs/cvrp/default"
    names = {str(path.relative_to(run)) for path in run.rglob("*")}
    assert names >= {
        "config.yaml",
        "provenance.json",
        "metrics.jsonl",
        "checkpoints/step-000012/manifest.json",
        "model/best/config.json",
        "model/best/model.safetensors",
        "model/last/model.safetensors",
    }
    assert set(records(run, "train/cost")) == set(range(1, 13))
    assert set(records(run, "val/cost")) == {4, 8, 12}
    provenance = json.loads((run / "provenance.json").read_text())
    assert provenance["world_size"] == 1
    assert provenance["data"]["sha256"]


def test_evaluation_puts_the_model_beside_its_baselines(trained):
    evaluations = trained / "runs/cvrp/default/evaluations"
    summary = json.loads((evaluations / "test.json").read_text())
    assert {"cost", "gap", "n", "seconds", "decode"} <= set(summary)
    assert summary["n"] == 8
    costs = {row["method"].split(",")[0]: row["cost"] for row in summary["table"]}
    assert {"savings (Clarke-Wright)", "gt"} <= set(costs)
    by_label = {row["method"]: row["cost"] for row in summary["table"]}
    assert by_label["gt, multistart x 8 symmetries"] <= by_label["gt, multistart"] <= by_label["gt, greedy"]
    assert len((evaluations / "test.csv").read_text().splitlines()) == 9


def test_the_report_is_one_page_that_needs_nothing_else(trained):
    page = (trained / "runs/cvrp/default/report.html").read_text()
    assert page.count("<svg") >= 3
    assert "savings (Clarke-Wright)" in page
    headings = checked(page).headings()
    assert re.match(r"Within [\d.e-]+ core-ms: ", headings[0])
    assert headings[1] == "Cost against time: test"
    assert "Evaluation: test" in headings


def test_a_users_vrp_file_is_solved_and_its_solution_written(trained, tmp_path):
    (tmp_path / "tiny.vrp").write_text(VRP)
    done = stage(trained, "evaluate.py", f"evaluation.instances={tmp_path / 'tiny.vrp'}")
    assert done.returncode == 0, done.stderr
    evaluations = trained / "runs/cvrp/default/evaluations"
    assert json.loads((evaluations / "tiny.json").read_text())["cost"] == 80
    assert (evaluations / "tiny.sol").read_text().endswith("Cost 80\n")
    *_, head, predict, serve = done.stdout.splitlines()
    assert head == "try next:"
    table = re.fullmatch(
        r"  python pipelines/predict.py --workload cvrp --name default (\S+\.csv) capacity=40", predict
    )
    assert (trained / table[1]).is_file()
    assert serve == "  python pipelines/serve.py cvrp/default"


def test_predictions_are_the_tours_of_the_evaluation(trained, tmp_path):
    (data,) = (trained / "data/cvrp").iterdir()
    problems = problems_of(load(data, "test"), "test")
    lines = [json.dumps(as_input(problem, item)) for item, problem in enumerate(problems)]
    (tmp_path / "test.jsonl").write_text("\n".join(lines))
    evaluations = trained / "runs/cvrp/default/evaluations"
    rows = from_csv((evaluations / "test.csv").read_text())
    done = stage(trained, "predict.py", str(tmp_path / "test.jsonl"), "milliseconds=0", "augment=true")
    assert done.returncode == 0, done.stderr
    for answer, row in zip(map(json.loads, done.stdout.splitlines()), rows, strict=True):
        assert " | ".join(" ".join(map(str, route)) for route in answer["routes"]) == row["routes"]
        assert answer["cost"] == float(row["cost"])


@pytest.mark.slow
def test_a_users_npz_file_is_solved(trained, tmp_path):
    rng = np.random.default_rng(0)
    fields = {"depot": rng.random((3, 2)), "locs": rng.random((3, 9, 2)), "demand": rng.integers(1, 5, (3, 9))}
    np.savez(tmp_path / "mine.npz", capacity=np.full(3, 10), **fields)
    words = ["evaluation.decode=sampling", "evaluation.samples=4"]
    done = stage(trained, "evaluate.py", f"evaluation.instances={tmp_path / 'mine.npz'}", *words)
    assert done.returncode == 0, done.stderr
    summary = json.loads((trained / "runs/cvrp/default/evaluations/mine.json").read_text())
    assert summary["n"] == 3
    assert summary["last"] == "search from gt and mix, 9 ms"


@pytest.mark.slow
def test_two_processes_evaluate_to_the_same_costs(trained, tmp_path):
    summary = json.loads((trained / "runs/cvrp/default/evaluations/test.json").read_text())
    copy = tmp_path / "runs/cvrp"
    copy.mkdir(parents=True)
    subprocess.run(["cp", "-r", str(trained / "runs/cvrp/default"), str(copy)], check=True)
    done = stage(tmp_path, "evaluate.py", processes=2, ACCELERATE_USE_CPU="true")
    assert done.returncode == 0, done.stderr
    again = json.loads((copy / "default/evaluations/test.json").read_text())
    assert again["cost"] == pytest.approx(summary["cost"], rel=1e-6)


@pytest.mark.slow
def test_before_the_first_validation_the_last_model_is_evaluated(trained, tmp_path):
    shutil.copytree(trained / "runs/cvrp/default", tmp_path / "runs/cvrp/default")
    shutil.rmtree(tmp_path / "runs/cvrp/default/model/best")
    quick = ["evaluation.reference_seconds=0", "evaluation.milliseconds=0"]
    done = stage(tmp_path, "evaluate.py", *quick, fresh=True)
    assert done.returncode == 0, done.stderr
    assert "runs/cvrp/default/model/best is written at the first validation; using" in done.stdout
    assert json.loads((tmp_path / "runs/cvrp/default/evaluations/test.json").read_text())["n"] == 8


def test_the_verdict_of_an_earlier_evaluation_is_said_to_be_one(trained, tmp_path):
    shutil.copytree(trained, tmp_path, dirs_exist_ok=True)
    (tmp_path / "tiny.vrp").write_text(VRP)
    for words, said in (
        (["evaluation.instances=tiny.vrp"], "verdict of test, evaluated earlier: Within"),
        (["evaluation.instances=test"], "verdict: Within"),
    ):
        done = stage(tmp_path, "evaluate.py", *words, "evaluation.reference=[]")
        assert done.returncode == 0, done.stderr
        assert said in done.stdout


def test_a_heuristic_needs_no_training(tmp_path):
    words = ["--name", "savings", "model.kind=savings", "data.customers=6", "data.capacity=12", "data.test_instances=8"]
    done = stage(tmp_path, "evaluate.py", *words, "evaluation.reference_seconds=0")
    assert done.returncode == 0, done.stderr
    summary = json.loads((tmp_path / "runs/cvrp/savings/evaluations/test.json").read_text())
    assert summary["decode"] == "savings (Clarke-Wright)"
    refused(stage(tmp_path, "train.py", "--name", "s2", "model.kind=savings"), "needs no training", "evaluate.py")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("cvrp-20", ["evaluation.milliseconds=0"]),
        pytest.param("savings", ["model.kind=savings"], marks=pytest.mark.slow),
    ],
)
def test_words_of_an_evaluation_hold_for_it_alone(tmp_path, name, words):
    (tmp_path / "tiny.vrp").write_text(VRP)
    words = [*words, "evaluation.instances=tiny.vrp", "evaluation.reference=[]"]
    done = stage(tmp_path, "evaluate.py", "--name", name, "data.test_instances=8", *words)
    assert done.returncode == 0, done.stderr
    run = tmp_path / "runs/cvrp" / name
    assert json.loads((run / "evaluations/tiny.json").read_text())["n"] == 1
    kept = yaml.safe_load((run / "config.yaml").read_text())
    assert (kept["evaluation"]["instances"], kept["evaluation"]["milliseconds"]) == ("test", None)
    assert kept["data"]["test_instances"] == (1000 if name == "cvrp-20" else 8)


@pytest.mark.slow
@pytest.mark.parametrize(
    "extra",
    [
        ["model.kind=dgt", *ROLLOUT, "data.distribution=clustered"],
        ["model.kind=gat", "model.neighbors=3", "data.distribution=grid"],
        ["data.customers=[4,7]", "data.capacity=null", "data.distribution=x", "evaluation.decode=sampling"],
    ],
)
def test_the_other_kinds_baselines_and_distributions_train_and_evaluate(tmp_path, extra):
    done = stage(tmp_path, "train.py", *TINY, *extra)
    assert done.returncode == 0, done.stderr
    assert stage(tmp_path, "evaluate.py", "evaluation.reference_seconds=0").returncode == 0


@pytest.mark.slow
def test_one_process_and_two_processes_train_the_same(tmp_path):
    for name, processes in (("one", 1), ("two", 2)):
        words = [*TINY, "--name", name, "training.steps=20"]
        done = stage(tmp_path, "train.py", *words, processes=processes, ACCELERATE_USE_CPU="true")
        assert done.returncode == 0, done.stderr
        assert f"batch of 8: {processes} process" in done.stderr
    one, two = tmp_path / "runs/cvrp/one", tmp_path / "runs/cvrp/two"
    norms = [records(run, "train/grad_norm")[1] for run in (one, two)]
    assert norms[0] == pytest.approx(norms[1], rel=1e-5)
    assert records(one, "train/cost") == pytest.approx(records(two, "train/cost"), abs=1e-3)


@pytest.mark.slow
def test_a_run_of_two_processes_resumes_on_one(tmp_path):
    done = stage(tmp_path, "train.py", *TINY, "training.steps=6", processes=2, ACCELERATE_USE_CPU="true")
    assert done.returncode == 0, done.stderr
    known = tmp_path / "runs/cvrp/default/model/last/config.json"
    older = json.loads(known.read_text())
    del older["config"]["spacing"]  # as a version wrote it that did not have this key
    known.write_text(json.dumps(older))
    done = stage(tmp_path, "train.py", "--resume", "training.steps=12")
    assert done.returncode == 0, done.stderr
    assert "resumed from runs/cvrp/default/checkpoints/step-000006" in done.stderr


@pytest.mark.slow
def test_two_processes_resume_a_task_whose_state_holds_tensors(tmp_path):
    words = [*TINY, *ROLLOUT]
    for name, steps in (("calm", [12]), ("stopped", [6, 12])):
        for count in steps:
            resume = ["--resume"] if count != steps[0] else words
            done = stage(
                tmp_path,
                "train.py",
                *resume,
                "--name",
                name,
                f"training.steps={count}",
                "training.schedule=constant",
                processes=2,
                ACCELERATE_USE_CPU="true",
            )
            assert done.returncode == 0, done.stderr
    calm, stopped = (records(tmp_path / "runs/cvrp" / name, "train/cost") for name in ("calm", "stopped"))
    assert calm == stopped


def test_what_a_user_can_mend_is_said_in_a_line(trained, tmp_path):
    refused(stage(trained, "train.py", *TINY), "exists", "--resume", "--name default-2")
    refused(
        stage(trained, "train.py", "--resume", "model.kind=gat", "training.batch_size=4"),
        "model.kind: gt -> gat",
        "training.batch_size: 8 -> 4",
    )
    refused(stage(tmp_path, "train.py", "--workload", "cvpr"), "unknown workload 'cvpr'; did you mean cvrp?")
    refused(stage(tmp_path, "train.py", *TINY, "training.micro_batch_size=3"), "does not divide the 8 examples")
    refused(
        stage(tmp_path, "evaluate.py", "--name", "nothing"),
        "there is no run",
        "train.py --workload cvrp --name nothing",
    )
    refused(stage(tmp_path, "evaluate.py", "--name", "cvrp20"), "did you mean --name cvrp-20 or")
    refused(stage(trained, "evaluate.py", "model.layers=2"), "model.layers: 1 -> 2")
    refused(stage(tmp_path, "train.py", "--name", "../up"), "--name '../up'")
    refused(stage(tmp_path, "train.py", *TINY, "hardware.gradient_checkpoint=true"), "hardware.gradient_checkpointing")
    broken = tmp_path / "broken.vrp"
    broken.write_text(VRP[:150])
    refused(stage(trained, "evaluate.py", f"evaluation.instances={broken}"), "broken.vrp")


@pytest.mark.slow
def test_more_steps_continue_a_finished_run(trained, tmp_path):
    subprocess.run(["cp", "-r", str(trained / "runs"), str(trained / "data"), str(tmp_path)], check=True)
    done = stage(tmp_path, "train.py", "--resume", "training.steps=14")
    assert done.returncode == 0, done.stderr
    assert max(records(tmp_path / "runs/cvrp/default", "train/cost")) == 14
    done = stage(tmp_path, "train.py", "--resume", "training.steps=14")
    assert "nothing to do" in done.stderr


def test_prepare_shows_what_it_made_and_does_it_once(tmp_path):
    first = stage(tmp_path, "prepare.py", *TINY)
    assert "instances.validation" in first.stdout
    (folder,) = (tmp_path / "data/cvrp").iterdir()
    before = (folder / "manifest.json").stat().st_mtime_ns
    assert stage(tmp_path, "prepare.py", *TINY).stdout == first.stdout
    assert (folder / "manifest.json").stat().st_mtime_ns == before


@pytest.mark.slow
@pytest.mark.parametrize("script", ["prepare.py", "train.py"])
def test_a_new_interpreter_imports_all_that_a_stage_needs(tmp_path, script):
    done = stage(tmp_path, script, *TINY, fresh=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("times", [3, pytest.param(10, marks=pytest.mark.exhaustive)])
def test_kills_at_random_moments_leave_the_weights_of_an_undisturbed_run(tmp_path, times):
    words = [*TINY, *ROLLOUT, "training.steps=60"]
    assert stage(tmp_path, "prepare.py", *words).returncode == 0

    def start(name):
        resume = ["--resume"] * (tmp_path / "runs/cvrp" / name / "config.yaml").exists()
        line = command("train.py", *words, "--name", name, *resume)
        return forked.Process(line[1:], tmp_path, {**os.environ, "OMP_NUM_THREADS": "1"})

    def finished(process):
        code, (_, errors) = process.finish(), process.output()
        assert code in (0, -signal.SIGKILL), errors
        return code == 0

    begun = time.monotonic()
    assert finished(start("calm"))
    length = time.monotonic() - begun  # of which moments are drawn: a fast machine is to be killed sooner
    generator, names, kills = random.Random(0), ["stormy-0"], 0
    while kills < times:
        begun, process = time.monotonic(), start(names[-1])
        time.sleep(generator.uniform(0.1, 0.8) * length)
        process.send_signal(signal.SIGKILL)
        if not finished(process):
            kills += 1
        else:  # before the kill, as other processes let it be faster than before
            length = min(length, time.monotonic() - begun)
            names.append(f"stormy-{len(names)}")
            assert len(names) < 20, f"{kills} kills came in time"
    assert finished(start(names[-1]))
    for name, which in itertools.product(names, ("best", "last")):
        calm, stormy = (
            safetensors.torch.load_file(tmp_path / f"runs/cvrp/{run}/model/{which}/model.safetensors")
            for run in ("calm", name)
        )
        assert calm.keys() == stormy.keys()
        assert all(torch.equal(calm[key], stormy[key]) for key in calm)
    replaced = records(tmp_path / "runs/cvrp/calm", "baseline/replacements")
    assert max(replaced.values()) > 0  # or each process would begin with the baseline that it finds
    for name, key in itertools.product(names, ("train/cost", "val/cost", "train/grad_norm")):
        assert records(tmp_path / "runs/cvrp/calm", key) == records(tmp_path / "runs/cvrp" / name, key)


def test_an_evaluation_finds_out_at_once_that_it_cannot_write(tmp_path, monkeypatch):
    def full(dir):
        raise OSError(errno.EROFS, "no", str(dir))

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["evaluate.py", "--workload", "cvrp", "--name", "savings", "model.kind=savings"])
    monkeypatch.setattr(loading, "prepare_first", lambda *_: (tmp_path, {}))
    monkeypatch.setattr(loading, "trained_models", lambda *_: pytest.fail("nothing is evaluated"))
    monkeypatch.setattr(tempfile, "TemporaryFile", full)
    with pytest.raises(UserError, match=r"^cannot write runs/cvrp/savings: the file system is read-only"):
        evaluate.main()
