"""A workload small enough to test the loop with: ragged regression, trained by the real loop.

python tests/engine/toy.py NAME '{"steps": 20}' '{"out_of_memory_above": 8}' [--resume] [--sharded]
"""

import itertools
import json
import os
import signal
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch
from torch import nn

from models import io
from pipelines import exits
from pipelines.engine import split_checkpoints
from pipelines.engine.batches import Resident
from pipelines.engine.config import BaseConfig, Training
from pipelines.engine.loop import Loop
from pipelines.engine.training import make_accelerator
from pipelines.engine.workload import Loss, Metric, Task
from pipelines.run.folder import Run

ITEMS = 96


class Net(nn.Module):
    """What models.io.save would refuse is not needed here: the toy keeps its weights itself."""

    _no_split_modules = ("Linear",)

    def __init__(self, dropout: float):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Dropout(dropout), nn.Linear(16, 1))

    def forward(self, x):
        return self.layers(x)[..., 0]


def pretend(slope):
    raise torch.OutOfMemoryError("pretended")


def die_in(module, name, number, half):
    """Die in a function that writes pieces into a file, at its call of that number: with half of them there, or all."""
    write, calls = getattr(module, name), itertools.count(1)

    def written(path, pieces):
        dies, content = next(calls) == number, b"".join(pieces)
        digest = write(path, [content[: len(content) // 2] if dies and half else content])
        if dies:
            os.kill(os.getpid(), signal.SIGKILL)
        return digest

    setattr(module, name, written)


class ToyTask(Task):
    """Item i has 1 + i % 5 valid positions, so that batches differ in their number of examples."""

    def __init__(
        self,
        dropout=0.0,
        out_of_memory_above=None,
        fails_on_rank=0,
        out_of_memory_in_step=None,
        out_of_memory_in_backward=None,
        out_of_memory_in_layer=None,
        nan_at=None,
        kill_at=None,
        kill_in_share=None,
        signal_at=None,
        flat=False,
        device=torch.device("cpu"),  # noqa: B008 (it cannot be changed)
    ):
        torch.manual_seed(0)
        generator = torch.Generator().manual_seed(1)
        x = torch.randn(ITEMS, 5, 4, generator=generator)
        valid = torch.arange(5) < 1 + torch.arange(ITEMS)[:, None] % 5
        fields = {"x": x, "y": x.sum(-1), "valid": valid, "item": torch.arange(ITEMS)}
        self.model = Net(dropout).to(device)
        self.train = self.validation = Resident(fields, device)
        self.out_of_memory_above, self.fails_on_rank = out_of_memory_above, fails_on_rank
        self.out_of_memory_in_step, self.steps_begun = out_of_memory_in_step, 0
        self.out_of_memory_in_backward = out_of_memory_in_backward
        self.out_of_memory_in_layer = out_of_memory_in_layer
        self.model.layers[2].register_forward_pre_hook(self.begin_layer)
        self.nan_at, self.kill_at, self.signal_at, self.flat = nan_at, kill_at, signal_at, flat
        self.calls = 0
        if kill_in_share and int(os.environ.get("RANK", 0)) == fails_on_rank:
            die_in(split_checkpoints.files, "write_hashed", *kill_in_share)

    def loss(self, model, batch):
        self.calls += 1
        error = (model(batch["x"]) - batch["y"]) ** 2 * batch["valid"]
        rank = int(os.environ.get("RANK", 0))
        if self.out_of_memory_above and len(error) > self.out_of_memory_above and rank == self.fails_on_rank:
            raise torch.OutOfMemoryError("pretended")
        if self.calls == self.kill_at:
            os.kill(os.getpid(), signal.SIGKILL)
        if self.calls == self.signal_at:
            os.kill(os.getpid(), signal.SIGTERM)
        if self.calls == self.nan_at:
            error = error * float("nan")
        count = batch["valid"].sum()
        return Loss(error.sum(), count, {"error": error.detach().abs().sqrt().sum()})

    def begin_layer(self, module, inputs):
        """What is called between the layers."""
        if not torch.is_grad_enabled() or int(os.environ.get("RANK", 0)) != self.fails_on_rank:
            return
        if self.calls == self.out_of_memory_in_layer:
            raise torch.OutOfMemoryError("pretended")
        if self.calls == self.out_of_memory_in_backward:
            inputs[0].register_hook(pretend)

    def begin_step(self, *_):
        """What the last optimizer calls before its step."""
        self.steps_begun += 1
        if self.steps_begun == self.out_of_memory_in_step and int(os.environ.get("RANK", 0)) == self.fails_on_rank:
            raise torch.OutOfMemoryError("pretended")

    def score(self, model, batch):
        if self.flat:
            return {"error": torch.ones_like(batch["x"][:, 0, 0])}
        error = (model(batch["x"]) - batch["y"]) ** 2 * batch["valid"]
        return {"error": error.sum(1) / batch["valid"].sum(1)}


def keep(state, folder):
    """What saving a model comes to; tests look here."""


def train(name, training, options, resume=False):
    """Train the toy in ./runs/toy/NAME."""
    io.save = lambda model, folder, state, write: keep(state, folder)  # the toy's class is no family of models/
    config = BaseConfig(training=Training(**{"batch_size": 16, "log_steps": 1, "clip_norm": None, **training}))
    run = Run("toy", name)
    accelerator = make_accelerator(config, run)
    loop = Loop(ToyTask(**options, device=accelerator.device), config, accelerator, run, Metric("val/error"))
    loop.updater.optimizers[-1].optimizer.register_step_pre_hook(loop.task.begin_step)
    if accelerator.is_main_process and not run.started():
        run.begin(config, accelerator.num_processes, {})
    loop.fit(resume)


if __name__ == "__main__":
    if "--sharded" in sys.argv:
        from tests.distributed.one_model import shard

        shard()
    exits.run_main(lambda: train(sys.argv[1], json.loads(sys.argv[2]), json.loads(sys.argv[3]), "--resume" in sys.argv))
