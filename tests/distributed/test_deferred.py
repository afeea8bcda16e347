"""Models made without their weights get the numbers of models made whole."""

import pytest
import torch
from accelerate import DistributedType
from accelerate.state import AcceleratorState
from torch import nn

from models import io
from pipelines.distributed import deferred
from pipelines.distributed.deferred import Recorder
from tests.distributed import shares


def initialised():
    """Weights that are changed in parts, by others' values, and by random numbers of every kind."""
    layer = nn.Linear(7, 9)
    nn.init.trunc_normal_(layer.weight, std=0.02)
    with torch.no_grad():
        layer.bias[2:5].fill_(1.0)
        layer.weight[1].add_(torch.randn(7))
        layer.bias.mul_(float(layer.weight.abs().max()))
    return layer


def orthogonal():
    layer = nn.Linear(7, 9)
    nn.init.orthogonal_(layer.weight)
    return layer


def tied():
    model = nn.Sequential(nn.Embedding(10, 8, padding_idx=2), nn.MultiheadAttention(8, 2), nn.Linear(8, 10))
    model[2].weight = model[0].weight
    return model


def policy():
    return io.builder_of("routing")({"kind": "gat", "width": 16, "heads": 2, "layers": 2})


def converted():
    """As peft does with the matrices that it adds."""
    return nn.Sequential(nn.Linear(4, 6).to(torch.bfloat16), nn.Dropout(), nn.Linear(6, 4).double().float())


def adapted():
    pytest.importorskip("peft")
    fields = {"size": 32, "channels": 1, "attribute": "sharpness", "theta": 1, "unit": 1.0, "references": 2}
    return io.builder_of("vlm_comparator")({**fields, "width": 16, "layers": 2, "heads": 2, "lora": True})


MADE = [initialised, orthogonal, tied, policy, lambda: nn.LSTM(4, 6, 2), converted]


@pytest.mark.filterwarnings("ignore:Accessing the data pointer of FakeTensor:UserWarning")  # as `deferred.made` does
@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")  # peft's
@pytest.mark.parametrize("make", [*MADE, pytest.param(adapted, marks=pytest.mark.slow)])
def test_recorded_weights_are_computed_one_by_one_as_those_of_the_whole_model(make):
    torch.manual_seed(3)
    whole, after = make(), torch.get_rng_state()
    torch.manual_seed(3)
    with Recorder() as recorder:
        model = make()
    assert torch.equal(torch.get_rng_state(), after)
    expected = {**dict(whole.named_parameters()), **dict(whole.named_buffers())}
    found = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    assert list(found) == list(expected)
    for name in reversed(expected):  # in any order
        assert torch.equal(recorder.valued(found[name]), expected[name]), name
    assert torch.equal(torch.get_rng_state(), after)


def test_modules_borrow_their_weights_when_they_are_called(monkeypatch):
    def make():
        return nn.Sequential(nn.Embedding(10, 8), nn.Linear(8, 4), nn.Linear(4, 2))

    torch.manual_seed(3)
    whole = make()
    monkeypatch.setitem(AcceleratorState._shared_state, "distributed_type", DistributedType.FSDP)
    torch.manual_seed(3)
    model = deferred.made(make, torch.device("cpu"))
    assert all(parameter.is_meta for parameter in model.parameters())
    tokens = torch.arange(5)
    for _ in range(2):
        with deferred.lent(model, torch.device("cpu")):
            assert torch.equal(model[1](model[0](tokens)), whole[1](whole[0](tokens)))
            assert model[2].weight.is_meta  # it was not called
        assert all(parameter.is_meta and parameter.requires_grad for parameter in model.parameters())
    with deferred.lent(whole, torch.device("cpu")):
        assert torch.equal(whole(tokens), whole(tokens))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")  # peft's
def test_seven_billion_weights_are_made_without_them_and_split_evenly():
    pytest.importorskip("peft")
    alone, pair = (shares.held(world, whole=False) for world in (1, 2))
    assert alone["weights"] > 14e9
    for what in ("weights", "gradients", "moments"):
        assert pair[what] == pytest.approx(alone[what] / 2, rel=1e-3)
    assert pair["gathered"] == alone["gathered"] < 0.7e9
