"""A classifier of the next move as one program from windows of features to probabilities; features come as Python.

The program scales the features itself, in float64 as in training, and ends in a softmax. Features of candles are
computed by models/market/candle_features.py, which goes along.

Shapes as in models/market/signal_model.py: B windows, L candles of a window, F features.
"""

import json
from collections.abc import Callable, Sequence
from copy import copy

import numpy as np
import torch
from torch import Tensor, nn

from exporters import portable
from exporters.onnx import FRESH, TOLERANCE, Artifact, Part, Program, examples
from models.market import candle_features
from models.market.candles import Candles
from models.market.inputs import CLASSES
from models.market.signal_model import SignalModel


class Classifier(Part[SignalModel]):
    """From windows of features to the probabilities of SHORT, NO_TRADE and LONG."""

    def __init__(self, model: SignalModel):
        super().__init__(model)
        scalers = [model.config.scalers[coin] for coin in model.config.coins]
        mean, std = (torch.tensor([each[name] for each in scalers], dtype=torch.float64) for name in ("mean", "std"))
        self.mean, self.std = nn.Buffer(mean), nn.Buffer(std)

    def forward(self, windows: Tensor, coins: Tensor) -> Tensor:
        """Return probabilities (B, 3) of windows (B, L, F) of float32 features; `coins` (B,) are their numbers."""
        scaled = ((windows.double() - self.mean[coins][:, None]) / self.std[coins][:, None]).float()
        logits: Tensor = self.model(scaled, coins)[:, -1]
        return logits.softmax(-1)


def describe(model: SignalModel) -> Artifact:
    """Return the program, with the code that computes its features. Raises ValueError where that lacks some."""
    config = model.config
    candle_features.check(config.features)
    if unknown := [coin for coin in config.coins if coin not in config.scalers]:
        raise ValueError(f"the model has no scaler of the features of {', '.join(unknown)}; train it again")

    def fresh(number: int) -> tuple[Tensor, ...]:
        generator = torch.Generator().manual_seed(number)
        batch = 1 + number % 7
        drawn = torch.randn(batch, config.lookback, len(config.features), generator=generator, dtype=torch.float64)
        coins = torch.randint(len(config.coins), (batch,), generator=generator)
        module = Classifier(model)
        return (drawn * module.std[coins][:, None] + module.mean[coins][:, None]).float(), coins

    axes = {name: {0: "windows"} for name in ("windows", "coins")}
    lists = {"classes": list(CLASSES), "coins": list(config.coins), "features": list(config.features)}
    lengths = {"lookback": config.lookback, "candles_needed": model.candles_needed, "timeframe_ms": config.timeframe_ms}
    settings = json.dumps({**lists, **lengths})
    return Artifact(
        programs=[Program("classifier", Classifier(model), axes, ["probabilities"], fresh)],
        example=examples.script("cnn_lstm"),
        files={"settings.json": settings.encode(), **portable.copies("models.market.candle_features")},
    )


def largest_difference(
    model: SignalModel, coins: Sequence[str], probabilities: Callable[[Candles, str], np.ndarray], what: str
) -> float:
    """Return how far `probabilities` (n, 3) of random candles are from the model's; RuntimeError beyond rounding."""
    worst, plain = 0.0, copy(model)
    plain.rule = None  # it may correct probabilities, which an export of the network does not do
    for number in range(FRESH):
        candles = random_candles(number, model.candles_needed + number % 5, model.config.timeframe_ms)
        coin = coins[number % len(coins)]
        closed = int(candles.time[-1]) + model.config.timeframe_ms  # the newest candle, just now
        known = plain.probabilities(candles.columns(), coin, closed).numpy()
        worst = max(worst, float(abs(probabilities(candles, coin) - known).max()))
    if not worst <= TOLERANCE:
        raise RuntimeError(f"probabilities of {what} differ from the model's by {worst}, more than {TOLERANCE}")
    return worst


def random_candles(number: int, rows: int, timeframe_ms: int) -> Candles:
    """Return candles of a random walk whose volatility varies."""
    generator = np.random.default_rng(number)
    close = 100 * np.exp(np.cumsum(generator.normal(0, 0.003, rows) * np.exp(generator.normal(0, 0.3, rows))))
    open = np.r_[100.0, close[:-1]]
    wicks = np.exp(np.abs(generator.normal(0, 0.001, (2, rows))))
    high, low = np.maximum(open, close) * wicks[0], np.minimum(open, close) / wicks[1]
    time = (1_700_000_000_000 // timeframe_ms + np.arange(rows)) * timeframe_ms
    return Candles("", timeframe_ms, time, open, high, low, close, generator.lognormal(3, 1, rows))
