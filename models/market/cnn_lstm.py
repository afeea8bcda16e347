"""Convolutions and an LSTM over a window of market features: logits of SHORT, NO_TRADE and LONG.

`legacy` runs convolutions in parallel with a bidirectional LSTM with attention and joins both in a head; it has 689,923
parameters with 15 features. `default` cuts the window into overlapping patches by a convolution, so that its LSTM takes
a quarter of the steps.

Shapes: B windows, L candles of a window (lookback), F features, S windows that follow each other.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from models.io import config_from
from models.market.inputs import CLASSES
from models.market.signal_model import SignalConfig, SignalModel

PRESETS = ("legacy", "default")
PATCH = 4  # candles from one patch of `default` to the next
LEGACY_HIDDEN, LEGACY_HEADS = 100, 4
LEGACY_DROPOUT, LEGACY_SLOPE = 0.3, 0.1  # the slope is that of LeakyReLU below 0


@dataclass(frozen=True)
class CNNLSTMConfig(SignalConfig):
    """Shape of the network and description of its input."""

    preset: str
    width: int = 64  # channels and LSTM units; `default` only
    dropout: float = 0.2  # `default` only

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.preset not in PRESETS:
            raise ValueError(f"preset {self.preset!r} is not known; give one of {', '.join(PRESETS)}")
        if self.width < 1 or not 0 <= self.dropout < 1:
            raise ValueError(f"width={self.width} must be 1 or more, and dropout={self.dropout} 0 or more and below 1")


class CNNLSTM(SignalModel):
    """Classifier of the next move from a window of features: logits of SHORT, NO_TRADE and LONG."""

    family = "cnn_lstm"

    def __init__(self, config: CNNLSTMConfig):
        super().__init__()
        self.config = config
        network = {"legacy": _Legacy, "default": _Default}[config.preset]
        self.network = network(config)

    def forward(self, windows: Tensor, coins: Tensor | None = None) -> Tensor:
        """Return logits (B, S, 3) of the S windows in scaled features (B, L - 1 + S, F).

        A model of several coins also needs their numbers (B,).
        """
        if windows.shape[1] == self.config.lookback:
            alone: Tensor = self.network(windows, coins)
            return alone[:, None]
        each = windows.unfold(1, self.config.lookback, 1)  # (B, S, F, L)
        coins = None if coins is None else coins.repeat_interleave(each.shape[1])
        logits: Tensor = self.network(each.flatten(0, 1).transpose(1, 2), coins)
        return logits.view(*each.shape[:2], -1)


class BatchNorm(nn.BatchNorm1d):
    """Batch normalisation that uses its running statistics for a batch with a single value per channel."""

    def forward(self, x: Tensor) -> Tensor:
        """Normalise x (B, C) or (B, C, L)."""
        if self.training and x.numel() == x.shape[1]:
            return F.batch_norm(x, self.running_mean, self.running_var, self.weight, self.bias, False, 0.0, self.eps)
        return super().forward(x)


class _Legacy(nn.Module):
    def __init__(self, config: CNNLSTMConfig):
        super().__init__()
        inputs, hidden = len(config.features), LEGACY_HIDDEN

        def block(before: int, after: int) -> list[nn.Module]:
            return [nn.Conv1d(before, after, 3, padding=1), nn.LeakyReLU(LEGACY_SLOPE)]

        def shorten(channels: int) -> list[nn.Module]:
            return [BatchNorm(channels), nn.MaxPool1d(2), nn.Dropout(LEGACY_DROPOUT)]

        def dense(before: int, after: int) -> list[nn.Module]:
            return [nn.Linear(before, after), nn.ReLU(), BatchNorm(after), nn.Dropout(LEGACY_DROPOUT)]

        self.convolutions = nn.Sequential(
            *block(inputs, 64), *shorten(64), *block(64, 128), *shorten(128), *block(128, 256), nn.AdaptiveAvgPool1d(1)
        )
        self.lstm = nn.LSTM(inputs, hidden, 2, batch_first=True, bidirectional=True, dropout=LEGACY_DROPOUT)
        self.attention = nn.MultiheadAttention(2 * hidden, LEGACY_HEADS, dropout=LEGACY_DROPOUT, batch_first=True)
        self.head = nn.Sequential(*dense(256 + 2 * hidden, 128), *dense(128, 64), nn.Linear(64, len(CLASSES)))
        self.coins = _embedding(config, len(CLASSES))

    def forward(self, windows: Tensor, coins: Tensor | None) -> Tensor:
        seen = self.convolutions(windows.transpose(1, 2))[:, :, 0]
        states, _ = self.lstm(windows)
        # Only the last row of the attention is used, so only its query is computed.
        attended, _ = self.attention(states[:, -1:], states, states, need_weights=False)
        logits: Tensor = self.head(torch.cat([seen, attended[:, 0]], -1))
        if self.coins is not None:
            logits = logits + self.coins(coins)
        return logits


class _Default(nn.Module):
    """Convolution over patches of 6 candles, 4 apart; an LSTM over the patches; a head on its last and mean state."""

    def __init__(self, config: CNNLSTMConfig):
        super().__init__()
        inputs, width = len(config.features), config.width
        self.coins = _embedding(config, inputs)
        # A convolution over 6 candles with stride 4, written as a matrix product, which takes half the time.
        self.convolution = nn.Linear(inputs * (PATCH + 2), width)
        self.norm = nn.LayerNorm(width)
        self.lstm = nn.LSTM(width, width, batch_first=True)
        hidden, output = nn.Linear(2 * width, width), nn.Linear(width, len(CLASSES))
        nn.init.zeros_(output.weight)  # so that training starts from nearly equal probabilities
        self.head = nn.Sequential(
            nn.LayerNorm(2 * width), nn.Dropout(config.dropout), hidden, nn.GELU(), nn.Dropout(config.dropout), output
        )

    def forward(self, windows: Tensor, coins: Tensor | None) -> Tensor:
        if self.coins is not None:
            windows = windows + self.coins(coins)[:, None]
        # Padded at the front so that the last patch ends with the last candle for every length.
        padded = F.pad(windows, (0, 0, 1 + -windows.shape[1] % PATCH, 1))
        patches = F.gelu(self.convolution(padded.unfold(1, PATCH + 2, PATCH).flatten(2)))
        states, _ = self.lstm(self.norm(patches))
        logits: Tensor = self.head(torch.cat([states[:, -1], states.mean(1)], -1))
        return logits


def _embedding(config: CNNLSTMConfig, width: int) -> nn.Embedding | None:
    if len(config.coins) == 1:
        return None
    table = nn.Embedding(len(config.coins), width)
    nn.init.normal_(table.weight, std=1 / math.sqrt(width))
    return table


def build(config: Mapping[str, object]) -> CNNLSTM:
    """Return the model of a saved config. Raises ValueError for an unknown config."""
    return CNNLSTM(config_from(CNNLSTMConfig, config))
