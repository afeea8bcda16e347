"""Models made without their weights get the numbers of models made whole."""

import pytest
import torch
from torch import nn

from models import io
from pipelines.distributed.deferred import Recorder


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
    return io.module_of("routing").build({"kind": "gat", "width": 16, "heads": 2, "layers": 2})


@pytest.mark.parametrize("make", [initialised, orthogonal, tied, policy, lambda: nn.LSTM(4, 6, 2)])
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
