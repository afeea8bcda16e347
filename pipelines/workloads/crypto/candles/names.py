"""Names of coins and timeframes, and facts about candles."""

import re
from datetime import UTC, datetime

import numpy as np

from common.errors import UserError
from models.market.candle_tables import RULES

MINUTE = 60_000
# Weeks and months are left out: their candles do not open at multiples of their length since 1970.
TIMEFRAMES = {name: int(name[:-1]) * RULES.minutes[name[-1]] * MINUTE for name in RULES.lengths}
SYMBOL = re.compile(r"[A-Za-z0-9]+([/_:-][A-Za-z0-9]+)*")


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
