"""The doctor's command on machines in several states."""

import re
import shutil

import fake_driver
import pytest
import torch

from tests import forked
from tests.stages import ROOT

DOCTOR = ["pipelines/doctor.py"]


@pytest.mark.parametrize(
    "fresh",
    [
        pytest.param(False, marks=pytest.mark.skipif(bool(shutil.which("nvidia-smi")), reason="there is a driver")),
        pytest.param(True, marks=pytest.mark.slow),
    ],
)
def test_a_healthy_cpu_machine_is_ready(tmp_path, fresh):
    if fresh:
        done = fake_driver.run(DOCTOR, fake_driver.absent(tmp_path), CUDA_VISIBLE_DEVICES="")
    else:
        done = forked.run(DOCTOR, ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith("ready to train\n")
    assert done.stderr == ""
    for line in (
        r"^ok +Python 3",
        r"^(ok|warning) .*requirements.txt",
        r"GB free",
        rf"^ok +torch {re.escape(torch.__version__)}",
        r"^ok +cpu: forward, backward and optimizer step",
        r"^ok +Accelerate .*device cpu, 1 process, mixed precision no",
    ):
        assert re.search(line, done.stdout, flags=re.MULTILINE), f"{line} in\n{done.stdout}"


@pytest.mark.slow
@pytest.mark.skipif(torch.version.cuda is not None, reason="this torch is no CPU-only build")
def test_a_gpu_that_a_cpu_only_torch_would_ignore_is_a_problem_with_the_command(tmp_path):
    libraries = fake_driver.build(tmp_path)
    done = fake_driver.run(DOCTOR, libraries, FAKE_NVML_GPUS="2")
    assert done.returncode == 1
    assert "sees Imaginary GPU 0, Imaginary GPU 1, but torch" in done.stdout
    version = torch.__version__.partition("+")[0]
    command = f"pip install torch=={version}+cu126 --index-url https://download.pytorch.org/whl/cu126\n"
    assert command in done.stdout
    assert done.stdout.endswith("not ready: 1 problem; run the command after each ->, then run this again\n")


def test_the_doctor_takes_no_arguments(tmp_path):
    done = fake_driver.run([*DOCTOR, "--fast"], tmp_path)
    assert done.returncode == 2
    assert "python pipelines/doctor.py" in done.stdout


def test_a_machine_without_torch_is_told_what_to_install(tmp_path):
    # -S leaves out site-packages: no package is there at all.
    done = fake_driver.run(["-S", *DOCTOR], tmp_path)
    assert done.returncode == 1
    assert "not installed: torch==" in done.stdout
    assert "torch cannot be imported" in done.stdout
    assert "-m pip install -r requirements.txt" in done.stdout
    assert done.stderr == ""
