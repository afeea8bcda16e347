"""What the engine costs over a bare PyTorch loop on the same tiny model."""

import statistics
import time

import pytest
import torch
from torch import nn

from pipelines.engine.batches import Resident
from pipelines.engine.config import BaseConfig, Training
from pipelines.engine.training import make_accelerator
from pipelines.engine.update import Updater
from pipelines.engine.workload import Loss, Task
from pipelines.run.folder import Run

BATCH, STEPS = 512, 600


class Tiny(Task):
    """A three-layer perceptron of a third of a million weights; a step takes 10 to 20 ms on one core."""

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
    run = Run("toy", "overhead")
    updater = Updater(Tiny(), config, make_accelerator(config, run), run)
    updater.choose_micro_batch_size()
    batches = updater.batches()

    # The same model, optimizer and data: where weights lie in memory alone changes a step's time by several percent.
    task, optimizer = updater.task, updater.optimizers[0].optimizer
    parameters = list(task.model.parameters())
    order = torch.randperm(4096)

    def bare_step(k):
        batch = task.train.batch(order[k * BATCH % 4096 :][:BATCH])
        loss = ((task.model(batch["x"])[:, 0] - batch["y"]) ** 2).mean()
        loss.backward()
        float(torch.nn.utils.clip_grad_norm_(parameters, 1.0))
        optimizer.step()
        optimizer.zero_grad()

    def seconds(step, k):
        began = time.perf_counter()
        step(k)
        return time.perf_counter() - began

    def engine_step(k):
        updater.update(batches)

    # Step by step in turn, so that the machine's moods hit both sides alike.
    pairs = [(seconds(bare_step, k), seconds(engine_step, k)) for k in range(STEPS)][STEPS // 10 :]
    step, engine = (statistics.median(side) for side in zip(*pairs, strict=True))
    overhead = engine / step - 1
    with capsys.disabled():
        print(f"\nengine overhead {overhead:.1%}: {1e6 * (engine - step):.0f} us on a bare step of {1e3 * step:.2f} ms")
    assert overhead <= 0.05
