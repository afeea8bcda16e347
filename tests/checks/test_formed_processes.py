"""Processes that were asked for but did not find each other, under the real launchers on a CPU."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from common.errors import UserError
from pipelines.checks import accelerate_config
from tests.stages import PYTHONPATH

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent

SCRIPT = """
import sys
from accelerate import Accelerator
from common.errors import UserError
from pipelines.checks.accelerate_config import check_world
accelerator = Accelerator()
try:
    check_world(accelerator.num_processes)
except UserError as error:
    print(f"error: {error}", file=sys.stderr, flush=True)
    sys.exit(2)
print(f"process {accelerator.process_index} of {accelerator.num_processes}", flush=True)
accelerator.wait_for_everyone()  # or the first to leave closes connections that the other is still making
accelerator.end_training()
"""

MULTI_CPU = """
distributed_type: MULTI_CPU
use_cpu: true
num_machines: 1
num_processes: 2
mixed_precision: 'no'
"""

FLAGS = ["--num_machines", "1", "--mixed_precision", "no", "--dynamo_backend", "no"]
SHARED_FLAGS = " ".join(FLAGS)

needs_cpu_only = pytest.mark.skipif(torch.cuda.is_available(), reason="with a GPU these spellings use it")


def start(folder, *words, **environment):
    """Run `words`, a launcher and its flags, on a script that checks its world, with two words of its own."""
    (folder / "tiny.py").write_text(SCRIPT)
    launcher = ("ACCELERATE_", "LOCAL_", "MASTER_", "RANK", "WORLD_SIZE")
    clean = {key: value for key, value in os.environ.items() if not key.startswith(launcher)}
    clean |= {"PYTHONPATH": PYTHONPATH, "HF_HOME": str(folder / "hub"), "OMP_NUM_THREADS": "1"}
    program, *flags = words
    command = [sys.executable, str(BIN / program), *flags, "tiny.py", "--name", "two words"]
    return subprocess.run(command, cwd=folder, env=clean | environment, capture_output=True, text=True, timeout=600)


@pytest.mark.slow
def test_the_cpu_flag_starts_one_process_of_two_and_is_refused(tmp_path):
    done = start(tmp_path, "accelerate", "launch", "--cpu", "--num_processes", "2", *FLAGS)
    assert "returned non-zero exit status 2" in done.stderr
    assert "error: accelerate launch was asked for 2 processes, but started 1" in done.stderr
    assert (
        f"  ACCELERATE_USE_CPU=true accelerate launch --multi_gpu --num_processes 2 {SHARED_FLAGS} "
        "tiny.py --name 'two words'\n"
    ) in done.stderr
    assert f"  accelerate launch --cpu --num_processes 1 {SHARED_FLAGS} tiny.py --name 'two words'\n" in done.stderr
    assert done.stdout == ""


@pytest.mark.slow
def test_a_multi_cpu_config_starts_one_process_of_two_and_is_refused(tmp_path):
    (tmp_path / "multi_cpu.yaml").write_text(MULTI_CPU)
    done = start(tmp_path, "accelerate", "launch", "--config_file", "multi_cpu.yaml")
    assert "returned non-zero exit status 2" in done.stderr
    assert "error: accelerate launch was asked for 2 processes, but started 1" in done.stderr
    assert (
        f"ACCELERATE_USE_CPU=true accelerate launch --multi_gpu --num_processes 2 {SHARED_FLAGS} tiny.py" in done.stderr
    )


@pytest.mark.slow
@needs_cpu_only
def test_multi_gpu_without_gpus_starts_two_strangers_and_is_refused(tmp_path):
    flags = ["--multi_gpu", "--num_processes", "2", "--main_process_port", "0", *FLAGS]
    done = start(tmp_path, "accelerate", "launch", *flags)
    assert re.search(r"exitcode +: 2 ", done.stderr)
    assert "error: 2 processes were asked for and started, but each sees only 1" in done.stderr
    assert (
        f"ACCELERATE_USE_CPU=true accelerate launch --multi_gpu --num_processes 2 {SHARED_FLAGS} tiny.py" in done.stderr
    )
    assert "python pipelines/doctor.py" in done.stderr
    assert done.stdout == ""


@pytest.mark.slow
@needs_cpu_only
def test_torchrun_without_gpus_starts_two_strangers_and_is_refused(tmp_path):
    done = start(tmp_path, "torchrun", "--standalone", "--nproc_per_node", "2")
    assert re.search(r"exitcode +: 2 ", done.stderr)
    assert (
        "  ACCELERATE_USE_CPU=true torchrun --standalone --nproc_per_node 2 tiny.py --name 'two words'\n" in done.stderr
    )
    assert done.stdout == ""


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        ["accelerate", "launch", "--multi_gpu", "--num_processes", "2", "--main_process_port", "0", *FLAGS],
        ["torchrun", "--standalone", "--nproc_per_node", "2"],
    ],
    ids=["accelerate", "torchrun"],
)
def test_the_recommended_spellings_form_two_processes(tmp_path, words):
    done = start(tmp_path, *words, ACCELERATE_USE_CPU="true")
    assert done.returncode == 0, done.stderr
    assert sorted(re.findall(r"process \d of \d", done.stdout)) == ["process 0 of 2", "process 1 of 2"]


@pytest.mark.slow
def test_a_master_address_of_the_cluster_is_no_request_for_processes(tmp_path):
    done = start(
        tmp_path, "accelerate", "launch", "--cpu", "--num_processes", "1", *FLAGS, MASTER_ADDR="n1", MASTER_PORT="1"
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "process 0 of 1\n"


@pytest.fixture
def environment(monkeypatch):
    """Replace the launchers' variables by these."""

    def replace(**variables):
        for name in [*os.environ]:
            if name.startswith(("ACCELERATE_", "LOCAL_", "MASTER_", "RANK", "WORLD_SIZE")):
                monkeypatch.delenv(name)
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(sys, "argv", ["pipelines/train.py", "--workload", "cvrp"])

    return replace


def test_a_single_process_passes(environment):
    environment()
    accelerate_config.check_world(1)


def test_all_processes_of_a_launcher_pass(environment):
    environment(WORLD_SIZE="4", LOCAL_RANK="1", LOCAL_WORLD_SIZE="4")
    accelerate_config.check_world(4)


def test_processes_that_form_without_a_launcher_pass(environment):
    environment()
    accelerate_config.check_world(8)


def test_the_doctor_says_what_accelerate_chose_and_that_processes_are_strangers(environment):
    environment(WORLD_SIZE="2", LOCAL_WORLD_SIZE="2")
    chosen, strangers = accelerate_config.check_accelerate()
    assert (chosen.level, "device cpu, 1 process, mixed precision no" in chosen.message) == ("ok", True)
    assert strangers.level == "problem"
    assert strangers.message.startswith("2 processes were asked for and started, but each sees only 1: ")
    assert strangers.remedy.startswith(
        "2 processes on the CPU:\n  ACCELERATE_USE_CPU=true accelerate launch --multi_gpu"
    )
    environment()
    assert len([*accelerate_config.check_accelerate()]) == 1


def test_strangers_on_several_machines_are_told_to_repeat_their_command(environment):
    environment(WORLD_SIZE="4", LOCAL_WORLD_SIZE="2", LOCAL_RANK="0")
    with pytest.raises(UserError, match="put ACCELERATE_USE_CPU=true before the command on each of them"):
        accelerate_config.check_world(1)


def test_where_there_are_gpus_enough_the_command_uses_them(environment, monkeypatch):
    environment(MASTER_ADDR="127.0.0.1", ACCELERATE_MIXED_PRECISION="fp16", ACCELERATE_USE_CPU="False")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    monkeypatch.setattr(accelerate_config, "asked_of_simple_launcher", lambda: 2)
    with pytest.raises(UserError) as error:
        accelerate_config.check_world(1)
    flags = "--num_machines 1 --mixed_precision fp16 --dynamo_backend no pipelines/train.py --workload cvrp"
    assert f"2 GPUs:\n  accelerate launch --multi_gpu --num_processes 2 {flags}\n" in str(error.value)
    assert "ACCELERATE_USE_CPU" not in str(error.value)


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("python .venv/bin/accelerate launch --cpu a.py", ["--cpu", "a.py"]),
        ("python .venv/bin/accelerate-launch --cpu a.py", ["--cpu", "a.py"]),
        ("accelerate.exe launch a.py", ["a.py"]),
        ("python -m accelerate.commands.launch a.py", ["a.py"]),
        ("python -m accelerate.commands.accelerate_cli launch a.py", ["a.py"]),
        ("python .venv/bin/accelerate config", None),
        ("bash -c python a.py", None),
    ],
)
def test_the_launcher_is_known_by_its_command_line(command, words):
    assert accelerate_config.launch_words(command.split()) == words
