"""Labels: SHORT, NO_TRADE or LONG for every row whose whole future is known."""

import numpy as np

from models.market.candles import Candles

SHORT, NO_TRADE, LONG = range(3)
UNKNOWN = -1  # the future, or the past that the rule needs, is incomplete
VOLATILITY_ROWS = 50  # log returns whose standard deviation is the volatility
VOLATILITY_SCALE = 0.5  # share of the volatility over the horizon that a move must exceed


def label(candles: Candles, rule: str, horizon: int, threshold: float) -> np.ndarray:
    """Return labels (N,) int8 of the moves that start at each row's close; UNKNOWN where the future is incomplete.

    fixed: LONG or SHORT if the return from this close to the one `horizon` rows later is beyond +-threshold.
    volatility: the same with the larger of the threshold and half the standard deviation of the last 50 log returns
    times sqrt(horizon).
    triple_barrier: LONG if +threshold is touched before -threshold, SHORT if it is the other way round, NO_TRADE if
    neither is touched within `horizon` rows (Lopez de Prado 2018). Whoever trades a candle that touches both has been
    stopped, so neither side wins it.

    Rows whose future crosses a gap or the end are UNKNOWN.
    """
    labels = np.full(len(candles), UNKNOWN, np.int8)
    for segment in candles.segments():
        part = candles.rows(segment)
        if len(part) <= horizon:
            continue
        if rule == "triple_barrier":
            found = _touched(part, horizon, threshold)
        else:
            limits = np.full(len(part), threshold)
            if rule == "volatility":
                limits = np.maximum(threshold, VOLATILITY_SCALE * _past_volatility(part.close) * np.sqrt(horizon))
            found = _moved(part.close, horizon, limits)
        labels[segment][: len(part) - horizon] = found
    return labels


def _moved(close: np.ndarray, horizon: int, limits: np.ndarray) -> np.ndarray:
    moves, limits = close[horizon:] / close[:-horizon] - 1, limits[:-horizon]
    found = np.full(len(moves), NO_TRADE, np.int8)
    found[moves > limits] = LONG
    found[moves < -limits] = SHORT
    found[np.isnan(limits)] = UNKNOWN
    return found


def _past_volatility(close: np.ndarray) -> np.ndarray:
    """Return the standard deviation (N,) of the last log returns up to and including each row."""
    result = np.full(len(close), np.nan)
    if len(close) > VOLATILITY_ROWS:
        windows = np.lib.stride_tricks.sliding_window_view(np.diff(np.log(close)), VOLATILITY_ROWS)
        result[VOLATILITY_ROWS:] = windows.std(1)
    return result


def _touched(candles: Candles, horizon: int, distance: float) -> np.ndarray:
    entry = candles.close[:-horizon, None]
    highs = np.lib.stride_tricks.sliding_window_view(candles.high[1:], horizon)  # (N - h, h): rows t + 1 to t + h
    lows = np.lib.stride_tricks.sliding_window_view(candles.low[1:], horizon)

    def first(touching: np.ndarray) -> np.ndarray:
        return np.where(touching.any(1), touching.argmax(1), horizon)

    above, below = first(highs >= entry * (1 + distance)), first(lows <= entry * (1 - distance))
    found = np.full(len(entry), NO_TRADE, np.int8)
    found[above < below] = LONG
    found[below < above] = SHORT
    return found
