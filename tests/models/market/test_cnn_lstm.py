"""Networks over windows of candles, and the input that a saved one refuses."""

from dataclasses import replace

import pytest
import torch

from models import io
from models.market.cnn_lstm import CNNLSTM, CNNLSTMConfig

STEP = 60_000
NAMES = ("spread", "momentum", "volume")


def config(**changes):
    scaler = {"mean": [1.0, -2.0, 0.5], "std": [2.0, 0.5, 1.0]}
    values = {"features": NAMES, "lookback": 8, "coins": ("AUSDT",), "scalers": {"AUSDT": scaler}, "timeframe_ms": STEP}
    return CNNLSTMConfig(**{**values, **changes})


def model(**changes):
    torch.manual_seed(0)
    made = CNNLSTM(config(**changes)).eval()
    for parameter in made.parameters():  # the last layer starts at zero
        torch.nn.init.normal_(parameter, std=0.3)
    return made


def test_a_batch_of_one_trains():
    made = model().train()
    logits = made(torch.randn(1, 8, 3))[:, 0]
    torch.nn.functional.cross_entropy(logits, torch.tensor([2])).backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in made.parameters())


@pytest.mark.parametrize("lookback", [4, 7, 8, 60, 61])
def test_every_candle_of_the_window_counts(lookback):
    windows = torch.randn(2, lookback, 3, requires_grad=True)
    model(lookback=lookback)(windows).square().sum().backward()
    assert (windows.grad.abs().sum((0, 2)) > 0).all()


def test_a_pooled_model_is_told_the_coin():
    made = model(coins=("AUSDT", "BUSDT"))
    windows = torch.randn(1, 8, 3).expand(2, -1, -1)
    first, second = made(windows, torch.tensor([0, 1]))
    assert not torch.allclose(first, second)


def test_a_saved_model_is_the_same(tmp_path):
    made = model()
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
