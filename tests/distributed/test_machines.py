"""Two processes with a folder each, as two machines without a shared disk: what is on the first one's disk decides."""

import os
import re
import shutil
import signal
import socket
import subprocess
import time

import pytest

from tests import forked
from tests.engine.calm import FAULTS, left
from tests.engine.test_durability import RUN, WORDS
from tests.stages import ROOT, refused
from tests.test_own_workload import MANY

SECONDS = 600  # in which a command starts on all machines and does its work, however busy they are
SOON = 120  # in which it ends when it is told to, or the other machine's has ended


class Machines:
    """Two folders that stand for machines, and commands that are started on both at once."""

    def __init__(self, folder, more=""):
        self.package = folder / "waves"
        shutil.copytree(ROOT / "tests/example_workload", self.package, ignore=shutil.ignore_patterns("__pycache__"))
        with (self.package / "__init__.py").open("a") as file:
            file.write(more)
        self.folders = [folder / "first", folder / "second"]
        for machine in self.folders:
            machine.mkdir()

    def start(self, script, *words, fault=()):
        """Start a command; returns its two processes. A fault concerns the first machine only."""
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        base = {**os.environ, "OMP_NUM_THREADS": "1", "ACCELERATE_USE_CPU": "true"}
        fork = forked._can_fork(base)
        base |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "1"}
        command = [FAULTS, *fault] * bool(fault) + [ROOT / "pipelines" / script, "--workload", self.package, *words]
        return [
            forked.Process([*map(str, command)], machine, base | {"RANK": str(rank), "LOCAL_RANK": "0"}, fork)
            for rank, machine in enumerate(self.folders)
        ]

    def run(self, script, *words, fault=()):
        """Run a command to its end; returns (exit status, stdout, stderr) of each machine."""
        return [(process.finish(SECONDS), *process.output()) for process in self.start(script, *words, fault=fault)]

    def share_data(self):
        """Copy what the first machine has prepared to the second one, unless that is done."""
        first, second = self.folders
        if not (second / "data").exists():
            self.run("train.py", *WORDS)  # which the second one refuses
            shutil.copytree(first / "data", second / "data")

    def done(self, script, *words):
        ended = self.run(script, *words)
        assert [status for status, _, _ in ended] == [0, 0], ended
        return ended

    def refused(self, script, *words, says, fault=()):
        """Both end with status 2; the first says why."""
        ended = self.run(script, *words, fault=fault)
        assert [status for status, _, _ in ended] == [2, 2], ended
        refused(subprocess.CompletedProcess([], *ended[0]), *says)


@pytest.fixture(scope="module")
def machines(tmp_path_factory):
    return Machines(tmp_path_factory.mktemp("machines"))


@pytest.mark.slow
def test_a_machine_without_the_data_is_refused_with_what_to_do(machines):
    machines.refused("train.py", *WORDS, says=["does not see data/", "copy that folder to", "shared disk"])
    first, second = machines.folders
    assert not (second / "runs").exists()
    shutil.copytree(first / "data", second / "data")
    ((_, _, said), _) = machines.done("train.py", *WORDS)
    assert "batch of 8: 2 processes x" in said
    assert not (second / "runs").exists()
    machines.refused("train.py", *WORDS, says=["exists: continue it with --resume"])


@pytest.mark.slow
def test_the_first_machines_disk_is_what_is_resumed_and_evaluated(machines, tmp_path):
    first, second = machines.folders
    machines.share_data()
    for folder in machines.folders:
        shutil.rmtree(folder / "runs", ignore_errors=True)
    machines.done("train.py", *WORDS)
    calm = left(first)
    (second / RUN).mkdir(parents=True)
    (second / RUN / "config.yaml").write_text("another: run")  # which decides nothing
    shutil.rmtree(first / "runs")
    for process in machines.start("train.py", *WORDS, fault=("kill", 60)):
        process.finish(SECONDS)
        process.output()
    ((_, _, said), _) = machines.done("train.py", "--resume")
    assert "resumed from runs/waves/default/checkpoints/step-000002" in said
    assert left(first) == calm
    ((_, said, _), _) = machines.done("evaluate.py")
    assert "last value again" in said
    machines.refused("train.py", "--resume", "training.steps=8", says=["disk is full"], fault=("ENOSPC", 30))


@pytest.mark.slow
def test_members_need_a_disk_that_all_machines_share(tmp_path):
    machines = Machines(tmp_path, MANY)
    machines.share_data()
    machines.refused("train.py", *WORDS, says=["does not see runs/waves/default", "shared disk", "--only"])


@pytest.fixture
def training(tmp_path):
    """Two machines that have begun a training of many steps; returns them and their two processes."""
    machines = Machines(tmp_path)
    machines.share_data()
    first, _ = machines.folders
    processes = machines.start("train.py", *WORDS, "--name", "long", "training.steps=100000")
    assert forked.until(lambda: len(records(first)) > 5, SECONDS), processes[0].output()
    yield machines, processes
    for process in processes:
        process.send_signal(signal.SIGKILL)
        process.wait()
        for stream in process.streams:
            stream.close()


def records(folder):
    path = folder / "runs/waves/long/metrics.jsonl"
    return path.read_text().splitlines() if path.exists() else []


@pytest.mark.slow
@pytest.mark.parametrize(
    "number",
    [signal.SIGTERM, *(pytest.param(each, marks=pytest.mark.exhaustive) for each in (signal.SIGUSR1, signal.SIGHUP))],
)
def test_a_signal_to_one_process_stops_all_of_them_and_saves(training, number):
    machines, processes = training
    processes[1].send_signal(number)
    assert [process.finish(SOON) for process in processes] == [128 + number] * 2
    assert re.search(rf"stopped by {number.name} after step (\d+); continue with --resume", processes[0].output()[1])
    assert list((machines.folders[0] / "runs/waves/long/checkpoints").iterdir())


@pytest.mark.slow
@pytest.mark.parametrize("dies", [1, 0])
def test_a_process_that_dies_is_named_at_once_and_ends_the_other(training, dies):
    _, processes = training
    began = time.monotonic()
    processes[dies].send_signal(signal.SIGKILL)
    assert processes[1 - dies].finish(SOON) == 1
    assert time.monotonic() - began < 10
    said = processes[1 - dies].output()[1]
    line = rf"process {dies} on {socket.gethostname()} has died; last seen \d s ago, \w+ after step \d+; --resume"
    assert re.search(line, said), said
    assert "Traceback" not in said


@pytest.mark.exhaustive
def test_a_process_that_is_halted_is_named_after_a_minute_and_ends_the_other_after_patience(tmp_path):
    machines = Machines(tmp_path)
    machines.share_data()
    words = ["--name", "long", "training.steps=100000", "hardware.patience=75"]
    processes = machines.start("train.py", *WORDS, *words)
    try:
        assert forked.until(lambda: len(records(machines.folders[0])) > 5, SECONDS)
        began = time.monotonic()
        processes[1].send_signal(signal.SIGSTOP)
        stream = processes[0].streams[1]

        def said():
            stream.seek(0)
            return stream.read()

        assert forked.until(lambda: "has given no sign of life" in said(), 70), said()
        assert 55 < time.monotonic() - began < 70
        assert processes[0].finish(SOON) == 1
        assert re.search(r"error: process 1 on \S+ has given no sign of life for \d+ s; .* after step \d+", said())
    finally:
        for process in processes:
            process.send_signal(signal.SIGKILL)
            process.wait()
            process.output()


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
    "seconds", [pytest.param(10, marks=pytest.mark.slow), pytest.param(60, marks=pytest.mark.exhaustive)]
)
def test_a_signal_in_a_validation_is_heard_there_and_nothing_is_lost(tmp_path, seconds):
    """Ten items are held out: a round of two each takes a fifth of the validation."""
    machines = Machines(tmp_path, SLOW.format(pause=seconds / 5))
    machines.share_data()
    words = [*WORDS, "training.steps=6", "training.validation_steps=3", "training.checkpoint_steps=100"]
    first, second = machines.start("train.py", *words, "training.micro_batch_size=1")
    saved = machines.folders[0] / RUN / "checkpoints/step-000003"
    assert forked.until(lambda: (machines.folders[1] / "validating").exists(), SECONDS), first.output()
    began = time.monotonic()
    second.send_signal(signal.SIGUSR1)
    assert [process.finish(SOON) for process in (first, second)] == [128 + signal.SIGUSR1] * 2
    assert time.monotonic() - began < 20
    said, _ = first.output()[1], second.output()
    assert "stopped by SIGUSR1 after step 3" in said
    assert saved.is_dir()


@pytest.mark.parametrize(
    "seconds", [pytest.param(4, marks=pytest.mark.slow), pytest.param(60, marks=pytest.mark.exhaustive)]
)
def test_a_process_that_is_halted_for_a_while_goes_on(training, seconds):
    machines, processes = training
    processes[1].send_signal(signal.SIGSTOP)
    time.sleep(2)
    halted = len(records(machines.folders[0]))
    time.sleep(seconds)
    assert len(records(machines.folders[0])) == halted
    processes[1].send_signal(signal.SIGCONT)
    assert forked.until(lambda: len(records(machines.folders[0])) > halted + 5, SECONDS)
    processes[0].send_signal(signal.SIGTERM)
    assert [process.finish(SOON) for process in processes] == [128 + signal.SIGTERM] * 2
