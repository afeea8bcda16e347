"""How long saving holds up a sharded training's threads, and whether the training goes on while shares are written.

    torchrun --nproc_per_node 2 tests/distributed/saving.py      # prints seconds a GB of what all ranks save

A toy with a large table is trained on CPUs. The writing of each checkpoint but the last waits for the next update.
"""

import json
import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch

from pipelines import exits
from pipelines.distributed import ranks
from pipelines.engine.checkpoints import Snapshot
from pipelines.engine.loop import Loop
from tests.distributed.one_model import shard
from tests.engine import toy

ROWS = 20_000  # of 1,000 weights: with AdamW's two moments 0.24 GB
TRAINING = {"steps": 6, "checkpoint_steps": 2, "validation_steps": 6, "log_steps": 2, "micro_batch_size": 8}


class Big(toy.Net):
    def __init__(self, dropout):
        super().__init__(dropout)
        self.table = torch.nn.Parameter(torch.zeros(ROWS, 1000))

    def forward(self, x):
        return super().forward(x) + self.table[0, 0]


def measure() -> None:
    """Train, and write this rank's figures into `RANK.json`."""
    save, write, loops, seconds, beside = Loop.save, Snapshot.write, [], [], []

    def timed(loop):
        loops.append(loop)
        began = time.thread_time()
        save(loop)
        seconds.append(time.thread_time() - began)

    def late(snapshot, *given):
        end = time.monotonic() + 60
        while snapshot.step < TRAINING["steps"] and loops[0].progress.step == snapshot.step and time.monotonic() < end:
            time.sleep(0.01)
        beside.append(loops[0].progress.step > snapshot.step)
        write(snapshot, *given)

    Loop.save, Snapshot.write, toy.Net = timed, late, Big
    toy.train("big", TRAINING, {})
    Path(f"{ranks.rank()}.json").write_text(json.dumps({"seconds": seconds, "beside": beside}))
    print(f"rank {ranks.rank()}: {seconds[1] / 0.24:.2f} s of the training thread a GB; beside training: {beside}")


if __name__ == "__main__":
    os.environ["ACCELERATE_USE_CPU"] = "true"
    shard()
    exits.run_main(measure)
