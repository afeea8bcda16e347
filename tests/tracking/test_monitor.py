"""Records, rates and lines while training, on a clock that the tests turn."""

import io
import re
import sys
from types import SimpleNamespace

import pytest
import torch

from common.workers import clock
from pipelines.tracking import monitor
from pipelines.tracking.monitor import Monitor


class Watched:
    """A monitor of 100 steps with its fakes: `now` in seconds, `records` of the run, `tracked` by trackers."""

    def __init__(self, monkeypatch, gpu_log_interval=0, main=True):
        self.now, self.records, self.tracked = 1000.0, [], []
        fake_time = SimpleNamespace(perf_counter=lambda: self.now, time=lambda: self.now + 0.12345)
        monkeypatch.setattr(monitor, "time", fake_time)
        monkeypatch.setattr(monitor.ranks, "on_main", lambda function: function() if main else None)
        accelerator = SimpleNamespace(
            is_main_process=main,
            device=torch.device("cpu"),
            log=lambda values, step: self.tracked.append((step, values)),
        )
        run = SimpleNamespace(record=lambda entry: self.records.append(dict(entry)), metrics_file="metrics.jsonl")
        self.monitor = Monitor(accelerator, run, 100, gpu_log_interval)

    def train(self, steps, seconds_each=2.0, waited=0.0, loss=1.0):
        """Count `steps` (a range) of 64 examples each, and log at the last."""
        for step in steps:
            self.now += seconds_each
            self.monitor.count(step, 64, waited)
        self.monitor.log(steps[-1], {"train/loss": loss})


@pytest.fixture
def watched(monkeypatch, capsys):
    watched = Watched(monkeypatch)
    watched.monitor.start(0)
    capsys.readouterr()  # what the figures are
    return watched


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0:00"), (59.9, "0:59"), (61, "1:01"), (3661, "1:01:01"), (86400, "24:00:00")]
)
def test_durations_are_written_as_on_a_clock(seconds, text):
    assert clock(seconds) == text


def test_a_record_has_the_rate_and_the_wait_since_the_last_one(watched):
    watched.train(range(1, 6), seconds_each=2.0, waited=0.5)
    watched.train(range(6, 8), seconds_each=1.0)
    assert watched.records == [
        {"step": 5, "time": 1010.123, "train/loss": 1.0, "examples_per_s": 32.0, "data_wait": 0.25},
        {"step": 7, "time": 1012.123, "train/loss": 1.0, "examples_per_s": 64.0, "data_wait": 0.0},
    ]


def test_a_validation_is_recorded_and_lowers_no_rate(watched, capsys):
    watched.now += 500
    watched.monitor.validated(3, {"val/loss": 0.123456, "val/accuracy": 0.5}, "  best so far")
    assert watched.records == [{"step": 3, "time": 1500.123, "val/loss": 0.123456, "val/accuracy": 0.5}]
    assert capsys.readouterr().err == "step 3/100  val/loss 0.12346  val/accuracy 0.5  best so far\n"
    watched.train(range(4, 6))
    assert watched.records[-1]["examples_per_s"] == 32.0


def test_trackers_get_what_is_recorded(watched):
    watched.train(range(1, 3))
    watched.monitor.validated(2, {"val/loss": 0.5})
    assert [{"step": step, **values} for step, values in watched.tracked] == watched.records


def test_without_a_terminal_each_record_is_a_line(watched, capsys):
    watched.train(range(1, 11), loss=3.0)
    watched.monitor.log(20, {"train/loss": 2.0, "train/grad_norm": 1.5, "train/accuracy": 0.25})
    first, second = capsys.readouterr().err.splitlines()
    assert first == "step 10/100  3:00 left  loss 3  32 examples/s"
    # No example was counted since the last record.
    assert second == "step 20/100  1:20 left  loss 2  accuracy 0.25  0 examples/s  grad_norm 1.5"


def test_a_line_of_a_record_has_80_columns_and_a_validation_wraps(watched, capsys):
    values = {f"train/a_figure_of_the_workload_{number}": 1 / 3 for number in range(4)}
    watched.monitor.log(20, {"train/loss": 2.0, **values})
    line = capsys.readouterr().err
    assert len(line) <= 81
    assert line.endswith("  a_figure_of_the_workload_0 0.3333\n")
    watched.monitor.validated(20, {f"val/a_figure_of_the_workload_{number}": 1 / 3 for number in range(4)})
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 3
    assert max(map(len, lines)) <= 80
    assert watched.records[0].keys() > values.keys()


def test_time_left_counts_from_the_step_that_training_went_on_from(watched, capsys):
    watched.monitor.start(90)
    watched.train(range(91, 96))
    assert capsys.readouterr().err.startswith(
        "lines show means since the previous line; all figures go to\nmetrics.jsonl\nstep 95/100  0:10 left  "
    )


@pytest.mark.parametrize(("waited", "said"), [(0.01, False), (0.02, True)])
def test_a_wait_for_data_is_said_where_it_is_noticeable(watched, capsys, waited, said):
    watched.train(range(1, 3), waited=waited)
    assert ("waiting for data 1%" in capsys.readouterr().err) == said


def test_the_other_processes_write_and_say_nothing(monkeypatch, capsys):
    watched = Watched(monkeypatch, gpu_log_interval=1, main=False)
    monkeypatch.setattr(monitor, "read_gpu", lambda device: pytest.fail("the GPU is the main process's to read"))
    watched.monitor.start(0)
    watched.train(range(1, 3))
    watched.monitor.validated(2, {"val/loss": 0.5})
    watched.monitor.say("a line")
    assert watched.records == []
    assert len(watched.tracked) == 2  # a tracker decides itself which processes feed it
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(("interval", "reads"), [(0, 0), (1, 5), (2, 2)])
def test_gpu_figures_are_read_at_their_interval_and_stay_until_the_next(monkeypatch, capsys, interval, reads):
    watched = Watched(monkeypatch, gpu_log_interval=interval)
    readings = []
    monkeypatch.setattr(
        monitor, "read_gpu", lambda device: readings.append(None) or {"gpu/power_w": 100.0 + len(readings)}
    )
    watched.monitor.start(0)
    watched.train(range(1, 6))
    assert len(readings) == reads
    assert watched.records[0].get("gpu/power_w") == (100.0 + reads if reads else None)
    assert (f"power_w {100 + reads}" in capsys.readouterr().err) == (reads > 0)


def test_without_a_gpu_there_are_no_gpu_figures(monkeypatch):
    watched = Watched(monkeypatch, gpu_log_interval=1)
    monkeypatch.setattr(monitor, "read_gpu", lambda device: {})
    watched.train(range(1, 3))
    assert not any(key.startswith("gpu/") for key in watched.records[0])


def test_on_a_terminal_there_is_a_bar_with_lines_above_it(monkeypatch):
    terminal = io.StringIO()
    terminal.isatty = lambda: True
    watched = Watched(monkeypatch)
    monkeypatch.setattr(sys, "stderr", terminal)
    watched.monitor.start(40)
    watched.train(range(41, 51), loss=0.5)
    watched.monitor.say("a line of its own")
    watched.monitor.close()
    shown = terminal.getvalue()
    assert "50/100" in shown
    assert "left  loss 0.5  32 examples/s" in shown
    assert "\ra line of its own\n" in shown
    assert max(len(line) for line in re.split("[\r\n]", shown)) <= 80


@pytest.mark.parametrize(("width", "line"), [(14, "step 1  loss 2"), (13, "step 1"), (3, "step 1")])
def test_a_line_holds_the_first_figures_that_fit(width, line):
    assert monitor.fitted(["step 1", "loss 2", "a"], width) == line
