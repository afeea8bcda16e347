"""Signals from probabilities, by a threshold that is chosen on validation candles."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pipelines.workloads.crypto.labels import LONG, SHORT
from pipelines.workloads.crypto.trading import backtest

THRESHOLDS = tuple(round(0.35 + 0.05 * i, 2) for i in range(12))  # 0.35 to 0.90; 1/3 excludes little among 3 classes


@dataclass(frozen=True)
class Choice:
    """The threshold with the best result on validation."""

    threshold: float | None  # None: not trading was best
    net_return: float
    num_trades: int
    table: Sequence[Mapping[str, Any]]  # every threshold tried


def signals(probabilities: np.ndarray, threshold: float | None) -> np.ndarray:
    """Return signals (N,) of probabilities (N, 3): the more probable side if it reaches the threshold, else 0.

    Without a threshold all signals are 0.
    """
    short, long = probabilities[:, SHORT], probabilities[:, LONG]
    if threshold is None:
        return np.zeros(len(probabilities), dtype=np.int64)
    return np.where(np.maximum(short, long) >= threshold, np.sign(long - short), 0).astype(np.int64)


def choose_threshold(
    probabilities: np.ndarray,
    open: np.ndarray,
    high: np.ndarray,
    low: np.ndarray,
    close: np.ndarray,
    gap: np.ndarray,
    *,
    grid: Sequence[float] = THRESHOLDS,
    **rules: Any,
) -> Choice:
    """Return the threshold with the highest net return on validation candles with probabilities (N, 3).

    Not trading is one of the choices. Among equal returns, fewer trades win, then the higher threshold, and not trading
    wins over a threshold that never traded. One threshold serves both sides: with two, the drift of the validation
    period would pick the side. `rules` are those of `backtest.run`: fee, slippage, stop, target, horizon.
    """
    tried: list[dict[str, Any]] = [{"threshold": None, "net_return": 0.0, "num_trades": 0}]
    for threshold in grid:
        result = backtest.run(open, high, low, close, signals(probabilities, threshold), gap, **rules)
        net_return = float(result.equity[-1] - 1.0)
        tried.append({"threshold": threshold, "net_return": net_return, "num_trades": len(result.trades)})
    best = max(tried, key=lambda row: (row["net_return"], -row["num_trades"], row["threshold"] or float("inf")))
    return Choice(**best, table=tried)
