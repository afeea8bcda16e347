"""Candles of one coin: opening times, prices and volumes, with gaps where candles are missing."""

import hashlib
from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

DAY = 86_400_000  # ms
VALUES = ("open", "high", "low", "close", "volume")
COLUMNS = ("time", *VALUES)


@dataclass(frozen=True)
class Candles:
    """N candles of one coin in order of time. Missing candles are gaps unless `filled`."""

    symbol: str
    timeframe_ms: int
    time: np.ndarray  # (N,) int64, opening time of the candle, ms since 1970 UTC
    open: np.ndarray  # (N,) float64, like all columns below
    high: np.ndarray
    low: np.ndarray
    close: np.ndarray
    volume: np.ndarray
    context: "Mapping[str, Candles]" = field(default_factory=dict, init=False)  # other coins' N at the same times

    def __len__(self) -> int:
        return len(self.time)

    def rows(self, chosen: slice | np.ndarray) -> "Candles":
        """Return the candles selected by a slice, a mask or row numbers."""
        found = Candles(self.symbol, self.timeframe_ms, **self.columns(chosen))
        return found.beside({name: each.rows(chosen) for name, each in self.context.items()})

    def beside(self, context: "Mapping[str, Candles]") -> "Candles":
        """Return these candles with those of other coins, by name, as context."""
        found = copy(self)
        object.__setattr__(found, "context", context)
        return found

    def columns(self, chosen: slice | np.ndarray = slice(None)) -> dict[str, np.ndarray]:
        """Return the columns of the selected rows, by name."""
        return {name: getattr(self, name)[chosen] for name in COLUMNS}

    def segments(self) -> list[slice]:
        """Return the stretches of rows without a gap, in order."""
        edges = [0, *(np.flatnonzero(np.diff(self.time) != self.timeframe_ms) + 1).tolist(), len(self)]
        return [slice(start, stop) for start, stop in pairwise(edges) if stop > start]

    def filled(self, most: int) -> "Candles":
        """Return the candles, without context, with gaps of up to `most` filled by candles at the close before them.

        Added candles have no volume: nothing was traded.
        """
        missing = np.diff(self.time) // self.timeframe_ms - 1
        added = np.where((missing > 0) & (missing <= most), missing, 0)
        if not added.any():
            return self
        rows = np.repeat(np.arange(len(self)), np.append(added + 1, 1))
        number = np.arange(len(rows)) - np.searchsorted(rows, rows)  # after the row that it repeats
        columns = self.columns(rows)
        columns["time"] = columns["time"] + number * self.timeframe_ms
        for name in ("open", "high", "low"):
            columns[name] = np.where(number, columns["close"], columns[name])
        columns["volume"] = np.where(number, 0.0, columns["volume"])
        return Candles(self.symbol, self.timeframe_ms, **columns)

    def digest(self) -> str:
        """Return the SHA-256 of the coin, the timeframe, all columns and the context."""
        total = hashlib.sha256(f"{self.symbol} {self.timeframe_ms}".encode())
        for column in self.columns().values():
            total.update(np.ascontiguousarray(column).tobytes())
        for name, each in self.context.items():
            total.update(f"{name} {each.digest()}".encode())
        return total.hexdigest()
