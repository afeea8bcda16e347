"""Pooled experts see the whole window and nothing after it; a saved one is the same."""

import pytest
import torch

from models import io
from models.market.pooled_experts import (
    DEPTH,
    Network,
    PooledExperts,
    PooledExpertsConfig,
    class_log_probabilities,
    dilations,
)

NAMES = ("log_return_1", "volatility_50", "volume_z_50")
SCALER = {"mean": [0.001, 0.01, 0.5], "std": [0.01, 0.004, 2.0]}


def model(lookback=9, **changes):
    torch.manual_seed(0)
    config = {
        "features": NAMES,
        "lookback": lookback,
        "coins": ("A",),
        "scalers": {"A": SCALER},
        "width": 6,
        "rounds": 4,
    }
    made = PooledExperts(PooledExpertsConfig(**{**config, **changes})).eval()
    with torch.no_grad():
        for tensor in (*made.parameters(), made.location, made.scale, made.trees.value):
            torch.nn.init.normal_(tensor, std=0.3)
        made.trees.left[:, 0], made.trees.right[:, 0] = 1, 2
        made.trees.feature[:, 0] = torch.arange(len(made.trees.feature)) % made.trees.inputs
    return made


@pytest.mark.parametrize("lookback", [4, 5, 9, 60, 61, 200])
def test_each_expert_sees_the_window_and_nothing_else(lookback):
    assert 1 + 2 * sum(dilations(lookback)) in (lookback, lookback - 1)
    made = model(lookback)
    rows = torch.randn(1, lookback + 3, 3, requires_grad=True)
    for alone in (True, False):
        (slopes,) = torch.autograd.grad(made(rows, alone=alone)[0, 1].square().sum(), rows)
        touched = slopes[0].abs().sum(-1) > 0
        assert not touched[0]
        assert not touched[lookback + 1 :].any()
        assert touched[2 : lookback + 1].all()


@pytest.mark.parametrize("coins", [("A",), ("A", "B")])
def test_rows_of_a_sequence_have_the_logits_of_their_windows(coins):
    made = model(coins=coins, scalers=dict.fromkeys(coins, SCALER))
    rows, numbers = torch.randn(2, 30, 3), torch.arange(2) % len(coins)
    together = made(rows, numbers)
    assert together.shape == (2, 22, 3)
    for row in range(22):
        torch.testing.assert_close(made(rows[:, row : row + 9], numbers), together[:, row : row + 1])


def test_probabilities_of_the_three_outcomes_are_those_of_a_logistic_variable():
    mean, scale, thresholds = torch.tensor(0.3), torch.tensor(0.5), torch.tensor([1.0, 0.8])
    found = class_log_probabilities(mean, scale.log(), thresholds).exp()
    long, short = torch.sigmoid((mean - 1.0) / scale), torch.sigmoid((-mean - 0.8) / scale)
    torch.testing.assert_close(found, torch.stack([short, 1 - short - long, long]))
    extreme = class_log_probabilities(torch.tensor(1e6), scale, thresholds)
    assert extreme.isfinite().all()


def test_a_saved_model_is_the_same(tmp_path):
    made = model()
    io.save(made, tmp_path)
    loaded = io.load(tmp_path)
    assert loaded.config == made.config
    assert torch.equal(loaded(**made.example()), made(**made.example()))


def test_a_leaf_is_final_however_deep_a_tree_may_be():
    trees = model().trees
    rows = torch.randn(5, trees.inputs)
    expected = trees.start + sum(
        torch.where(rows[:, int(trees.feature[each, 0])] <= 0, trees.value[each, 1], trees.value[each, 2])[:, None]
        * torch.eye(3)[each % 3]
        for each in range(len(trees.feature))
    )
    assert DEPTH > 1
    torch.testing.assert_close(trees(rows), expected)


def test_features_without_a_return_or_a_volatility_are_refused():
    with pytest.raises(ValueError, match="must hold log_return_1 and volatility_50"):
        model(features=("log_return_1", "body", "rsi_14"))


@pytest.mark.parametrize("name", ["left", "right", "feature"])
def test_trees_that_lead_nowhere_are_refused(tmp_path, name):
    made = model()
    getattr(made.trees, name)[0, 0] = 10_000
    io.save(made, tmp_path)
    with pytest.raises(ValueError, match="the model's trees are damaged; copy it again"):
        io.load(tmp_path)


def test_the_gradient_does_not_depend_on_how_many_sequences_are_computed_at_once():
    """At the start only the last layer learns. Its bias has one slope of each of 16 x 192 rows."""
    torch.manual_seed(0)
    network = Network(inputs=6, width=8, dropout=0.0, lookback=9)
    x, slopes = torch.randn(16, 200, 6), torch.rand(16, 192, 2)

    def gradient(size, dtype):
        network.to(dtype).zero_grad()
        for part, slope in zip(x.to(dtype).split(size), slopes.to(dtype).split(size), strict=True):
            network(part).backward(slope)
        return torch.cat([parameter.grad.flatten().double() for parameter in network.out.parameters()])

    exact = gradient(16, torch.float64)
    for size in (16, 4):
        assert (gradient(size, torch.float32) - exact).norm() <= 3e-7 * exact.norm()
