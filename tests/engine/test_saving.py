"""Saving holds training up by a copy of its state in memory; a thread of its own writes it."""

import json
import os
import statistics
import time

import pytest
import safetensors.torch

from models import io
from pipelines.engine.loop import Loop
from tests import forked
from tests.distributed import saving
from tests.distributed.saving import Big
from tests.engine import toy

GIGABYTES = 0.24
MOST = 0.02 * 60 * GIGABYTES  # seconds of the training thread, of a minute between checkpoints of a gigabyte


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
    assert sum(path.stat().st_size for path in folder.iterdir()) > GIGABYTES * 1e9
    assert statistics.median(seconds) <= MOST, seconds


@pytest.mark.slow
def test_shares_of_a_split_model_are_written_while_training_goes_on(tmp_path):
    done = forked.run([saving.__file__], tmp_path, {**os.environ, "OMP_NUM_THREADS": "1"}, 2)
    assert done.returncode == 0, done.stderr
    for rank in (0, 1):
        found = json.loads((tmp_path / f"{rank}.json").read_text())
        assert found["beside"] == [True, True, False, False]  # the last are before and after validating
        assert statistics.median(found["seconds"]) <= MOST, found
    [folder] = sorted((tmp_path / "runs/toy/big/checkpoints").glob("step-*6"))
    shares = sorted((folder / "shares").iterdir())
    assert {path.name[:11] for path in shares} == {"shard-00001", "shard-00002"}
    assert sum(path.stat().st_size for path in shares) > GIGABYTES * 1e9
