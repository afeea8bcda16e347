"""The Accelerator of a run, and what surrounds its loop."""

import json
import shutil
from types import SimpleNamespace

import pytest
import torch
from accelerate.state import AcceleratorState

from common.errors import UserError
from pipelines import run_config
from pipelines.engine import training
from pipelines.engine.config import BaseConfig
from pipelines.run.folder import Run
from pipelines.tracking import trackers
from pipelines.tracking.trackers import TRACKERS
from tests.members import toys as members

TRAINING = {"steps": 2, "batch_size": 16, "checkpoint_steps": 2}


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(members.io, "save", members.io.save)  # put back what `find` replaces


def config_of(*trackers):
    return BaseConfig(training=TRAINING, tracking={"log_with": trackers})


def test_a_tracker_that_is_not_installed_is_refused_with_what_to_type(monkeypatch):
    monkeypatch.setitem(TRACKERS, "wandb", "a_package_that_nobody_has")
    with pytest.raises(UserError) as error:
        training.make_accelerator(config_of("tensorboard", "wandb"), Run("toy", "watched"))
    message = "tracking.log_with: wandb is not installed; pip install a_package_that_nobody_has"
    assert str(error.value) == message


def test_a_launch_that_the_machine_cannot_do_is_refused_with_where_to_look(monkeypatch):
    def refuses(**asked):
        raise RuntimeError("There are currently no available devices found")  # as for FSDP without a GPU

    monkeypatch.setattr(training, "Accelerator", refuses)
    with pytest.raises(UserError, match=r"Accelerate does not start: There are .* found; python pipelines/doctor.py"):
        training.make_accelerator(config_of(), Run("toy", "unlaunched"))


def test_trackers_that_are_asked_for_write_below_the_run(tmp_path):
    accelerator = training.make_accelerator(config_of("tensorboard"), Run("toy", "watched"))
    assert [tracker.value for tracker in accelerator.log_with] == ["tensorboard"]
    assert accelerator.logging_dir == "runs/toy/watched/trackers"
    elsewhere = SimpleNamespace(log_with=["tensorboard"], is_main_process=False, init_trackers=lambda *_, **__: None)
    trackers.start(elsewhere, config_of("tensorboard"), Run("toy", "watched"))
    assert not (tmp_path / "runs").exists()  # the run's folder is the main process's
    assert training.make_accelerator(config_of(), Run("toy", "alone")).log_with == []


def test_a_tracker_without_tables_is_sent_none(monkeypatch):
    monkeypatch.setitem(TRACKERS, "math", "math")
    trackers.track(SimpleNamespace(trackers=[SimpleNamespace(name="math")]), 1, {"weights": torch.ones(2)}, {})


def test_training_begins_the_run_with_the_facts_of_its_data_and_shows_the_tasks_notes(tmp_path, capsys):
    workload, run = members.find(), Run("toy", "noted")
    config = members.Config(training={**TRAINING, "warmup_steps": 9})

    class Noted(members.ToyTask):
        notes = ("a note",)

    workload = type(workload)(**{**vars(workload), "task": lambda config, folder, device: Noted()})
    accelerator = training.make_accelerator(config, run)
    progress = training.train(workload, config, tmp_path, {"rows": 7}, run, accelerator, resume=False)
    assert (progress.step, progress.best_step) == (2, 2)
    assert run.config(members.Config) == config
    assert json.loads((run.folder / "provenance.json").read_text())["data"] == {"rows": 7}
    printed = capsys.readouterr().out.splitlines()
    assert "97 parameters on cpu" in printed
    assert "a note" in printed
    assert "training.warmup_steps=9 is more than the run's 2 updates" in printed


def test_resume_of_a_run_that_was_never_begun_starts_it(tmp_path):
    workload, run, config = members.find(), Run("toy", "new"), members.Config(training=TRAINING)
    progress = training.train(workload, config, tmp_path, {}, run, training.make_accelerator(config, run), resume=True)
    assert progress.step == 2


@pytest.mark.parametrize(("content", "anew"), [("same", False), ("other", True)])
def test_resume_begins_anew_where_the_data_are_others(tmp_path, capsys, content, anew):
    workload, run = members.find(), Run("toy", "renewed")
    for training_steps, known in ((2, "same"), (4, content)):
        config = members.Config(training={**TRAINING, "steps": training_steps})
        accelerator = training.make_accelerator(config, run)
        facts = {"content": known}
        assert training.train(workload, config, tmp_path, facts, run, accelerator, resume=known != "x").step
        (run.folder / "train.log").touch()
    assert ("its data have changed: training starts over" in capsys.readouterr().out) == anew
    assert [entry["step"] for entry in run.metrics() if "train/loss" in entry] == ([4] if anew else [2, 4])
    assert run.learnt_from(content)
    assert (run.folder / "train.log").exists()
    steps = sorted(path.name for path in run.checkpoints.glob("step-*"))
    assert steps == ["step-000002", "step-000004"]


def test_resume_may_change_what_changes_results_by_rounding_alone_and_says_so(capsys):
    workload, run = members.find(), Run("toy", "moved")
    run.begin(members.Config(training=TRAINING), 1, {})
    run.record({"step": 1})  # so that it is no blank one

    def resumed(*words):
        args = SimpleNamespace(resume=True, restarted=False, config=None, words=words, workload="toy")
        return run_config.training_config(args, workload, run)

    moved = resumed("training.micro_batch_size=4", "hardware.tf32=false", "training.steps=5")
    assert (moved.training.micro_batch_size, moved.hardware.tf32, moved.training.steps) == (4, False, 5)
    assert capsys.readouterr().err == (
        "continuing with settings that change results only by rounding:\n"
        "  training.micro_batch_size: auto -> 4\n  hardware.tf32: True -> False\n"
    )
    with pytest.raises(UserError, match=r"training.micro_batch_size and hardware.\* change.*\n  seed: 0 -> 1$"):
        resumed("training.micro_batch_size=4", "seed=1")


def test_a_run_that_is_done_begins_again_without_its_checkpoints_for_other_data_alone(tmp_path):
    workload, run = members.find(), Run("toy", "cleaned")

    def train(content, resume):
        args = SimpleNamespace(resume=resume, restarted=False, config=None, words=[], workload="toy")
        config = run_config.training_config(args, workload, run) if resume else members.Config(training=TRAINING)
        accelerator = training.make_accelerator(config, run)
        return training.train(workload, config, tmp_path, {"content": content}, run, accelerator, resume)

    train("candles", resume=False)
    for path in run.checkpoints.iterdir():  # the folder itself stays
        shutil.rmtree(path)
    with pytest.raises(UserError, match=r"runs/toy/cleaned is done, and its checkpoints are gone.*another --name"):
        train("candles", resume=True)
    assert run.outcome()["state"] == "done"
    assert train("newer candles", resume=True).step == TRAINING["steps"]
    assert any(run.checkpoints.iterdir())


def test_a_done_run_stays_done_when_an_evaluation_records_its_provenance_again(tmp_path):
    workload, run, config = members.find(), Run("toy", "judged"), members.Config(training=TRAINING)
    accelerator = training.make_accelerator(config, run)
    training.train(workload, config, tmp_path, {}, run, accelerator, resume=False)
    outcome = run.outcome()
    run.provenance_file.unlink()
    run.begin(config, 1, {}, accelerator.mixed_precision)
    assert run.outcome() == outcome
    assert outcome["state"] == "done"

    class Killed(BaseException):
        """Nothing that a process could answer."""

    def task(*_):
        class Task(members.ToyTask):
            def loss(self, *_):
                raise Killed

        return Task()

    config = members.Config(training={**TRAINING, "steps": 9})
    workload = type(workload)(**{**vars(workload), "task": task})
    with pytest.raises(Killed):
        training.train(workload, config, tmp_path, {}, run, training.make_accelerator(config, run), resume=True)
    assert run.outcome() == {}


def test_resume_may_name_another_metric_until_one_has_chosen_a_model():
    workload, run = members.find(), Run("toy", "slip")
    run.begin(members.Config(training={**TRAINING, "metric": "val/eror"}), 1, {})
    run.member("a").begin(members.Config(training=TRAINING), 1, {})
    run.member("a").record({"step": 1, "train/loss": 1.0})
    args = SimpleNamespace(
        resume=True, restarted=False, config=None, words=["training.metric=val/error"], workload="toy"
    )
    assert run_config.training_config(args, workload, run).training.metric == "val/error"
    run.member("a").record({"step": 1, "val/error": 1.0})
    with pytest.raises(UserError, match=r"training\.metric: val/eror -> val/error$"):
        run_config.training_config(args, workload, run)


def test_another_precision_is_refused_or_allowed_and_recorded(tmp_path, monkeypatch):
    workload, run = members.find(), Run("toy", "rounded")

    def train(steps, precision, content="same", **hardware):
        config = members.Config(training={**TRAINING, "steps": steps}, hardware=hardware)
        accelerator = training.make_accelerator(config, run)
        # A launcher's word, which would hold for all that this process trains.
        monkeypatch.setitem(AcceleratorState._shared_state, "_mixed_precision", precision)
        return training.train(workload, config, tmp_path, {"content": content}, run, accelerator, resume=steps > 2)

    train(2, "no")
    run.judged.mkdir()
    with pytest.raises(UserError, match=r"with --mixed_precision no, and would continue with bf16.*change_precision"):
        train(4, "bf16")
    assert run.judged.is_dir()  # and in the place of the best one what was fitted on all data, as nothing was trained
    assert train(4, "bf16", change_precision=True).step == 4
    recorded = json.loads(run.provenance_file.read_text())
    assert [start["mixed_precision"] for start in (*recorded["earlier"], recorded)] == ["no", "bf16"]

    (run.folder / "train.log").touch()
    assert train(3, "no", content="others").step == 3  # which begins anew, in any precision


@pytest.mark.parametrize(
    ("precision", "instructions", "noted"),
    [("bf16", "AVX2", 1), ("bf16", "AVX512", 0), ("no", "AVX2", 0), ("fp16", "AVX512", 1)],
)
def test_a_precision_that_a_cpu_lacks_is_told(monkeypatch, precision, instructions, noted):
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: instructions)
    assert len(training.unsuited(torch.device("cpu"), precision)) == noted
    assert training.unsuited(torch.device("cuda"), precision) == []


@pytest.mark.parametrize("instructions", ["AVX2", None])
def test_an_lstm_computes_in_bf16_whatever_the_cpu_lacks(monkeypatch, instructions):
    if instructions:
        monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: instructions)
    training.make_accelerator(config_of(), Run("toy", "alone"))
    monkeypatch.setitem(AcceleratorState._shared_state, "_mixed_precision", "bf16")
    accelerator = training.make_accelerator(config_of(), Run("toy", "alone"))
    with accelerator.autocast():
        found, _ = torch.nn.LSTM(3, 5, batch_first=True)(torch.ones(2, 4, 3))
    assert found.isfinite().all()
    assert torch.backends.mkldnn.enabled == (torch.backends.cpu.get_cpu_capability() != "AVX2")
