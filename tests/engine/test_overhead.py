"""What the engine costs over a bare PyTorch loop on the same tiny model."""

import statistics
import time

import pytest
import torch
from torch import nn

from pipelines.engine import benchmark, cli
from pipelines.engine.batches import Resident
from pipelines.engine.config import BaseConfig, Training
from pipelines.engine.loop import Loop, make_optimizer
from pipelines.engine.workload import Loss

BATCH, STEPS, BLOCKS = 256, 60, 15


class Tiny:
    """A three-layer perceptron of a third of a million weights; a step takes 5 to 10 ms on one core."""

    def __init__(self):
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(128, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 1))
        fields = {"x": torch.randn(4096, 128), "y": torch.randn(4096)}
        self.train = self.validation = Resident(fields, torch.device("cpu"))

    def loss(self, model, batch):
        error = (model(batch["x"])[:, 0] - batch["y"]) ** 2
        return Loss(error.sum(), len(error))


@pytest.mark.slow
def test_the_engine_costs_at_most_five_percent_of_a_tiny_models_step(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    config = BaseConfig(training=Training(steps=10**6, batch_size=BATCH))
    run = benchmark.temporary_run("overhead")
    loop = Loop(Tiny(), config, cli.make_accelerator(config, run), run, "val/loss")
    loop.choose_micro_batch_size()
    batches = loop.batches()

    bare = Tiny()
    optimizer = make_optimizer(bare.model, config.training)
    parameters = list(bare.model.parameters())
    order = torch.randperm(4096)

    def bare_step(k):
        batch = bare.train.batch(order[k * BATCH % 4096 :][:BATCH])
        loss = ((bare.model(batch["x"])[:, 0] - batch["y"]) ** 2).mean()
        loss.backward()
        float(torch.nn.utils.clip_grad_norm_(parameters, 1.0))
        optimizer.step()
        optimizer.zero_grad()

    def block(step):
        began = time.perf_counter()
        for k in range(STEPS):
            step(k)
        return (time.perf_counter() - began) / STEPS

    def engine_step(k):
        loop.update(batches)

    block(bare_step), block(engine_step)
    # Neighbouring blocks are compared, so that the machine's moods hit both sides alike.
    pairs = [(block(bare_step), block(engine_step)) for _ in range(BLOCKS)]
    overhead = statistics.median(engine / plain for plain, engine in pairs) - 1
    step = statistics.median(plain for plain, _ in pairs)
    with capsys.disabled():
        print(f"\nengine overhead {overhead:.1%} of a bare step of {1e3 * step:.2f} ms")
    assert overhead <= 0.05
