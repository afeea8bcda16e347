"""The classifier of a coin in numpy: probabilities of SHORT, NO_TRADE and LONG from features of candles.

It computes what models/market/pooled_experts.py does, from the arrays of a saved model.

Shapes: L candles of a window, T candles in all, S = T - L + 1 windows, F features.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

DEPTH, TREE_LAGS = 6, 24  # as in models/market/pooled_experts.py, like all constants below
LARGEST, LARGEST_RETURN, LEAST_VOLATILITY = 8.0, 5.0, 0.05
LEAST_SIDE, LEAST_REST = 1e-4, 1e-3
Array: TypeAlias = np.ndarray
sliding = np.lib.stride_tricks.sliding_window_view


@dataclass
class Classifier:
    """A pool of a linear model, a network and trees."""

    arrays: Mapping[str, Array]  # those of the saved model, by their names there
    lookback: int
    return_place: int
    volatility_place: int
    dilations: Sequence[int]

    def probabilities(self, features: Array) -> Array:
        """Return probabilities (S, 3) of the windows of float32 features (T, F) without NaN."""
        get = self.arrays.__getitem__
        rows = ((features - get("mean")) / get("std")).astype(np.float32)
        returns = rows[:, self.return_place] + get("drift")
        volatility = np.maximum(1 + rows[:, self.volatility_place] * get("spread"), np.float32(LEAST_VOLATILITY))
        seen = rows, returns, volatility
        experts = [self._linear(*seen), self._network(*seen), self._trees(*seen)]
        return _softmax(sum(weight * expert for weight, expert in zip(get("weights"), experts, strict=True)))

    def _linear(self, rows: Array, returns: Array, volatility: Array) -> Array:
        last, now = rows[self.lookback - 1 :], volatility[self.lookback - 1 :, None]
        past = sliding(returns, self.lookback)
        scaled = sliding(returns / volatility, self.lookback) * now
        size = np.abs(past)
        moved = [np.log(size.mean(1) + 1e-3), np.log(size[:, -5:].mean(1) + 1e-2)]
        location, scale = self.arrays["location"], self.arrays["scale"]
        mean = np.concatenate([past, scaled, last * now], 1) @ location[:-1] + location[-1]
        inputs = np.concatenate([np.log(now), np.stack(moved, 1), last], 1)
        log_scale = np.clip(inputs @ scale[:-1] + scale[-1], -3, 3) + self.arrays["level"]
        return self._class_log_probabilities(mean, log_scale, now)

    def _network(self, rows: Array, returns: Array, volatility: Array) -> Array:
        scaled = np.clip(returns / volatility, -LARGEST_RETURN, LARGEST_RETURN)
        added = np.stack([scaled, np.abs(scaled) - 0.75, np.log(volatility)], 1)
        x = self._convolved("enter", np.clip(np.concatenate([rows, added], 1), -LARGEST, LARGEST))
        for number, dilation in enumerate(self.dilations):
            signal, gate = np.split(self._convolved(f"gated.{number}", x, dilation), 2, 1)
            x = x[2 * dilation :] + self._convolved(f"mixed.{number}", np.tanh(signal) * _sigmoid(gate))
        x = self._convolved("head", x[len(x) - (len(rows) - self.lookback + 1) :])
        found = self._convolved("out", 0.5 * x * (1 + _erf(x / np.sqrt(np.float32(2)))))
        now = volatility[self.lookback - 1 :, None]
        log_scale = self.arrays["level"] + np.clip(found[:, 1], -2, 2)
        return self._class_log_probabilities(found[:, 0] * now[:, 0], log_scale, now)

    def _convolved(self, name: str, x: Array, dilation: int = 1) -> Array:
        """Return a convolution over time of x (T, C), its taps `dilation` candles apart."""
        weight, bias = (self.arrays[f"network.{name}.{part}"] for part in ("weight", "bias"))  # (C', C, taps), (C',)
        left = len(x) - dilation * (weight.shape[2] - 1)
        return np.asarray(sum(x[k * dilation :][:left] @ weight[:, :, k].T for k in range(weight.shape[2])) + bias)

    def _trees(self, rows: Array, returns: Array, volatility: Array) -> Array:
        feature, threshold, left, right, value = (
            self.arrays[f"trees.{name}"] for name in ("feature", "threshold", "left", "right", "value")
        )
        lags = min(TREE_LAGS, self.lookback)
        scaled = sliding((returns / volatility)[self.lookback - lags :], lags)
        inputs = np.concatenate([rows[self.lookback - 1 :], scaled], 1)
        trees, row = np.arange(len(feature)), np.arange(len(inputs))[:, None]
        node = np.zeros((len(inputs), len(trees)), np.int32)
        for _ in range(DEPTH):
            goes_left = inputs[row, feature[trees, node]] <= threshold[trees, node]
            node = np.where(goes_left, left[trees, node], right[trees, node])
        values = value[trees, node].reshape(len(inputs), -1, 3).sum(1) + self.arrays["trees.start"]
        return np.asarray(np.log(_softmax(values)))

    def _class_log_probabilities(self, mean: Array, log_scale: Array, now: Array) -> Array:
        """Return log probabilities (S, 3) of a logistic variable below, between and above the thresholds."""
        above, below = (self.arrays["thresholds"] + self.arrays["slopes"] * now).T
        precision = np.exp(-log_scale)
        long, short = _sigmoid((mean - above) * precision), _sigmoid((-mean - below) * precision)
        rest = np.maximum(1 - long - short, LEAST_REST)
        sides = np.stack([np.maximum(short, LEAST_SIDE), rest, np.maximum(long, LEAST_SIDE)], 1)
        return np.asarray(np.log(sides / sides.sum(1, keepdims=True)))


def _sigmoid(x: Array) -> Array:
    return np.asarray(0.5 * (1 + np.tanh(0.5 * x)))  # without the overflow of an exponential


def _softmax(logits: Array) -> Array:
    shares = np.exp(logits - logits.max(1, keepdims=True))
    return np.asarray(shares / shares.sum(1, keepdims=True))


_erf = np.vectorize(math.erf, otypes=[np.float32])
