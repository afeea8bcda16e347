"""The loop's promises, kept by real processes on a toy workload."""

import json
import os
import re
import shutil
import signal
import subprocess
from pathlib import Path

import pytest
import safetensors.torch
import torch

from common.errors import Stopped, UserError
from common.stopping import stop_if_asked
from tests import forked
from tests.engine import toy as toy_module

TOY = Path(__file__).with_name("toy.py")


def toy(folder, name, training, options=None, *words, processes=1):
    """Run the toy in `folder`; returns the finished process."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    if processes > 1:
        environment["ACCELERATE_USE_CPU"] = "true"
    command = [str(TOY), name, json.dumps(training), json.dumps(options or {}), *words]
    return forked.run(command, folder, environment, processes)


def records(folder, name, key="train/loss"):
    lines = (folder / "runs/toy" / name / "metrics.jsonl").read_text().splitlines()
    found = [(entry["step"], entry[key]) for entry in map(json.loads, lines) if key in entry]
    assert len(dict(found)) == len(found)  # nothing is recorded twice
    return dict(found)


def weights(folder, name):
    paths = sorted((folder / "runs/toy" / name / "checkpoints").glob("step-*/model.safetensors"))
    return safetensors.torch.load(paths[-1].read_bytes())  # load_file would map a file that a test may change


def same(a, b):
    return a.keys() == b.keys() and all(torch.equal(a[key], b[key]) for key in a)


TRAINING = {"steps": 18, "checkpoint_steps": 5, "validation_steps": 6}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("undisturbed")
    done = toy(folder, "plain", TRAINING, {"dropout": 0.3})
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.parametrize("call", [*(pytest.param(n, marks=pytest.mark.slow) for n in (1, 7, 11, 18)), 9])
def test_a_killed_run_resumes_to_bit_identical_weights_and_metrics(tmp_path, undisturbed, call):
    killed = toy(tmp_path, "killed", TRAINING, {"dropout": 0.3, "kill_at": call})
    assert killed.returncode == -signal.SIGKILL
    resumed = toy(tmp_path, "killed", TRAINING, {"dropout": 0.3}, "--resume")
    assert resumed.returncode == 0, resumed.stderr
    assert same(weights(tmp_path, "killed"), weights(undisturbed, "plain"))
    for key in ("train/loss", "train/error", "train/grad_norm", "val/error", "learning_rate"):
        assert records(tmp_path, "killed", key) == records(undisturbed, "plain", key)


def test_sigterm_saves_first_and_tells_how_to_go_on(tmp_path, undisturbed):
    stopped = toy(tmp_path, "stopped", TRAINING, {"dropout": 0.3, "signal_at": 8})
    assert stopped.returncode == 128 + signal.SIGTERM
    assert "--resume" in stopped.stderr
    assert (tmp_path / "runs/toy/stopped/checkpoints/step-000008").is_dir()
    assert toy(tmp_path, "stopped", TRAINING, {"dropout": 0.3}, "--resume").returncode == 0
    assert same(weights(tmp_path, "stopped"), weights(undisturbed, "plain"))


def test_accumulation_and_two_processes_follow_the_curve_of_one_batch(tmp_path):
    """Items carry different numbers of examples, so a mean of means would differ in the second digit."""
    training = {"steps": 12, "learning_rate": 0.01}
    runs = {
        "whole": toy(tmp_path, "whole", training),
        "accumulated": toy(tmp_path, "accumulated", {**training, "micro_batch_size": 2}),
        "two": toy(tmp_path, "two", {**training, "micro_batch_size": 4}, processes=2),
    }
    for name, done in runs.items():
        assert done.returncode == 0, done.stderr
        for key, tolerance in (("train/loss", 1e-4), ("train/grad_norm", 1e-4), ("val/error", 1e-4)):
            expected = records(tmp_path, "whole", key)
            assert records(tmp_path, name, key) == pytest.approx(expected, rel=tolerance), (name, key)
        first = records(tmp_path, name, "train/grad_norm")[1]
        assert first == pytest.approx(records(tmp_path, "whole", "train/grad_norm")[1], rel=1e-5)
    each = records(tmp_path, "two", "seconds_by_rank")
    assert list(each) == list(range(1, 13))
    assert all(len(seconds) == 2 and min(seconds) > 0 for seconds in each.values())
    assert not records(tmp_path, "whole", "seconds_by_rank")


@pytest.mark.parametrize("processes", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_out_of_memory_halves_the_micro_batch_on_all_ranks_and_keeps_the_curve(tmp_path, processes):
    training = {"steps": 6, "micro_batch_size": 8}
    assert toy(tmp_path, "roomy", training).returncode == 0
    options = {"out_of_memory_above": 4, "fails_on_rank": processes - 1, "out_of_memory_in_step": 3}
    options["out_of_memory_in_backward"] = 5  # of the last micro-batch of an update, after which ranks average
    tight = toy(tmp_path, "tight", training, options, processes=processes)
    assert tight.returncode == 0, tight.stderr
    assert "continuing with 4" in tight.stderr
    assert "with 4 examples at once; continuing with 2" in tight.stderr  # after a backward pass
    assert "with 2 examples at once; continuing with 1" in tight.stderr  # after a step of the optimizer
    assert records(tmp_path, "tight") == pytest.approx(records(tmp_path, "roomy"), rel=1e-4)


@pytest.mark.slow
def test_out_of_memory_in_passes_over_a_split_model_halves_the_micro_batch_on_all_ranks(tmp_path):
    training = {"steps": 6, "micro_batch_size": 8}
    assert toy(tmp_path, "roomy", training).returncode == 0
    options = {"out_of_memory_in_layer": 1, "out_of_memory_in_backward": 6, "out_of_memory_in_step": 3}
    for rank in (0, 1):
        name = f"tight-{rank}"
        tight = toy(tmp_path, name, training, {**options, "fails_on_rank": rank}, "--sharded", processes=2)
        assert tight.returncode == 0, tight.stderr
        for before, after in ((8, 4), (4, 2), (2, 1)):
            assert f"with {before} examples at once; continuing with {after}" in tight.stderr
        assert records(tmp_path, name) == pytest.approx(records(tmp_path, "roomy"), rel=1e-4)


def last_checkpoint(folder, name):
    path = max((folder / "runs/toy" / name / "checkpoints").iterdir())
    return {file.relative_to(path): file.read_bytes() for file in path.rglob("*") if file.is_file()}


@pytest.fixture(scope="module")
def split(tmp_path_factory):
    folder = tmp_path_factory.mktemp("split")
    done = toy(folder, "plain", TRAINING, {"dropout": 0.3}, "--sharded", processes=2)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("half", [True, False], ids=["within its share", "before others know of its share"])
@pytest.mark.parametrize("save", [1, 2])
def test_a_rank_that_is_killed_as_it_saves_a_split_model_costs_nothing(tmp_path, split, undisturbed, save, half):
    options = {"dropout": 0.3, "kill_in_share": [save, half], "fails_on_rank": 1}
    killed = toy(tmp_path, "two", TRAINING, options, "--sharded", processes=2)
    assert killed.returncode == 1, killed.stderr
    complete = sorted(path.name for path in (tmp_path / "runs/toy/two/checkpoints").glob("step-*"))
    assert complete == ["step-000005"][: save - 1]
    shutil.copytree(tmp_path / "runs/toy/two", tmp_path / "runs/toy/one")
    for name, words, processes in (("two", ["--sharded"], 2), ("one", [], 1)):
        resumed = toy(tmp_path, name, TRAINING, {"dropout": 0.3}, "--resume", *words, processes=processes)
        assert resumed.returncode == 0, resumed.stderr
        exact = split if name == "two" else undisturbed
        for key in ("train/loss", "train/error", "train/grad_norm", "val/error", "learning_rate"):
            expected = records(exact, "plain", key)
            assert records(tmp_path, name, key) == (expected if name == "two" else pytest.approx(expected, rel=1e-4))
    assert last_checkpoint(tmp_path, "two") == last_checkpoint(split, "plain")
    torch.testing.assert_close(weights(tmp_path, "one"), weights(undisturbed, "plain"), rtol=1e-4, atol=1e-6)


def test_no_memory_for_one_example_is_an_error_with_remedies(tmp_path):
    done = toy(tmp_path, "none", {"steps": 2, "micro_batch_size": 1}, {"out_of_memory_above": 0.5})
    assert done.returncode == 2
    assert "gradient_checkpointing" in done.stderr


def test_a_loss_that_is_not_finite_stops_before_the_update(tmp_path):
    done = toy(tmp_path, "nan", {"steps": 20, "checkpoint_steps": 4}, {"nan_at": 7})
    assert done.returncode == 2
    assert "step 7" in done.stderr
    assert "step-000004" in done.stderr
    assert "Traceback" not in done.stderr
    assert all(value.isfinite().all() for value in weights(tmp_path, "nan").values())


def test_patience_counts_validations_without_improvement(tmp_path):
    done = toy(tmp_path, "flat", {"steps": 50, "validation_steps": 2, "patience": 3}, {"flat": True})
    assert done.returncode == 0
    assert "stopped early: 3 validations" in done.stderr
    assert max(records(tmp_path, "flat")) == 8  # improved once at step 2, then not at 4, 6 and 8


def test_only_the_newest_checkpoints_stay(tmp_path):
    toy(tmp_path, "many", {"steps": 12, "checkpoint_steps": 2, "keep_checkpoints": 2})
    names = sorted(path.name for path in (tmp_path / "runs/toy/many/checkpoints").iterdir())
    assert names == ["step-000010", "step-000012"]


@pytest.mark.parametrize(
    "file",
    [
        "model.safetensors",
        *(pytest.param(f, marks=pytest.mark.slow) for f in ("optimizer.pt", "progress.json", "manifest.json")),
    ],
)
def test_a_checkpoint_with_one_flipped_byte_is_refused_by_name(tmp_path, file):
    training = {"steps": 10, "checkpoint_steps": 5}
    assert toy(tmp_path, "flip", training).returncode == 0
    expected = weights(tmp_path, "flip")
    path = tmp_path / "runs/toy/flip/checkpoints/step-000010" / file
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    resumed = toy(tmp_path, "flip", training, None, "--resume")
    assert resumed.returncode == 0, resumed.stderr
    assert "step-000010 is refused" in resumed.stderr
    assert "resumed from runs/toy/flip/checkpoints/step-000005" in resumed.stderr
    assert same(weights(tmp_path, "flip"), expected)


def test_a_batch_that_processes_do_not_divide_is_refused_with_numbers(tmp_path):
    done = toy(tmp_path, "odd", {"steps": 2, "batch_size": 15}, processes=2)
    assert done.returncode != 0
    assert "training.batch_size=15 does not divide over 2 processes; try training.batch_size=14 or 16" in done.stderr


def test_a_micro_batch_that_does_not_divide_is_refused_with_what_would(tmp_path):
    done = toy(tmp_path, "odd", {"steps": 2, "micro_batch_size": 5})
    assert done.returncode == 2
    assert "try one of 1, 2, 4, 8, 16" in done.stderr


@pytest.fixture
def disk(tmp_path):
    """A folder on a file system of its own, of 96 KiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=96k", "tmpfs", str(folder)]
    mounted = subprocess.run(command, capture_output=True, text=True)
    if mounted.returncode:
        pytest.skip(f"no right to mount a small disk: {mounted.stderr.strip()}")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_a_full_disk_is_a_clear_error_and_leaves_earlier_checkpoints(disk):
    done = toy(disk, "full", {"steps": 40, "checkpoint_steps": 5, "keep_checkpoints": 40})
    assert done.returncode == 2
    assert "disk is full" in done.stderr
    assert "Traceback" not in done.stderr
    kept = sorted((disk / "runs/toy/full/checkpoints").glob("step-*"))
    assert kept
    assert not list((disk / "runs/toy/full/checkpoints").glob(".*"))
    assert all((path / "manifest.json").exists() for path in kept)


def test_a_read_only_run_folder_is_a_clear_error_and_leaves_earlier_checkpoints(disk):
    assert toy(disk, "fixed", {"steps": 4, "checkpoint_steps": 4}).returncode == 0
    before = weights(disk, "fixed")
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
    done = toy(disk, "fixed", {"steps": 8, "checkpoint_steps": 4}, None, "--resume")
    assert done.returncode == 2
    assert "read-only" in done.stderr
    assert "Traceback" not in done.stderr
    assert same(weights(disk, "fixed"), before)


@pytest.fixture
def alone(tmp_path, monkeypatch):
    """The toy in this process; returns a function that trains it and one that reads its records."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(toy_module.io, "save", toy_module.io.save)  # put back what training replaces
    return lambda name, **training: toy_module.train(name, training, {}, resume=training.pop("resume", False))


@pytest.mark.parametrize("part", ["score", "refit"])
def test_a_validation_that_fails_costs_no_training_and_is_made_again(tmp_path, alone, monkeypatch, part):
    training = {"steps": 6, "checkpoint_steps": 3, "validation_steps": 3}
    alone("calm", **training)
    method, calls = getattr(toy_module.ToyTask, part), []

    def fails(task, *arguments):
        calls.append(None)
        if len(calls) == 1:
            raise RuntimeError("pretended")
        return method(task, *arguments)

    monkeypatch.setattr(toy_module.ToyTask, part, fails)
    with pytest.raises(RuntimeError, match="pretended"):
        alone("failed", **training)
    assert [path.name for path in (tmp_path / "runs/toy/failed/checkpoints").iterdir()] == ["step-000003"]
    alone("failed", **training, resume=True)
    assert same(weights(tmp_path, "failed"), weights(tmp_path, "calm"))
    for key in ("train/loss", "val/error"):
        assert records(tmp_path, "failed", key) == records(tmp_path, "calm", key)


def test_a_fit_that_is_asked_to_stop_costs_no_training_and_is_made_again(tmp_path, alone, monkeypatch):
    training = {"steps": 9, "checkpoint_steps": 5, "validation_steps": 3}
    alone("calm", **training)
    calls = []

    def refit(task, map_items):
        calls.append(None)
        if len(calls) in (1, 2, 4):  # when it is due, where the resumed run begins, and before a later validation
            os.kill(os.getpid(), signal.SIGTERM)
        if len(calls) < 4:
            stop_if_asked()
        return {}

    monkeypatch.setattr(toy_module.ToyTask, "refit", refit)
    for resume, saved in ((False, [3]), (True, [3]), (True, [3, 5, 6])):
        with pytest.raises(Stopped, match="stopped by SIGTERM"):
            alone("stopped", **training, resume=resume)
        found = sorted(path.name for path in (tmp_path / "runs/toy/stopped/checkpoints").iterdir())
        assert found == [f"step-{step:06d}" for step in saved]
    alone("stopped", **training, resume=True)
    assert same(weights(tmp_path, "stopped"), weights(tmp_path, "calm"))
    for key in ("train/loss", "val/error"):
        assert records(tmp_path, "stopped", key) == records(tmp_path, "calm", key)


def test_what_is_fitted_to_the_weights_is_validated_and_saved_with_them(tmp_path, alone, monkeypatch):
    bias, seen = "layers.3.bias", []
    build = toy_module.ToyTask.__init__

    def with_buffer(task, **options):
        build(task, **options)
        task.model.register_buffer("fitted", torch.zeros(1))

    def refit(task, map_items):
        assert not task.model.training
        task.model.fitted.copy_(2 * task.model.get_parameter(bias).detach())
        errors = map_items(task.validation, lambda batch: task.score(task.model, batch))["error"]
        return {"val/fitted_to": float(errors.double().mean())}

    monkeypatch.setattr(toy_module.ToyTask, "__init__", with_buffer)
    monkeypatch.setattr(toy_module.ToyTask, "refit", refit)
    monkeypatch.setattr(toy_module, "keep", lambda state, folder: seen.append((folder.name, dict(state))))
    alone("fitted", steps=7, checkpoint_steps=2, validation_steps=4, ema=0.9)
    assert {name for name, _ in seen} == {"best", "last"}
    for folder, state in seen:
        current = torch.equal(state["fitted"], 2 * state[bias])
        assert current or folder == "last"  # which is also saved between validations
    assert current  # of the last step, though it is saved before its validation
    assert not torch.equal(weights(tmp_path, "fitted")["fitted"], 2 * weights(tmp_path, "fitted")[bias])  # an average
    assert records(tmp_path, "fitted", "val/fitted_to") == records(tmp_path, "fitted", "val/error")


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_validation_that_gives_no_number_is_said_and_is_never_the_best(tmp_path, alone, monkeypatch, capsys, value):
    calls = []

    def score(task, model, batch):
        if batch["item"][0] == 0:
            calls.append(None)
        return {"error": torch.full((len(batch["x"]),), 1.0 if len(calls) == 2 else value)}

    monkeypatch.setattr(toy_module.ToyTask, "score", score)
    alone("lost", steps=6, checkpoint_steps=2, validation_steps=2)
    lines = [line for line in capsys.readouterr().err.splitlines() if "val/error" in line]
    assert [line.partition("(")[2] for line in lines] == [
        "val/error is not a number: not the best)",
        "best so far)",
        "val/error is not a number: not the best)",
    ]
    progress = json.loads((tmp_path / "runs/toy/lost/checkpoints/step-000006/progress.json").read_text())
    assert (progress["best"], progress["best_step"], progress["stale"]) == (1, 4, 1)


def test_the_metric_that_the_config_names_picks_the_best_model_and_counts_for_patience(tmp_path, alone):
    alone("highest", steps=40, validation_steps=5, metric="max:val/error", patience=2)
    found = records(tmp_path, "highest", "val/error")
    progress = json.loads((tmp_path / "runs/toy/highest/checkpoints/step-000015/progress.json").read_text())
    assert list(found) == [5, 10, 15]  # it falls, so that the first is the best
    assert (progress["best"], progress["best_step"], progress["stale"]) == (found[5], 5, 2)


@pytest.mark.parametrize(
    ("metric", "message"),
    [
        ("val/eror", "training.metric: validation gives no val/eror; did you mean val/error? It gives val/error"),
        ("up:val/error", "training.metric: up:val/error: a direction is max or min, as in max:val/error"),
    ],
)
def test_a_metric_that_no_validation_gives_is_refused_with_the_nearest(alone, metric, message):
    with pytest.raises(UserError, match=re.escape(message)):
        alone("mistyped", steps=9, validation_steps=3, metric=metric)


def test_what_was_trained_before_a_mistyped_metric_was_found_is_kept(alone, tmp_path):
    with pytest.raises(UserError, match="continue with --resume training"):
        alone("slip", steps=9, validation_steps=3, checkpoint_steps=5, metric="val/eror")
    assert [path.name for path in Path("runs/toy/slip/checkpoints").iterdir()] == ["step-000003"]
