"""The benchmark on a GPU that is only pretended: its figures do not wait for the CPU's."""

import json
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch

from common.errors import UserError
from pipelines import benchmark, loading, workloads
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
    workload = SimpleNamespace(task=lambda *_: task, config=workloads.find("cvrp").config, expand=lambda *_: {})
    monkeypatch.setattr(workloads, "find", lambda name: workload)
    monkeypatch.setattr(training, "make_accelerator", lambda config, run: accelerator)
    monkeypatch.setattr(loading, "prepare_first", lambda *_: (tmp_path, {}))
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


def test_what_is_compared_is_timed_on_data_of_its_own(gpu, monkeypatch, capsys):
    seen = []
    workload = workloads.find("cvrp")
    monkeypatch.setattr(
        loading, "prepare_first", lambda args, workload, config: (f"data of {config.data.customers}", {})
    )
    monkeypatch.setattr(workload, "task", lambda config, folder, device: seen.append(folder) or workload)
    workload.model = torch.nn.Linear(1, 1)
    monkeypatch.setattr(throughput, "measure", lambda *_: {"examples_per_s": 100.0, "targets_per_s": 7.0})
    words = ["--workload", "cvrp", "data.customers=20", "--cpu-seconds", "0", "--compare"]
    monkeypatch.setattr(sys, "argv", ["benchmark.py", *words, "data.customers=50"])
    benchmark.main()
    assert seen == ["data of 20", "data of 50"]
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["targets_per_s, data.customers=50"] == 7.0
    monkeypatch.setattr(sys, "argv", ["benchmark.py", *words, "data.custmers=50"])
    with pytest.raises(UserError, match=r"did you mean 'data.customers'"):
        benchmark.main()
    assert len(seen) == 2  # nothing was timed before that


@pytest.mark.parametrize("steps", ["0", "-3"])
def test_there_is_a_step_to_time(gpu, monkeypatch, steps):
    monkeypatch.setattr(sys, "argv", ["benchmark.py", "--workload", "cvrp", "--steps", steps])
    with pytest.raises(UserError, match=f"--steps {steps}: give 1 or more"):
        benchmark.main()
