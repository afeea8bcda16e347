"""Features of other coins and of longer timeframes, named as in BTCUSDT:log_return_1 and 4h:volatility_20.

The candles of other coins, a coin's context, are aligned with its own in time. Longer candles are made of a coin's own
such that one ends at every row: no row waits for one to close, or sees one that has not closed.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from common.errors import UserError
from models.market import candle_features
from models.market.candle_tables import TIMEFRAMES, timeframe_name
from models.market.candles import Candles

NAMES = (
    "log_return_1", "log_return_3", "log_return_12", "close_over_ema_12", "percent_b_20", "volume_z_50", "volatility_20"
)  # fmt: skip
MEMORY = 50  # candles that these depend on


def beside(candles: Candles, others: Mapping[str, Candles]) -> Candles:
    """Return the candles at the times that all others share, with these as context; other times become gaps.

    Raises UserError if there is no such time.
    """
    for name, each in others.items():
        candles = candles.rows(np.isin(candles.time, each.time))
        if not len(candles):
            raise UserError(f"{candles.symbol} and {name}, of data.context, have no candles at the same times")
    return candles.beside({name: each.rows(np.isin(each.time, candles.time)) for name, each in others.items()})


def factor(timeframe: str, timeframe_ms: int) -> int:
    """Return how many candles make one of `timeframe`. Raises UserError unless that is a whole number."""
    whole = [name for name, length in TIMEFRAMES.items() if timeframe_ms > 0 and not length % timeframe_ms]
    if timeframe not in whole:
        own = timeframe_name(timeframe_ms)
        way = f"give some of {', '.join(whole)}" if whole else "leave it out"
        raise UserError(f"data.timeframes: {timeframe} is no multiple of {own}; {way}")
    return TIMEFRAMES[timeframe] // timeframe_ms


def memory(others: Sequence[str], timeframe_ms: int) -> int:
    """Return how many candles a row's features depend on, the default ones among them, its own candle included."""
    longer = [MEMORY * factor(each, timeframe_ms) for each in others if each in TIMEFRAMES]
    return max([candle_features.MEMORY, *longer])


def columns(candles: Candles, others: Sequence[str]) -> dict[str, np.ndarray]:
    """Return the features (N,) float64 of candles without a gap, with context for other coins, by name."""
    found = dict[str, np.ndarray]()
    for name in others:
        if name in TIMEFRAMES:
            table = _longer(candles, factor(name, candles.timeframe_ms))
        else:
            table = candle_features.compute(candles.context[name], NAMES)
        found.update(zip((f"{name}:{feature}" for feature in NAMES), table.T, strict=True))
    return found


def _longer(candles: Candles, count: int) -> np.ndarray:
    """Return the features (N, F) of longer candles, of `count` rows each, that end at each row."""
    table = np.full((len(candles), len(NAMES)), np.nan)
    for phase in range(min(count, len(candles) - count + 1)):
        first = np.arange(phase, len(candles) - count + 1, count)
        ends = first + count - 1
        each = first[:, None] + np.arange(count)
        prices = candles.open[first], candles.high[each].max(1), candles.low[each].min(1), candles.close[ends]
        length, volume = candles.timeframe_ms * count, candles.volume[each].sum(1)
        made = Candles(candles.symbol, length, candles.time[first], *prices, volume)
        table[ends] = candle_features.compute(made, NAMES)
    return table
