"""Labels: SHORT, NO_TRADE or LONG for every row whose whole future is known, and the signals by their probabilities."""

import numpy as np

from models.market.candle_features import change, deviation
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
    neither is touched within `horizon` rows (Lopez de Prado 2018). A candle that touches both stops a trade of either
    side, so neither wins it.

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
                volatility = deviation(change(np.log(part.close), 1), VOLATILITY_ROWS)
                limits = np.maximum(threshold, VOLATILITY_SCALE * volatility * np.sqrt(horizon))
            moves, limits = part.close[horizon:] / part.close[:-horizon] - 1, limits[:-horizon]
            found = np.select([np.isnan(limits), moves > limits, moves < -limits], [UNKNOWN, LONG, SHORT], NO_TRADE)
        labels[segment][: len(part) - horizon] = found
    return labels


def _touched(candles: Candles, horizon: int, distance: float) -> np.ndarray:
    entry = candles.close[:-horizon, None]
    highs = np.lib.stride_tricks.sliding_window_view(candles.high[1:], horizon)  # (N - h, h): rows t + 1 to t + h
    lows = np.lib.stride_tricks.sliding_window_view(candles.low[1:], horizon)

    def first(touching: np.ndarray) -> np.ndarray:
        return np.where(touching.any(1), touching.argmax(1), horizon)

    above, below = first(highs >= entry * (1 + distance)), first(lows <= entry * (1 - distance))
    return np.select([above < below, below < above], [LONG, SHORT], NO_TRADE)


def signals(probabilities: np.ndarray, threshold: float | None) -> np.ndarray:
    """Return signals (N,) of probabilities (N, 3): 1 LONG or -1 SHORT, the likelier if it reaches `threshold`, else 0.

    Without a threshold, all are 0.
    """
    short, long = probabilities[:, SHORT], probabilities[:, LONG]
    sure = np.maximum(short, long) >= (np.inf if threshold is None else threshold)
    return np.where(sure, np.sign(long - short), 0).astype(np.int64)
