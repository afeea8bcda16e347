"""Convolutions and an LSTM over a window of market features: logits of SHORT, NO_TRADE and LONG.

A convolution cuts the window into overlapping patches, so that the LSTM takes a quarter of the steps.

Shapes: B windows, L candles of a window (lookback), F features, S windows that follow each other.
"""

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from models.market.inputs import CLASSES
from models.market.signal_model import SignalConfig, SignalModel

PATCH = 4  # candles from one patch to the next


@dataclass(frozen=True)
class CNNLSTMConfig(SignalConfig):
    """Shape of the network and description of its input."""

    preset: str = "default"  # older versions had others
    width: int = 64  # channels and LSTM units
    dropout: float = 0.2

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.preset != "default":
            raise ValueError(f"preset {self.preset!r} is not known, only 'default'; train the model again")
        if self.width < 1 or not 0 <= self.dropout < 1:
            raise ValueError(f"width={self.width} must be 1 or more, and dropout={self.dropout} 0 or more and below 1")


class CNNLSTM(SignalModel):
    """Classifier of the next move from a window of features: logits of SHORT, NO_TRADE and LONG."""

    family = "cnn_lstm"
    config: CNNLSTMConfig

    def __init__(self, config: CNNLSTMConfig):
        super().__init__()
        self.config = config
        self.network = _Network(config)

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


class _Network(nn.Module):
    """Convolution over patches of 6 candles, 4 apart; an LSTM over the patches; a head on its last and mean state."""

    def __init__(self, config: CNNLSTMConfig):
        super().__init__()
        inputs, width = len(config.features), config.width
        self.coins = None if len(config.coins) == 1 else nn.Embedding(len(config.coins), inputs)
        if self.coins is not None:
            nn.init.normal_(self.coins.weight, std=1 / math.sqrt(inputs))
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
        states, _ = self.lstm(self.norm(F.gelu(self.convolution(padded.unfold(1, PATCH + 2, PATCH).flatten(2)))))
        logits: Tensor = self.head(torch.cat([states[:, -1], states.mean(1)], -1))
        return logits
