"""Convolutions and an LSTM over a window of market features: logits of SHORT, NO_TRADE and LONG.

`legacy` runs convolutions in parallel with a bidirectional LSTM with attention and joins both in a head; it has 689,923
parameters with 15 features. `default` cuts the window into overlapping patches by a convolution, so that its LSTM takes
a quarter of the steps.

A saved model describes the input it needs: the order of the features, their scaling and the time between candles.
`predict` refuses input that does not match.

Shapes: B windows, L candles of a window (lookback), F features, N rows of a table.
"""

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from models import io
from models.io import config_from

CLASSES = ("SHORT", "NO_TRADE", "LONG")
PRESETS = ("legacy", "default")
MOST_CANDLES = 100_000  # of a window
PATCH = 4  # candles from one patch of `default` to the next
LEGACY_HIDDEN, LEGACY_HEADS = 100, 4
LEGACY_DROPOUT, LEGACY_SLOPE = 0.3, 0.1  # the slope is that of LeakyReLU below 0


@dataclass(frozen=True)
class CNNLSTMConfig:
    """Shape of the network and description of its input."""

    preset: str
    features: tuple[str, ...]  # names in the order of the columns
    lookback: int  # candles of a window
    width: int = 64  # channels and LSTM units; `default` only
    dropout: float = 0.2  # `default` only
    coins: tuple[str, ...] = ("",)  # with several, each window comes with the number of its coin
    scalers: dict[str, dict[str, list[float]]] = field(default_factory=dict)  # coin -> mean and std of each feature
    timeframe_ms: int = 0  # time from one candle to the next
    about: dict[str, Any] = field(default_factory=dict)  # label rule, split dates and hashes of the data, for readers

    def __post_init__(self) -> None:
        for name in ("features", "coins"):  # JSON has no tuples
            object.__setattr__(self, name, tuple(getattr(self, name)))
        if self.preset not in PRESETS:
            raise ValueError(f"preset {self.preset!r} is not known; give one of {', '.join(PRESETS)}")
        if not 4 <= self.lookback <= MOST_CANDLES or not self.features or not self.coins:
            raise ValueError(f"a window needs 4 to {MOST_CANDLES} candles, a feature and a coin")
        if self.width < 1 or self.timeframe_ms < 0 or not 0 <= self.dropout < 1:
            raise ValueError(
                f"width={self.width} must be 1 or more, timeframe_ms={self.timeframe_ms} not negative, and "
                f"dropout={self.dropout} 0 or more and below 1"
            )
        for coin, scaler in self.scalers.items():
            if {name: len(values) for name, values in scaler.items()} != dict.fromkeys(
                ("mean", "std"), len(self.features)
            ):
                raise ValueError(f"the scaler of {coin!r} must be the mean and std of {len(self.features)} features")


class CNNLSTM(io.Model):
    """Classifier of the next move from a window of features: logits of SHORT, NO_TRADE and LONG."""

    family = "cnn_lstm"

    def __init__(self, config: CNNLSTMConfig):
        super().__init__()
        self.config = config
        network = {"legacy": _Legacy, "default": _Default}[config.preset]
        self.network = network(config)

    def forward(self, windows: Tensor, coins: Tensor | None = None) -> Tensor:
        """Return logits (B, 3) of scaled windows (B, L, F); a model of several coins also needs their numbers (B,)."""
        return self.network(windows, coins)

    @torch.no_grad()
    def predict(
        self, table: Mapping[str, Any], times: Sequence[int], coin: str | None = None, now: int | None = None
    ) -> Tensor:
        """Return probabilities (N - L + 1, 3) of SHORT, NO_TRADE and LONG after each of the last N - L + 1 rows.

        `table` maps each feature to its column (N,), not scaled and in the order of `config.features`; `times` are the
        candles' opening times in ms since 1970; `now` is the current time in ms, by default the clock's. Raises
        ValueError for columns that are missing, unknown or in another order, for gaps, for values that are not finite,
        for fewer than L rows, and if the newest candle is not the last one that has closed.
        """
        config, device = self.config, next(self.parameters()).device
        coin = self._coin(coin)
        self._check_columns(tuple(table))
        opens = torch.as_tensor(times, dtype=torch.int64)
        rows = torch.stack([torch.as_tensor(column, dtype=torch.float64) for column in table.values()], 1)
        self._check_times(opens, len(rows), int(time.time() * 1000) if now is None else now)
        bad = (~rows.isfinite()).nonzero()
        if len(bad):
            row, column = bad[0].tolist()
            raise ValueError(f"{config.features[column]} is not finite at {int(opens[row])} ms; give complete features")
        scaler = config.scalers[coin]
        mean, std = (torch.tensor(scaler[name], dtype=torch.float64) for name in ("mean", "std"))
        scaled = ((rows - mean) / std).float().to(device)
        windows = scaled.unfold(0, config.lookback, 1).transpose(1, 2)
        numbers = torch.full((len(windows),), config.coins.index(coin), device=device)
        logits = [self(*part) for part in zip(windows.split(1024), numbers.split(1024), strict=True)]
        return torch.cat(logits).float().softmax(-1).cpu()

    def _coin(self, coin: str | None) -> str:
        known = self.config.coins
        if coin is None and len(known) == 1:
            return known[0]
        if coin is None or coin not in known:
            raise ValueError(f"this model does not know the coin {coin!r}; give one of {', '.join(known)}")
        return coin

    def _check_columns(self, given: tuple[str, ...]) -> None:
        wanted = self.config.features
        missing = [name for name in wanted if name not in given]
        unknown = [name for name in given if name not in wanted]
        if missing or unknown:
            listed = (("missing", missing), ("unknown", unknown))
            faults = [f"{fault}: {', '.join(names)}" for fault, names in listed if names]
            raise ValueError(f"the columns do not match ({'; '.join(faults)}); give {', '.join(wanted)}")
        if given != wanted:
            place = next(number for number, pair in enumerate(zip(given, wanted, strict=True)) if pair[0] != pair[1])
            raise ValueError(
                f"the columns are in another order than in training: column {place} is {given[place]}, not "
                f"{wanted[place]}; give {', '.join(wanted)}"
            )

    def _check_times(self, times: Tensor, rows: int, now: int) -> None:
        step, lookback = self.config.timeframe_ms, self.config.lookback
        if times.shape != (rows,):
            raise ValueError(f"times must be {rows} numbers, one for each row (given: shape {tuple(times.shape)})")
        if rows < lookback:
            raise ValueError(
                f"a window has {lookback} candles, but there are only {rows}; give {lookback} rows or more"
            )
        breaks = (times.diff() != step).nonzero()
        if len(breaks):
            before, after = times[int(breaks[0])], times[int(breaks[0]) + 1]
            raise ValueError(
                f"there is a gap: the candle after {int(before)} ms is {int(after)} ms, not {int(before) + step}; "
                "give candles without gaps"
            )
        # A candle that opens at t is complete at t + step and remains the last complete one until t + 2 steps.
        age = now - int(times[-1])
        if not step <= age < 2 * step:
            kind = "has not closed yet" if age < step else "is stale"
            raise ValueError(
                f"the newest candle, {int(times[-1])} ms, {kind} at {now} ms: the last closed one opened at "
                f"{now // step * step - step} ms; give rows up to it, or another `now` for the past"
            )

    def example(self) -> dict[str, Tensor]:
        """Return keyword arguments of a forward pass, always the same."""
        config, generator = self.config, torch.Generator().manual_seed(0)
        windows = torch.randn(4, config.lookback, len(config.features), generator=generator)
        return {"windows": windows, "coins": torch.arange(4) % len(config.coins)}


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
        logits = self.head(torch.cat([seen, attended[:, 0]], -1))
        return logits if self.coins is None else logits + self.coins(coins)


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
            nn.LayerNorm(2 * width),
            nn.Dropout(config.dropout),
            hidden,
            nn.GELU(),
            nn.Dropout(config.dropout),
            output,
        )

    def forward(self, windows: Tensor, coins: Tensor | None) -> Tensor:
        if self.coins is not None:
            windows = windows + self.coins(coins)[:, None]
        # Padded at the front so that the last patch ends with the last candle for every length.
        padded = F.pad(windows, (0, 0, 1 + -windows.shape[1] % PATCH, 1))
        patches = F.gelu(self.convolution(padded.unfold(1, PATCH + 2, PATCH).flatten(2)))
        states, _ = self.lstm(self.norm(patches))
        return self.head(torch.cat([states[:, -1], states.mean(1)], -1))


def _embedding(config: CNNLSTMConfig, width: int) -> nn.Embedding | None:
    if len(config.coins) == 1:
        return None
    table = nn.Embedding(len(config.coins), width)
    nn.init.normal_(table.weight, std=1 / math.sqrt(width))
    return table


def build(config: Mapping[str, Any]) -> CNNLSTM:
    """Return the model of a saved config. Raises ValueError for an unknown config."""
    return CNNLSTM(config_from(CNNLSTMConfig, config))
