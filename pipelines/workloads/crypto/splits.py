"""Division of time into training, validation and test, such that no part has seen anything of the next.

A window ends at row t, holds the rows t - lookback + 1 to t, and its label is about the rows t + 1 to t + horizon. Two
kinds of windows are left out at every cut: those before it whose label reaches it (purge), and those that end within
the first max(horizon, lookback) candles after it (embargo). So no candle of the windows or labels of one
part is in those of another (Lopez de Prado 2018, chapter 7).
"""

from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from common.errors import UserError
from models.market.candle_tables import milliseconds
from models.market.candles import Candles
from pipelines.workloads.crypto.config import Data

PARTS = ("train", "validation", "test")
FRACTIONS = (0.70, 0.15, 0.15)
VALIDATION_SHARE = 0.15  # of the time before a fold's test; the latest part of it


class Fold(NamedTuple):
    """One division of time. `indices[symbol][part]` (n,) int64 are positions among the coin's windows."""

    cuts: tuple[int, int, int, int]  # ms: start, validation from, test from, end
    indices: dict[str, dict[str, np.ndarray]]


def usable(candles: Candles, features: np.ndarray, labels: np.ndarray, lookback: int) -> np.ndarray:
    """Return the rows (M,) int64 where a window can end: no gap in it, all features (N, F) finite, its label >= 0."""
    good = np.isfinite(features).all(1)
    run = np.zeros(len(candles), np.int64)  # number of good rows up to here since the last gap or bad row
    for segment in candles.segments():
        row = np.arange(segment.stop - segment.start)
        run[segment] = row - np.maximum.accumulate(np.where(good[segment], -1, row))
    return np.flatnonzero((run >= lookback) & (labels >= 0))


def divide(times: Mapping[str, np.ndarray], data: Data, span: tuple[int, int] | None = None) -> list[Fold]:
    """Return the one fold of `chronological` or those of `walk_forward`. Raises UserError for fewer than 2 of these.

    `times` holds per coin (M,) int64 ms, ascending: the opening times of the last candles of its windows. `span` is the
    time that is divided, ms, by default that of all windows. The parts of `chronological` are shares of it. The tests
    of `walk_forward` are consecutive blocks of equal length, each of which trains on all time before, with the last
    15 % of that for validation.
    """
    step, folds = milliseconds(data.timeframe), data.folds
    start = span[0] if span else int(min(each[0] for each in times.values()))
    stop = span[1] if span else int(max(each[-1] for each in times.values())) + step

    def cut(share: float, end: int = stop) -> int:
        """Return the opening time of the candle at `share` of the time up to `end`."""
        return start + round((end - start) * share / step) * step

    if data.split == "chronological":
        cuts = [(start, cut(FRACTIONS[0]), cut(FRACTIONS[0] + FRACTIONS[1]), stop)]
    elif folds < 2:
        raise UserError(f"data.folds={folds} must be 2 or more with data.split=walk_forward")
    else:
        edges = [cut((block + 1) / (folds + 1)) for block in range(folds)] + [stop]
        cuts = [(start, cut(1 - VALIDATION_SHARE, test), test, end) for test, end in pairwise(edges)]
    return [_fold(times, each, data.horizon * step, max(data.horizon, data.lookback) * step) for each in cuts]


def together(times: Mapping[str, np.ndarray], divide: Callable[..., list[Fold]]) -> dict[str, list[Fold]]:
    """Return the folds of the coins that have all parts, cut at the same times; `divide` maps `times` to folds.

    Coins are left out one by one, the shortest first.
    """
    left, folds = dict(times), list[Fold]()
    while left:
        folds = divide(left)
        short = [name for name in left if not all(len(rows) for fold in folds for rows in fold.indices[name].values())]
        if not short:
            break
        del left[min(short, key=lambda name: (len(left[name]), name))]
    return dict.fromkeys(left, folds)


def _fold(times: Mapping[str, np.ndarray], cuts: tuple[int, int, int, int], purge: int, embargo: int) -> Fold:
    indices: dict[str, dict[str, np.ndarray]] = {symbol: {} for symbol in times}
    for number, (part, (after, before)) in enumerate(zip(PARTS, pairwise(cuts), strict=True)):
        earliest = after + (embargo if number else 0)
        latest = before - (purge if part != "test" else 0)  # nothing follows the test
        for symbol, each in times.items():
            indices[symbol][part] = np.flatnonzero((each >= earliest) & (each < latest))
    return Fold(cuts, indices)


class Scaler(NamedTuple):
    """Mean and standard deviation of each of F features."""

    mean: np.ndarray  # (F,) float64
    std: np.ndarray  # (F,) float64, 1 for a constant feature

    @classmethod
    def fit(cls, features: np.ndarray, ends: np.ndarray, lookback: int) -> "Scaler":
        """Fit on the rows of `features` (N, F) in windows that end at `ends`, counting each row once."""
        begin, end = (np.bincount(ends + step, minlength=len(features) + 1) for step in (1 - lookback, 1))
        rows = features[np.cumsum(begin - end)[:-1] > 0]
        constant = rows.max(0) == rows.min(0)
        mean, std = rows.mean(0, dtype=np.float64), rows.std(0, dtype=np.float64)
        return cls(np.where(constant, rows[0], mean), np.where(constant, 1.0, std))

    def plain(self) -> dict[str, list[float]]:
        """Return both as lists."""
        return {"mean": self.mean.tolist(), "std": self.std.tolist()}

    def transform(self, features: np.ndarray) -> np.ndarray:
        """Return scaled features (..., F) float32."""
        return np.asarray(((features - self.mean) / self.std).astype(np.float32))
