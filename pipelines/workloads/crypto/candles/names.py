"""Names of coins and timeframes, and facts about candles."""

import re
from datetime import UTC, datetime
from typing import Any

import numpy as np

from common.errors import UserError
from models.market.candles import VALUES, Candles

MINUTE = 60_000
MINUTES = {"m": (1, 3, 5, 15, 30), "h": (60, 120, 240, 360, 480, 720), "d": (1440,)}
# Weeks and months are left out: their candles do not open at multiples of their length since 1970.
TIMEFRAMES = {
    f"{minutes // unit}{letter}": minutes * MINUTE
    for (letter, lengths), unit in zip(MINUTES.items(), (1, 60, 1440), strict=True)
    for minutes in lengths
}
MINIMUM_ROWS = 500
JUMP = 2.0  # factor between consecutive closes above which a rename or a split is likelier than a trade
SYMBOL = re.compile(r"[A-Za-z0-9]+([/_:-][A-Za-z0-9]+)*")


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


def filled(candles: Candles, most: int) -> tuple[Candles, int]:
    """Return the candles with gaps of up to `most` filled, and the number of candles that this added.

    A candle that is added stands at the close before it and has no volume: nothing was traded.
    """
    missing = np.diff(candles.time) // candles.timeframe_ms - 1
    added = np.where(missing <= most, missing, 0)
    if not added.any():
        return candles, 0
    rows = np.repeat(np.arange(len(candles)), np.append(added + 1, 1))
    new = np.append(False, rows[1:] == rows[:-1])
    number = np.arange(len(rows)) - np.searchsorted(rows, rows)  # of the candle after the row that it repeats
    columns = {name: getattr(candles, name)[rows] for name in ("time", *VALUES)}
    columns["time"] = columns["time"] + number * candles.timeframe_ms
    for name in ("open", "high", "low"):
        columns[name] = np.where(new, columns["close"], columns[name])
    columns["volume"] = np.where(new, 0.0, columns["volume"])
    return Candles(candles.symbol, candles.timeframe_ms, **columns), int(added.sum())


def milliseconds(timeframe: str) -> int:
    """Return the length of a candle. Raises UserError for an unknown timeframe."""
    if timeframe not in TIMEFRAMES:
        raise UserError(f"data.timeframe={timeframe} is not known; give one of {', '.join(TIMEFRAMES)}")
    return TIMEFRAMES[timeframe]


def timeframe_name(length_ms: int) -> str:
    """Return "15m" for 900,000, and "45 min" or "17 s" for a length that no timeframe has."""
    names = {length: name for name, length in TIMEFRAMES.items()}
    other = f"{length_ms / 1000:g} s" if length_ms % MINUTE else f"{length_ms // MINUTE} min"
    return names.get(length_ms, other)


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
