"""Candles of one coin, and the names of coins and timeframes."""

import hashlib
import re
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import numpy as np

from common.errors import UserError

MINUTE = 60_000
MINUTES = {"m": (1, 3, 5, 15, 30), "h": (60, 120, 240, 360, 480, 720), "d": (1440,)}
# Weeks and months are left out: their candles do not open at multiples of their length since 1970.
TIMEFRAMES = {
    f"{minutes // unit}{letter}": minutes * MINUTE
    for (letter, lengths), unit in zip(MINUTES.items(), (1, 60, 1440), strict=True)
    for minutes in lengths
}
VALUES = ("open", "high", "low", "close", "volume")
MINIMUM_ROWS = 500
JUMP = 2.0  # factor between consecutive closes above which a rename or a split is likelier than a trade
SYMBOL = re.compile(r"[A-Za-z0-9]+([/_:-][A-Za-z0-9]+)*")


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

    def rows(self, chosen: Any) -> "Candles":
        """Return the candles selected by a slice, a mask or row numbers."""
        columns = {name: getattr(self, name)[chosen] for name in ("time", *VALUES)}
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


def describe(candles: Candles) -> dict[str, Any]:
    """Return counts, range and hash of candles that have passed the checks."""
    missing = np.diff(candles.time) // candles.timeframe_ms - 1
    moves = np.abs(np.diff(np.log(candles.close)))
    return {
        "candles": len(candles),
        "first": iso(candles.time[0]),
        "last": iso(candles.time[-1]),
        "zero_volume": int((candles.volume == 0).sum()),
        "jumps": int((moves > np.log(JUMP)).sum()),
        "gaps": int((missing > 0).sum()),
        "missing_candles": int(missing.sum()),
        "longest_gap": int(missing.max(initial=0)),
        "hash": candles.digest(),
    }


def milliseconds(timeframe: str) -> int:
    """Return the length of a candle. Raises UserError for an unknown timeframe."""
    if timeframe not in TIMEFRAMES:
        raise UserError(f"data.timeframe={timeframe} is not known; give one of {', '.join(TIMEFRAMES)}")
    return TIMEFRAMES[timeframe]


def timeframe_name(length_ms: int) -> str:
    """Return "15m" for 900,000, and "17 s" for a length that no timeframe has."""
    names = {length: name for name, length in TIMEFRAMES.items()}
    return names.get(length_ms, f"{length_ms / 1000:g} s")


def canonical(symbol: str) -> str:
    """Return BTCUSDT for btc_usdt, BTC/USDT and the like. Raises UserError for a name that no coin can have."""
    if not isinstance(symbol, str) or not SYMBOL.fullmatch(symbol):
        raise UserError(f"data.symbols: {symbol!r} is not the name of a coin; give one like BTCUSDT or BTC/USDT")
    return letters_and_digits(symbol)


def letters_and_digits(name: str) -> str:
    """Return the name in capitals without separators, so that different spellings compare equal."""
    return re.sub(r"[^A-Z0-9]", "", name.upper())


def iso(time_ms: int | np.integer) -> str:
    """Return a time in ms since 1970 as 2024-01-31T13:45:00Z."""
    return datetime.fromtimestamp(int(time_ms) / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
