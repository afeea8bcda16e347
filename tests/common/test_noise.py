"""Noise is a function of (seed, step, item, layer): not of how items are split, nor of when a layer is computed."""

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from common import noise

ITEMS = torch.arange(12) * 5 + 3


@pytest.fixture(autouse=True)
def _ended():
    yield
    noise.end()


def gradient(model, x, parts, step=7):
    """Return the gradient of a sum over `x` (12, ...) that is computed part by part."""
    model.zero_grad()
    for part in parts:
        noise.begin(0, step, ITEMS[part])
        model(x[part]).square().sum().backward()
    return torch.cat([p.grad.flatten() for p in model.parameters()]).double()


class Stacked(nn.Module):
    """LSTMs with dropout between their layers, before and after them; recomputed in the backward pass if asked."""

    def __init__(self, recompute=False, bidirectional=False):
        super().__init__()
        self.lstm = nn.LSTM(4, 8, 3, batch_first=True, dropout=0.4, bidirectional=bidirectional)
        self.dropout, self.recompute = nn.Dropout(0.3), recompute

    def block(self, x):
        return self.dropout(self.lstm(self.dropout(x))[0])

    def forward(self, x):
        x = checkpoint(self.block, x, use_reentrant=False) if self.recompute else self.block(x)
        return checkpoint(torch.tanh, self.dropout(x), use_reentrant=False)


@pytest.mark.parametrize("bidirectional", [False, True])
def test_a_gradient_does_not_depend_on_how_items_are_split(bidirectional):
    model, x = Stacked(bidirectional=bidirectional), torch.randn(12, 5, 4)
    noise.by_item(model)
    whole = gradient(model, x, [slice(0, 12)])
    for size in (1, 4):
        parts = [slice(start, start + size) for start in range(0, 12, size)]
        assert (gradient(model, x, parts) - whole).norm() < 1e-6 * whole.norm()
    assert (gradient(model, x, [slice(0, 12)], step=8) - whole).norm() > 0.1 * whole.norm()


def test_what_is_computed_again_in_the_backward_pass_has_the_same_noise():
    plain, x = Stacked(), torch.randn(12, 5, 4)
    recomputed = Stacked(recompute=True)
    recomputed.load_state_dict(plain.state_dict())
    noise.by_item(plain)
    noise.by_item(recomputed)
    assert torch.equal(gradient(recomputed, x, [slice(0, 12)]), gradient(plain, x, [slice(0, 12)]))


@pytest.mark.parametrize("state", [None, (torch.randn(6, 12, 8), torch.randn(6, 12, 8))])
def test_layer_by_layer_an_lstm_computes_what_torch_does(state):
    lstm, x = nn.LSTM(4, 8, 3, batch_first=True, dropout=0.5, bidirectional=True), torch.randn(12, 5, 4)
    expected = lstm.eval()(x, state)
    noise.by_item(lstm)
    lstm.train().dropout = 1e-9  # rounded to none
    found = lstm(x, state)
    torch.testing.assert_close(found, expected)


def test_layers_and_calls_differ_and_rows_of_one_item_too():
    noise.begin(0, 0, ITEMS)
    first, second = (noise.drawn((24, 1000), 0.5, torch.device("cpu")) for _ in range(2))
    for one, other in ((first, second), (first[:12], first[12:]), (first[:6], first[6:12])):
        assert 0.45 < (one == other).float().mean() < 0.55


@pytest.mark.parametrize("probability", [0.001, 0.3, 0.9])
def test_elements_are_dropped_independently_with_the_given_probability(probability):
    noise.begin(0, 0, torch.arange(200))
    dropped = (noise.dropout(torch.ones(200, 50, 20), probability) == 0).double()
    error = (probability * (1 - probability)) ** 0.5
    assert abs(dropped.mean() - probability) < 4 * error / 200_000**0.5
    for each in (dropped.mean(0), dropped.flatten(1).mean(1)):  # over items, and over the elements of one
        expected = error / (dropped.numel() / each.numel()) ** 0.5
        assert 0.85 * expected < each.std() < 1.15 * expected
    kept = noise.dropout(torch.ones(200, 1000), probability)
    assert kept[kept > 0].unique().tolist() == pytest.approx([1 / (1 - probability)], rel=1e-4)


def test_rows_may_belong_to_other_items_for_a_while():
    noise.begin(0, 0, ITEMS)
    with noise.rows(torch.tensor([4, 9])):
        pair = noise.drawn((2, 64), 0.5, torch.device("cpu"))
    noise.begin(0, 0, ITEMS)
    with noise.rows(torch.tensor([9])):
        assert torch.equal(noise.drawn((1, 64), 0.5, torch.device("cpu")), pair[1:])
    with pytest.raises(ValueError, match="7 rows do not belong to 12 items"):
        noise.drawn((7, 64), 0.5, torch.device("cpu"))
    noise.end()
    assert noise.drawn((7, 64), 0.5, torch.device("cpu")).any()  # torch's own
