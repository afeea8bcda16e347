"""Operations that the benchmark counts, compared with those worked out by hand."""

import itertools

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from pipelines.checks import throughput
from pipelines.engine.batches import Resident
from pipelines.engine.config import BaseConfig, Training
from pipelines.engine.training import make_accelerator
from pipelines.engine.update import Updater
from pipelines.engine.workload import Loss
from pipelines.run.folder import Run

SIZES = (8, 32, 16, 1)
# Forward, the gradient of the weights, and that of the inputs of all layers but the first.
BY_HAND = 2 * (3 * (8 * 32 + 32 * 16 + 16) - 8 * 32)


class Perceptron(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(*sizes) for sizes in itertools.pairwise(SIZES))
        self.gradient_checkpointing = False

    def forward(self, x):
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=False) if self.gradient_checkpointing else layer(x)
        return x


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(8, 1)

    def forward(self, x):
        return self.lstm(x)[0]


class Attention(nn.Module):
    """Attention of one head over four positions of two channels."""

    def forward(self, x):
        x = x.view(-1, 1, 4, 2)
        return nn.functional.scaled_dot_product_attention(x, x, x)


class Task:
    def __init__(self, model):
        self.model, self.seen = model, []
        self.train = self.validation = Resident({"x": torch.randn(64, 8)}, torch.device("cpu"))

    def loss(self, model, batch):
        self.seen.append((len(batch["x"]), getattr(model, "gradient_checkpointing", False)))
        return Loss(model(batch["x"]).sum(), len(batch["x"]))


def counted(task):
    config = BaseConfig(training=Training(steps=1, batch_size=16))
    run = Run("toy", "counted")
    accelerator = make_accelerator(config, run)
    updater = Updater(task, config, accelerator, run)
    updater.choose_micro_batch_size()
    return throughput.flops_per_example(task, updater, accelerator)


def test_operations_are_those_of_forward_and_backward_pass():
    task = Task(Perceptron())
    assert counted(task) == BY_HAND
    assert task.seen == [(16, False)]
    assert all(parameter.grad is None for parameter in task.model.parameters())


def test_what_checkpointing_computes_again_does_not_count():
    task = Task(Perceptron())
    task.model.gradient_checkpointing = True
    assert counted(task) == BY_HAND
    assert task.seen == [(1, False)]  # all activations of a whole batch might not fit
    assert task.model.gradient_checkpointing


def test_a_recurrent_network_is_not_counted():
    assert counted(Task(Recurrent())) is None


def test_attention_counts():
    model = Attention()
    model.scale = nn.Parameter(torch.ones(()))
    task = Task(model)
    task.loss = lambda model, batch: Loss(model(batch["x"] * model.scale).sum(), len(batch["x"]))
    products = 2 * 2 * 4 * 4 * 2  # of queries and keys, and of their weights and values
    assert counted(task) == 3 * products  # each has two on the way back


def test_a_batch_larger_than_the_data_is_counted():
    task = Task(Perceptron())
    task.train = Resident({"x": torch.randn(5, 8)}, torch.device("cpu"))
    assert counted(task) == BY_HAND


def test_steps_are_timed_though_training_ends_after_fewer_and_nothing_is_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    task = Task(Perceptron())
    config = BaseConfig(training=Training(steps=9, most_epochs=0.5, batch_size=16))
    run = Run("toy", "short")
    found = throughput.measure(task, config, make_accelerator(config, run), run, 4)
    assert list(tmp_path.iterdir()) == []
    assert found["steps"] == 4
    assert found["examples_per_s"] == 16 / found["step_s"]


@pytest.mark.parametrize(
    ("dtype", "side"),
    [(torch.float32, 1024), (torch.bfloat16, 128), pytest.param(torch.bfloat16, 1024, marks=pytest.mark.slow)],
)
def test_a_large_product_is_one_in_the_type_of_the_model(monkeypatch, dtype, side):
    config, seen = BaseConfig(training=Training(steps=1)), []
    accelerator = make_accelerator(config, Run("toy", "product"))
    multiply = torch.Tensor.__matmul__
    monkeypatch.setattr(torch.Tensor, "__matmul__", lambda a, b: seen.append(a.dtype) or multiply(a, b))
    model, randn = Perceptron().to(dtype), torch.randn
    monkeypatch.setattr(
        torch, "randn", lambda *sides, device: randn(*(min(each, side) for each in sides), device=device)
    )
    # Without AVX-512 a core makes 0.9e9 in bfloat16.
    assert throughput.product_flops_per_s(model, accelerator) * (side / 1024) ** 3 > 1e8
    assert set(seen) == {dtype}
