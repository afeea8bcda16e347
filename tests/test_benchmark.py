"""The benchmark on a GPU that is only pretended: its figures do not wait for the CPU's."""

import json
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch

from pipelines import benchmark, cli, workloads
from pipelines.checks import throughput
from pipelines.engine import training
from pipelines.engine.config import Hardware


@pytest.fixture
def gpu(monkeypatch, tmp_path):
    """A GPU on which every benchmark makes 100 examples per second."""
    accelerator = SimpleNamespace(
        device=torch.device("cuda"), num_processes=1, is_main_process=True, print=print, mixed_precision="no"
    )
    task = SimpleNamespace(model=torch.nn.Linear(1, 1))
    workload = SimpleNamespace(task=lambda *_: task, config=workloads.find("cvrp").config, expand=None)
    monkeypatch.setattr(workloads, "find", lambda name: workload)
    monkeypatch.setattr(training, "make_accelerator", lambda config, run: accelerator)
    monkeypatch.setattr(cli, "prepare_first", lambda *_: (tmp_path, {}))
    monkeypatch.setattr(Hardware, "apply", lambda *_: None)
    monkeypatch.setattr(throughput, "measure", lambda *_: {"examples_per_s": 100.0})


def output_of(monkeypatch, capsys, run, *words):
    """What the benchmark prints before and after `run`, which stands for the process on the CPU."""
    before = []

    def called(command, **settings):
        before.append(capsys.readouterr().out)
        return run(command, **settings)

    monkeypatch.setattr(subprocess, "run", called)
    monkeypatch.setattr(sys, "argv", ["benchmark.py", "--workload", "cvrp", *words])
    benchmark.main()
    return before, capsys.readouterr()


def test_the_gpus_figures_are_printed_before_the_cpu_is_timed(gpu, monkeypatch, capsys):
    def run(command, env, timeout, **_):
        assert (env["ACCELERATE_TORCH_DEVICE"], timeout) == ("cpu", 600)
        return SimpleNamespace(stdout='a table\n{"examples_per_s": 4.0}\n')

    [before], after = output_of(monkeypatch, capsys, run)
    assert json.loads(before.splitlines()[-1]) == {"examples_per_s": 100.0}
    last = json.loads(after.out.splitlines()[-1])
    assert last == {"examples_per_s": 100.0, "cpu": {"examples_per_s": 4.0}, "times_faster_than_cpu": 25.0}


def test_a_cpu_that_is_too_slow_takes_nothing_from_the_gpus_figures(gpu, monkeypatch, capsys):
    def run(command, timeout, **_):
        raise subprocess.TimeoutExpired(command, timeout)

    [before], after = output_of(monkeypatch, capsys, run, "--cpu-seconds", "7")
    assert json.loads(before.splitlines()[-1]) == {"examples_per_s": 100.0}
    assert (after.out, after.err) == ("", "not timed on the CPU: 7 s are not enough\n")
    assert output_of(monkeypatch, capsys, run, "--cpu-seconds", "0")[0] == []
