"""Networks over windows of candles, and the input that a saved one refuses."""

from dataclasses import replace

import pytest
import torch

from models import io
from models.market.cnn_lstm import CNNLSTM, PRESETS, BatchNorm, CNNLSTMConfig

STEP = 60_000
NAMES = ("spread", "momentum", "volume")


def config(preset="default", **changes):
    scaler = {"mean": [1.0, -2.0, 0.5], "std": [2.0, 0.5, 1.0]}
    values = {"features": NAMES, "lookback": 8, "coins": ("AUSDT",), "scalers": {"AUSDT": scaler}, "timeframe_ms": STEP}
    return CNNLSTMConfig(preset, **{**values, **changes})


def model(preset="default", **changes):
    torch.manual_seed(0)
    made = CNNLSTM(config(preset, **changes)).eval()
    for parameter in made.parameters():  # the last layer starts at zero
        torch.nn.init.normal_(parameter, std=0.3)
    return made


def test_legacy_has_689_923_parameters_with_15_features_and_default_has_fewer():
    counts = {
        preset: sum(
            p.numel() for p in model(preset, features=tuple(map(str, range(15))), lookback=60, scalers={}).parameters()
        )
        for preset in PRESETS
    }
    assert counts["legacy"] == 689_923
    assert counts["default"] < counts["legacy"]


@pytest.mark.parametrize("preset", PRESETS)
def test_a_batch_of_one_trains(preset):
    made = model(preset).train()
    before = {name: value.clone() for name, value in made.named_buffers()}
    logits = made(torch.randn(1, 8, 3))[:, 0]
    torch.nn.functional.cross_entropy(logits, torch.tensor([2])).backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in made.parameters())
    # One value per channel has no variance: the running statistics of the head stay unchanged.
    for name, value in made.named_buffers():
        if name.startswith("network.head"):
            assert torch.equal(value, before[name])


def test_batch_norm_equals_that_of_torch_for_larger_batches():
    torch.manual_seed(0)
    ours, theirs = BatchNorm(4), torch.nn.BatchNorm1d(4)
    for x in (torch.randn(5, 4), torch.randn(2, 4, 3), torch.randn(1, 4, 2)):
        assert torch.equal(ours(x), theirs(x))
    assert torch.equal(ours.running_var, theirs.running_var)


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("lookback", [4, 7, 8, 60, 61])
def test_every_candle_of_the_window_counts(preset, lookback):
    windows = torch.randn(2, lookback, 3, requires_grad=True)
    model(preset, lookback=lookback)(windows).square().sum().backward()
    assert (windows.grad.abs().sum((0, 2)) > 0).all()


def test_legacy_attends_as_the_last_row_of_full_attention():
    network = model("legacy").network
    states, _ = network.lstm(torch.randn(2, 8, 3))
    full, _ = network.attention(states, states, states, need_weights=False)
    last, _ = network.attention(states[:, -1:], states, states, need_weights=False)
    torch.testing.assert_close(full[:, -1:], last)


def test_a_pooled_model_is_told_the_coin():
    made = model(coins=("AUSDT", "BUSDT"))
    windows = torch.randn(1, 8, 3).expand(2, -1, -1)
    first, second = made(windows, torch.tensor([0, 1]))
    assert not torch.allclose(first, second)


@pytest.mark.parametrize("preset", PRESETS)
def test_a_saved_model_is_the_same(preset, tmp_path):
    made = model(preset)
    io.save(made, tmp_path)
    loaded = io.load(tmp_path)
    assert loaded.config == made.config
    assert torch.equal(loaded(**made.example()), made(**made.example()))


def test_windows_that_follow_each_other_have_the_logits_of_each_by_itself():
    made, rows = model(coins=("AUSDT", "BUSDT")), torch.randn(2, 12, 3)
    together = made(rows, torch.tensor([0, 1]))
    assert together.shape == (2, 5, 3)
    for start in range(5):
        alone = made(rows[:, start : start + 8], torch.tensor([0, 1]))
        torch.testing.assert_close(together[:, start : start + 1], alone)


def test_invalid_configs_are_refused():
    for changes, message in (({"preset": "large"}, "preset 'large'"), ({"lookback": 3}, "4 to 100000 candles")):
        with pytest.raises(ValueError, match=message):
            replace(config(), **changes)
