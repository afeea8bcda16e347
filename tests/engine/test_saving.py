"""Saving holds training up by a copy of its state in memory; a thread of its own writes it."""

import statistics
import time

import pytest
import safetensors.torch
import torch

from models import io
from pipelines.engine.loop import Loop
from tests.engine import toy

ROWS = 20_000  # of 1,000 weights: with AdamW's two moments 0.24 GB


class Big(toy.Net):
    def __init__(self, dropout):
        super().__init__(dropout)
        self.table = torch.nn.Parameter(torch.zeros(ROWS, 1000))

    def forward(self, x):
        return super().forward(x) + self.table[0, 0]


@pytest.mark.slow
def test_saving_a_gigabyte_would_take_a_fiftieth_of_a_minute_of_the_training_thread(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(io, "save", io.save)  # which the toy replaces
    monkeypatch.setattr(toy, "Net", Big)
    monkeypatch.setattr(toy, "keep", lambda state, folder: safetensors.torch.save_file(state, tmp_path / folder.name))
    save, seconds = Loop.save, []

    def timed(loop):
        began = time.thread_time()
        save(loop)
        seconds.append(time.thread_time() - began)

    monkeypatch.setattr(Loop, "save", timed)
    toy.train("big", {"steps": 30, "checkpoint_steps": 10, "validation_steps": 30, "log_steps": 10}, {})
    print("seconds of each save:", seconds)
    [folder] = sorted((tmp_path / "runs/toy/big/checkpoints").glob("step-*30"))
    assert sum(path.stat().st_size for path in folder.iterdir()) > 0.24e9
    assert statistics.median(seconds) <= 0.02 * 60 * 0.24, seconds
