"""Candles of one coin: opening times, prices and volumes, with gaps where candles are missing."""

import hashlib
from dataclasses import dataclass, fields
from itertools import pairwise

import numpy as np

VALUES = ("open", "high", "low", "close", "volume")
COLUMNS = ("time", *VALUES)


@dataclass(frozen=True)
class Candles:
    """N candles of one coin in order of time. Missing candles are gaps; no row is ever invented."""

    symbol: str
    timeframe_ms: int
    time: np.ndarray  # (N,) int64, opening time of the candle, ms since 1970 UTC
    open: np.ndarray  # (N,) float64, like all columns below
    high: np.ndarray
    low: np.ndarray
    close: np.ndarray
    volume: np.ndarray

    def __len__(self) -> int:
        return len(self.time)

    def rows(self, chosen: slice | np.ndarray) -> "Candles":
        """Return the candles selected by a slice, a mask or row numbers."""
        columns = {name: getattr(self, name)[chosen] for name in COLUMNS}
        return Candles(self.symbol, self.timeframe_ms, **columns)

    def segments(self) -> list[slice]:
        """Return the stretches of rows without a gap, in order."""
        cuts = np.flatnonzero(np.diff(self.time) != self.timeframe_ms) + 1
        edges = [0, *cuts.tolist(), len(self)]
        return [slice(start, stop) for start, stop in pairwise(edges) if stop > start]

    def digest(self) -> str:
        """Return the SHA-256 of the coin, the timeframe and all columns."""
        total = hashlib.sha256(f"{self.symbol} {self.timeframe_ms}".encode())
        for field in fields(self)[2:]:
            total.update(np.ascontiguousarray(getattr(self, field.name)).tobytes())
        return total.hexdigest()
