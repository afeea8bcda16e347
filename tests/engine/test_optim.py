"""Optimizers, schedules and averaged weights: each is a table entry that trains, and resumes to the same bits."""

import contextlib
import itertools
import math

import pytest
import safetensors.torch
import torch
from torch import nn

from common.errors import Stopped, UserError
from models import io
from pipelines.engine.config import Training
from pipelines.engine.optim import OPTIMIZERS, RATE_FACTOR, SCHEDULES
from pipelines.engine.stepping import Average
from tests.engine import toy


@pytest.fixture(autouse=True)
def saving(monkeypatch):
    """The toy replaces how models are saved; it is put back after each test."""
    monkeypatch.setattr(io, "save", io.save)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(5, 4)
        self.layers = nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.Linear(8, 1))
        self.scale = nn.Parameter(torch.ones(()))
        self.frozen = nn.Parameter(torch.ones(3, 3), requires_grad=False)

    def forward(self, tokens):
        return self.layers(self.embedding(tokens)) * self.scale


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_every_optimizer_holds_each_trained_parameter_once_and_lowers_a_loss(name):
    torch.manual_seed(0)
    model = Net()
    training = Training(steps=1, optimizer=name, learning_rate=0.02)
    optimizers = training.optimizers(model)
    held = [id(p) for optimizer in optimizers for group in optimizer.param_groups for p in group["params"]]
    assert sorted(held) == sorted(id(p) for p in model.parameters() if p.requires_grad)
    tokens, wanted = torch.arange(5), torch.linspace(-1, 1, 5)[:, None]

    def loss():
        return (model(tokens) - wanted).square().mean()

    before = loss().item()
    for _ in range(200):
        loss().backward()
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
    assert loss().item() < before / 2, before


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_parts_of_a_model_may_learn_at_a_share_of_the_rate(name):
    model = Net()
    training = Training(steps=1, optimizer=name)
    plain = [len(optimizer.param_groups) for optimizer in training.optimizers(model)]
    model.rate_factors = {"layers.0": 0.1, "layers.2.bias": 1.0}
    groups = [group for optimizer in training.optimizers(model) for group in optimizer.param_groups]
    factors = {id(p): group.get(RATE_FACTOR, 1.0) for group in groups for p in group["params"]}
    found = {key: factors[id(p)] for key, p in model.named_parameters() if p.requires_grad}
    assert found == {key: 0.1 if key.startswith("layers.0") else 1.0 for key in found}
    assert len(groups) == sum(plain) + 2  # of its matrix and its bias; without factors nothing is split
    assert RATE_FACTOR not in groups[0]  # whose rate is the one that is logged


def test_muon_takes_matrices_but_embeddings_and_adamw_the_rest():
    model = Net()
    muon, adamw = Training(steps=1, optimizer="muon").optimizers(model)
    assert isinstance(muon, torch.optim.Muon)
    assert [id(p) for p in muon.param_groups[0]["params"]] == [id(model.layers[0].weight), id(model.layers[2].weight)]
    assert id(model.embedding.weight) in {id(p) for group in adamw.param_groups for p in group["params"]}


@pytest.mark.parametrize("name", ["adamw", "sgd"])
def test_biases_gains_and_scalars_do_not_decay(name):
    model = Net()
    (optimizer,) = Training(steps=1, optimizer=name, weight_decay=0.1).optimizers(model)
    decay = {id(p): group["weight_decay"] for group in optimizer.param_groups for p in group["params"]}
    assert all(decay[id(p)] == (0.1 if p.ndim >= 2 else 0.0) for p in model.parameters() if p.requires_grad)


@pytest.mark.parametrize("name", SCHEDULES)
def test_a_schedule_starts_at_the_peak_after_the_warm_up_and_never_rises(name):
    training = Training(steps=100, schedule=name, warmup_steps=10, final_learning_rate=0.1, learning_rate=2.0)
    rates = [training.rate(step, 100) for step in range(100)]
    assert rates[:10] == pytest.approx([0.2 * (k + 1) for k in range(10)])
    assert rates[10] == 2.0
    assert all(later <= earlier for earlier, later in itertools.pairwise(rates[10:]))
    end = training.rate(100, 100)
    assert end == pytest.approx(2.0 if name == "constant" else 0.2)


def test_schedules_in_the_middle():
    rate = {name: Training(steps=100, schedule=name, learning_rate=1).rate(50, 100) for name in SCHEDULES}
    assert rate == pytest.approx({"cosine": 0.5, "constant": 1, "linear": 0.5, "wsd": 1})
    assert Training(steps=100, schedule="wsd", learning_rate=1).rate(90, 100) == pytest.approx(0.5)


def test_epochs_become_steps_and_endless_data_have_none():
    assert Training(epochs=2, batch_size=16).num_steps(100) == math.ceil(200 / 16)
    with pytest.raises(UserError, match=r"training.epochs: this workload's data are endless; give training.steps"):
        Training(epochs=2).num_steps(None)


def test_few_data_end_steps_sooner():
    steps = Training(steps=800, most_epochs=40, batch_size=128)
    assert [steps.num_steps(size) for size in (97, 2_560, 45_000, None)] == [31, 800, 800, 800]


def test_a_warm_up_takes_at_most_a_quarter_of_a_training_that_few_data_end():
    training = Training(steps=800, most_epochs=40, batch_size=128, warmup_steps=80, learning_rate=1)
    assert [training.rate(step, 20) for step in (0, 4, 5)] == pytest.approx([0.2, 1, 1])
    assert training.rate(0, 1) == 1
    assert Training(steps=20, warmup_steps=10, learning_rate=1).rate(4, 20) == 0.5  # as it was asked for


def test_an_average_is_that_of_the_formula_and_the_model_gets_its_own_weights_back():
    weight = nn.Parameter(torch.tensor([1.0, 2.0]))
    average = Average([weight], 0.5)
    expected = weight.detach().clone()
    for step in range(1, 20):
        with torch.no_grad():
            weight.add_(torch.tensor([1.0, -1.0]))
        average.update(step)
        decay = min(0.5, (1 + step) / (10 + step))
        expected = decay * expected + (1 - decay) * weight.detach()
    own = weight.detach().clone()
    with contextlib.suppress(ArithmeticError), average.in_place():
        assert torch.allclose(weight, expected)
        raise ArithmeticError  # as a validation may; a checkpoint follows
    assert torch.equal(weight, own)


def last(folder, name):
    return folder / "runs/toy" / name / "checkpoints/step-000009"


def moments(folder):
    state = torch.load(folder / "optimizer.pt", weights_only=True)["state"]
    return {(name, key): torch.as_tensor(value) for name, entry in state.items() for key, value in entry.items()}


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param({"ema": 0.8}, id="0.8", marks=pytest.mark.slow),
        pytest.param({"optimizer": "sgd", "schedule": "linear"}, id="sgd-linear", marks=pytest.mark.slow),
        pytest.param({"optimizer": "muon", "schedule": "wsd", "ema": 0.9}, id="muon-wsd-0.9"),
    ],
)
def test_a_stopped_run_resumes_to_the_same_bits(tmp_path, monkeypatch, settings):
    monkeypatch.chdir(tmp_path)
    training = {"steps": 9, "checkpoint_steps": 4, "validation_steps": 4, "learning_rate": 0.01, **settings}
    fitted = []
    monkeypatch.setattr(toy.ToyTask, "refit", lambda task, map_items: fitted.append(task.calls) or {})
    toy.train("calm", training, {})
    with pytest.raises(Stopped):
        toy.train("stopped", training, {"signal_at": 8})
    assert fitted == [4, 8, 9, 4]  # who is asked to stop begins no fit
    toy.train("stopped", training, {}, resume=True)
    files = ["model.safetensors", *(["average.safetensors"] if "ema" in settings else [])]
    for file in files:
        calm, resumed = (
            tmp_path / "runs/toy" / name / "checkpoints/step-000009" / file for name in ("calm", "stopped")
        )
        assert calm.read_bytes() == resumed.read_bytes()
    calm, resumed = (moments(last(tmp_path, name)) for name in ("calm", "stopped"))
    assert calm.keys() == resumed.keys()
    assert all(torch.equal(calm[key], resumed[key]) for key in calm)
    if "ema" in settings:
        own, averaged = (safetensors.torch.load_file(last(tmp_path, "calm") / file) for file in files)
        assert not torch.equal(own["layers.0.weight"], averaged["layers.0.weight"])


def test_the_averaged_weights_are_what_is_validated_and_saved(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    kept = []
    monkeypatch.setattr(toy, "keep", lambda state, folder: kept.append((folder.name, state["layers.0.weight"])))
    toy.train("averaged", {"steps": 6, "checkpoint_steps": 6, "validation_steps": 6, "ema": 0.5}, {})
    averaged = safetensors.torch.load_file(tmp_path / "runs/toy/averaged/checkpoints/step-000006/average.safetensors")
    assert [name for name, _ in kept] == ["last", "best", "last"]
    assert all(torch.equal(weight, averaged["layers.0.weight"]) for _, weight in kept)
