"""Whatever happens at whatever change to the disk, --resume ends in the run of an undisturbed training."""

import json
import os
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from common.disk.lock import held
from tests import forked
from tests.engine.calm import Calm, left
from tests.stages import ROOT, refused

WORDS = ["data.examples=50", "training.steps=4", "training.batch_size=8", "training.log_steps=2"]
WORDS += ["training.checkpoint_steps=2", "training.validation_steps=2", "training.keep_checkpoints=1"]
RUN = Path("runs/waves/default")


def waves_of(processes):
    """Return a fixture: the example workload, on so many processes."""

    @pytest.fixture(scope="module")
    def waves(tmp_path_factory):
        package = tmp_path_factory.mktemp("package") / "waves"
        shutil.copytree(ROOT / "tests/example_workload", package, ignore=shutil.ignore_patterns("__pycache__"))
        return Calm(package, tmp_path_factory.mktemp("calm") / "calm", WORDS, processes)

    return waves


one, two = waves_of(1), waves_of(2)


def some(changes, kind):
    """Positions, from 1, of the changes that a fast test samples, others for each kind of fault."""
    kinds = ("kill", "ENOSPC", "EACCES", "EIO")
    return range(3 + 17 * kinds.index(kind), len(changes) + 1, 131)


@pytest.mark.parametrize(
    "kind", ["kill", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("ENOSPC", "EACCES", "EIO"))]
)
def test_a_fault_at_some_changes_to_the_disk_costs_nothing(one, tmp_path, kind):
    for number in some(one.changes, kind):
        one.check_fault(tmp_path / str(number), kind, number)


@pytest.fixture
def trained(one, tmp_path):
    """A copy of the folder in which `one` has trained."""
    return shutil.copytree(one.calm, tmp_path / "trained")


def damage(model):
    content = bytearray((model / "model.safetensors").read_bytes())
    content[len(content) // 2] ^= 1
    (model / "model.safetensors").write_bytes(content)
    os.truncate(model / "config.json", 9)


@pytest.mark.parametrize(
    ("spoil", "which"),
    [
        (shutil.rmtree, "best"),
        (damage, "last"),
        pytest.param(shutil.rmtree, "last", marks=pytest.mark.slow),
        pytest.param(damage, "best", marks=pytest.mark.slow),
    ],
)
def test_resume_of_a_finished_run_mends_its_models_and_says_so(one, trained, spoil, which):
    assert "nothing to do: 4 of 4 steps are done; raise training.steps" in one.resume(trained).stderr
    spoil(trained / RUN / "model" / which)
    said = one.resume(trained).stderr
    assert f"{RUN}/model/{which} was not " in said
    assert "nothing to do" not in said
    assert left(trained) == one.left


def test_a_best_model_that_cannot_be_brought_back_is_said_to_be_lost(one, trained):
    (checkpoint,) = (trained / RUN / "checkpoints").iterdir()
    shutil.rmtree(checkpoint / "best")  # as in a checkpoint of before there were copies
    manifest = json.loads((checkpoint / "manifest.json").read_text())
    kept = {name: digest for name, digest in manifest.items() if not name.startswith("best/")}
    (checkpoint / "manifest.json").write_text(json.dumps(kept))
    assert "nothing to do" in one.resume(trained).stderr
    shutil.rmtree(trained / RUN / "model/best")
    assert "the best model so far, of step 4, is lost" in one.resume(trained).stderr


def test_a_model_of_other_sizes_than_the_code_gives_is_kept_and_said(one, trained):
    stored = trained / RUN / "model/last/config.json"
    described = json.loads(stored.read_text())
    own = described["config"]
    described["config"] = own | {"width": own["width"] + 1}
    stored.write_text(json.dumps(described))
    with_another = f"{RUN} was trained with another width than the data and code here give"
    refused(one.train(trained, "--resume"), with_another, "restore the old ones", "--name")
    assert json.loads(stored.read_text()) == described
    assert (trained / RUN / "outcome.json").is_file()  # it is done as before
    stored.write_text(json.dumps(described | {"config": own | {"of_another_version": 1}}))
    refused(one.train(trained, "--resume"), "was trained with another of_another_version than")


def test_a_second_process_is_refused_and_told_who_trains(one, trained, tmp_path):
    before = left(trained)
    with held(trained / RUN / ".lock"):
        refused(one.train(trained, "--resume"), f"{RUN} is being written by process {os.getpid()} on ")
    assert left(trained) == before


def test_resume_begins_no_run_but_where_a_launcher_starts_it_again(one, trained, tmp_path):
    for name in ("defualt", "default-2"):
        refused(one.train(trained, "--resume", "--name", name), "did you mean --name default?", "leave out --resume")
    assert left(trained) == one.left
    refused(one.train(tmp_path / "bare", "--resume"), "nor any other of waves", "leave out --resume")
    assert not list((tmp_path / "bare").iterdir())
    again = {**os.environ, "OMP_NUM_THREADS": "1", "TORCHELASTIC_RESTART_COUNT": "1"}
    done = forked.run(one.command(*WORDS, "training.steps=1"), tmp_path / "bare", again)
    assert done.returncode == 0, done.stderr


def test_what_is_refused_at_once_is_no_run(one, tmp_path):
    refused(one.train(tmp_path, *WORDS, "training.micro_batch_size=3"), "does not divide")
    assert not (tmp_path / "runs").exists()


def test_a_run_of_which_nothing_came_may_be_begun_again_with_other_words(one, tmp_path):
    number = 1 + one.changes.index("open runs/waves/default/metrics.jsonl")
    assert one.train(tmp_path, *WORDS, "training.micro_batch_size=8", fault=("kill", number)).returncode < 0
    refused(one.train(tmp_path, "--resume", "training.ema=0.5"), "training.ema: None -> 0.5")
    assert one.train(tmp_path, *WORDS).returncode == 0
    assert left(tmp_path) == one.left
    refused(one.train(tmp_path, *WORDS), "the run runs/waves/default exists")


@pytest.mark.exhaustive
@pytest.mark.parametrize("kind", ["kill", "ENOSPC", "EACCES", "EIO"])
@pytest.mark.parametrize("processes", ["one", "two"])
def test_a_fault_at_any_change_to_the_disk_costs_nothing(request, tmp_path, processes, kind):
    waves = request.getfixturevalue(processes)
    for number in range(1, len(waves.changes) + 1):
        waves.check_fault(tmp_path / str(number), kind, number)


@pytest.mark.slow
def test_torchrun_starts_a_killed_training_again_which_then_resumes(two, tmp_path):
    number = 1 + two.changes.index("rename runs/waves/default/checkpoints/.step-000004.tmp")
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2", "--max-restarts", "1"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "ACCELERATE_USE_CPU": "true"}
    environment["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1"  # or gloo finds the addresses of the killed processes
    command = [*launcher, *two.command(*WORDS, fault=("kill", number))]
    done = forked.run(command, tmp_path, environment)
    assert done.returncode == 0, done.stderr
    assert f"resumed from {RUN}/checkpoints/step-000002" in done.stderr
    assert left(tmp_path) == two.left


@pytest.fixture
def slurm(tmp_path):
    """Plays Slurm: starts a job of slurm.sbatch in `tmp_path`, sends SIGUSR1 when it is time, returns the whole log."""
    commands = {"srun": 'exec "$@"', "scontrol": '[ "$1" = show ] && echo localhost || echo "$@" >> queue'}
    for name, line in commands.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{line}\n")
        (tmp_path / name).chmod(0o755)
    os.symlink(ROOT / "pipelines", tmp_path / "pipelines")
    path = os.pathsep.join([str(tmp_path), str(Path(sys.executable).parent), os.environ["PATH"]])
    job = {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "localhost", "SLURM_NNODES": "1", "MASTER_PORT": "0"}
    base = {**os.environ, **job, "PATH": path, "OMP_NUM_THREADS": "1", "ACCELERATE_USE_CPU": "true"}

    def submit(when, *words, **environment):
        command = ["bash", ROOT / "accelerate_configs/slurm.sbatch", *words]
        with open(tmp_path / "log", "w") as log:
            streams = {"stdout": log, "stderr": log, "start_new_session": True}
            process = subprocess.Popen(command, cwd=tmp_path, env=base | environment, **streams)
        try:
            assert forked.until(when, forked.LONG), (tmp_path / "log").read_text()
            process.send_signal(signal.SIGUSR1)
            process.wait(forked.LONG)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        return (tmp_path / "log").read_text()

    return submit


@pytest.mark.slow
def test_under_slurm_a_training_is_saved_before_its_time_is_over_queued_again_and_resumed(one, tmp_path, slurm):
    """Slurm's part is played: its commands, and the signal that it sends."""
    words = ["--workload", one.workload, *WORDS, "training.steps=100000"]
    metrics = tmp_path / RUN / "metrics.jsonl"
    for start, environment in enumerate(({}, {"SLURM_RESTART_COUNT": "1"}), 1):
        begun = metrics.stat().st_size if metrics.exists() else 0

        def more(size=begun):
            return metrics.exists() and metrics.stat().st_size > size + 5000

        said = slurm(more, *words, **environment)
        assert "stopped by SIGUSR1 after step" in said
        assert ("resumed from" in said) == (start == 2)
        assert (tmp_path / "queue").read_text() == "requeue 7\n" * start


def waves(folder, more):
    """Return the path of the example workload in `folder`, with `more` at the end of its code."""
    package = folder / "waves"
    shutil.copytree(ROOT / "tests/example_workload", package, ignore=shutil.ignore_patterns("__pycache__"))
    with (package / "__init__.py").open("a") as file:
        file.write(more)
    return str(package)


ENDLESS = """
import time
from pathlib import Path
from . import evaluation

def evaluate(*_):
    Path("evaluating").touch()
    time.sleep(600)

evaluation.evaluate = evaluate
"""


@pytest.mark.slow
def test_a_signal_ends_an_evaluation_at_once(trained, tmp_path):
    command = [str(ROOT / "pipelines/evaluate.py"), "--workload", waves(tmp_path, ENDLESS)]
    process = forked.Process(command, trained, {**os.environ, "OMP_NUM_THREADS": "1"})
    assert forked.until((trained / "evaluating").exists, forked.LONG), process.output()
    process.send_signal(signal.SIGTERM)
    assert process.finish(60) == 128 + signal.SIGTERM
    assert process.output()[1].endswith("stopped by SIGTERM; evaluate again\n")


SLOW = """
import time
from pathlib import Path
from .task import WavesTask

def score(self, model, batch, own=WavesTask.score):
    Path("validating").touch()
    time.sleep({pause})
    return own(self, model, batch)

WavesTask.score = score
"""


@pytest.mark.parametrize(
    "seconds", [pytest.param(10, marks=pytest.mark.slow), pytest.param(75, marks=pytest.mark.exhaustive)]
)
def test_under_slurm_a_signal_in_a_validation_of_two_processes_loses_nothing(tmp_path, slurm, seconds):
    """Ten items are held out, of which each round takes two. torchrun alone would give 30 seconds."""
    package = waves(tmp_path, SLOW.format(pause=seconds / 5))
    words = ["--workload", package, *WORDS, "training.steps=6", "training.validation_steps=3"]
    words += ["training.checkpoint_steps=100", "training.micro_batch_size=1"]
    said = slurm((tmp_path / "validating").exists, *words, SLURM_GPUS_ON_NODE="2")
    assert "stopped by SIGUSR1 after step 3; continue with --resume" in said
    assert (tmp_path / RUN / "checkpoints/step-000003").is_dir()
    assert (tmp_path / "queue").read_text() == "requeue 7\n"
