"""GPUs that the driver sees and torch does not, on machines that are only pretended."""

import types

import pytest
import torch

from common.gpu import Driver
from pipelines.checks import pytorch as gpus


@pytest.fixture
def machine(monkeypatch):
    """Return a function that sets up what driver and torch say: machine("12.6", driver(...), fault=None)."""

    def pretend(cuda, driver=None, fault=None):
        monkeypatch.setattr(torch.version, "cuda", cuda)
        monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
        monkeypatch.setattr(gpus, "read_driver", lambda: driver)
        monkeypatch.setattr(gpus, "driver_fault", lambda: fault)
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)

    return pretend


def driver_of(version, cuda, capabilities):
    return Driver(version, cuda, tuple(f"GPU {index}" for index in range(len(capabilities))), capabilities)


def test_gpus_hidden_by_the_environment_are_a_warning(machine, monkeypatch):
    machine("12.6", driver_of("550", (12, 4), ((8, 0),)))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    [finding] = gpus.check_gpus()
    assert finding.level == "warning"
    assert "CUDA_VISIBLE_DEVICES='' hides every GPU from torch" in finding.message
    assert finding.remedy == "unset CUDA_VISIBLE_DEVICES"


def test_a_driver_too_old_for_this_torch_gets_the_build_that_it_runs(machine):
    machine("13.0", driver_of("550", (12, 4), ((8, 0),)))
    [finding] = gpus.check_gpus()
    assert finding.level == "problem"
    assert "up to CUDA 12.4) sees GPU 0, but is too old for torch" in finding.message
    assert finding.remedy.endswith("+cu126 --index-url https://download.pytorch.org/whl/cu126")


def test_a_driver_too_old_for_every_build_must_be_updated(machine):
    machine(None, driver_of("470", (11, 4), ((8, 0),)))
    [finding] = gpus.check_gpus()
    assert finding.level == "problem"
    assert "which must be updated first" in finding.message
    assert "ubuntu-drivers install" in finding.remedy


def test_a_gpu_that_torch_cannot_open_is_a_problem_with_its_reason(machine, monkeypatch):
    def init():
        raise RuntimeError("CUDA unknown error\nlong trace")

    machine("12.6", driver_of("550", (12, 4), ((8, 0),)))
    monkeypatch.setattr(torch.cuda, "init", init)
    [finding] = gpus.check_gpus()
    assert finding.level == "problem"
    assert finding.message.endswith("torch cannot use it: CUDA unknown error")


@pytest.mark.parametrize(
    ("setup", "level", "text"),
    [
        ({"cuda": None, "fault": "no driver"}, "ok", "no NVIDIA GPU: training runs on the CPU"),
        ({"cuda": "12.6", "fault": "no driver"}, "warning", "no NVIDIA driver"),
        ({"cuda": None, "fault": "no package"}, "ok", "no NVIDIA GPU: training runs on the CPU"),
        ({"cuda": "12.6", "fault": "no package"}, "warning", "no NVIDIA driver known of without nvidia-ml-py: torch"),
        ({"cuda": "12.6", "fault": "NVML/RM version mismatch"}, "problem", "updated while it was loaded"),
        ({"cuda": "12.6", "fault": "Driver Not Loaded"}, "problem", "does not answer: Driver Not Loaded"),
    ],
)
def test_a_machine_without_a_gpu_that_answers_says_why(machine, monkeypatch, setup, level, text):
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    machine(**setup)
    [finding] = gpus.check_gpus()
    assert finding.level == level
    assert text in finding.message


def visible_gpus(monkeypatch, capabilities):
    """Let torch show GPUs of these capabilities."""
    devices = [
        types.SimpleNamespace(name=f"GPU {index}", major=major, minor=minor, total_memory=16 * 2**30)
        for index, (major, minor) in enumerate(capabilities)
    ]
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: len(devices))
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: devices[index])
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capabilities[device.index])


def test_a_gpu_without_kernels_gets_the_build_that_has_them(machine, monkeypatch):
    def step(device):
        if device == torch.device("cuda", 1):
            raise RuntimeError("no kernel image is available\nCompile with ...")

    machine("13.0", driver_of("580", (13, 0), ((9, 0), (6, 1))))
    visible_gpus(monkeypatch, [(9, 0), (6, 1)])
    monkeypatch.setattr(gpus, "training_step", step)
    *good, bad = gpus.check_training_step()
    assert {finding.level for finding in good} == {"ok"}
    assert (bad.level, bad.message) == ("problem", "cuda:1: a training step failed: no kernel image is available")
    assert bad.remedy.endswith("+cu126 --index-url https://download.pytorch.org/whl/cu126")


def test_a_part_of_the_gpus_is_said_to_be_visible(machine, monkeypatch):
    machine("12.6", driver_of("550", (12, 4), ((8, 0), (8, 0))))
    visible_gpus(monkeypatch, [(8, 0)])
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    part, seen = gpus.check_gpus()
    assert part.message == "torch sees 1 of the driver's 2 GPUs (CUDA_VISIBLE_DEVICES=1)"
    assert seen.message == "cuda:0: GPU 0, compute capability 8.0, 16.0 GiB"
