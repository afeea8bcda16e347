"""The rows of windows, and the rule that splits must keep."""

from collections.abc import Mapping
from itertools import pairwise

import numpy as np

from pipelines.workloads.crypto.splits import PARTS, Fold


def windows(ends: np.ndarray, lookback: int) -> np.ndarray:
    """Return the row numbers (B, lookback) of the windows that end at `ends` (B,), the end itself included."""
    return np.asarray(ends)[:, None] + np.arange(1 - lookback, 1)


def assert_disjoint(
    times: Mapping[str, np.ndarray], fold: Fold, horizon: int, lookback: int, timeframe_ms: int
) -> None:
    """Raise AssertionError if windows or labels of two parts, of any coins, share the time of a candle."""
    spans = {}
    for part in PARTS:
        ends = np.concatenate([each[fold.indices[symbol][part]] for symbol, each in times.items()])
        if len(ends):
            spans[part] = (ends.min() - (lookback - 1) * timeframe_ms, ends.max() + horizon * timeframe_ms)
    for earlier, later in pairwise(part for part in PARTS if part in spans):
        assert spans[earlier][1] < spans[later][0], (
            f"{earlier} uses candles up to {spans[earlier][1]}, but {later} begins with {spans[later][0]}"
        )
