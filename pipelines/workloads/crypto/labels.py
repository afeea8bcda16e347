"""Labels: SHORT, NO_TRADE or LONG for every row whose whole future is known."""

import numpy as np

from common.errors import UserError
from models.market.candles import Candles

SHORT, NO_TRADE, LONG = range(3)
UNKNOWN = -1  # the future, or the past that the rule needs, is incomplete
RULES = ("fixed", "volatility", "triple_barrier")
VOLATILITY_ROWS = 50  # log returns whose standard deviation is the volatility
VOLATILITY_SCALE = 0.5  # share of the volatility over the horizon that a move must exceed


def check_rule(rule: str, horizon: int, threshold: float, stop: float | None = None) -> None:
    """Raise UserError for settings that `label` cannot use."""
    if rule not in RULES:
        raise UserError(f"data.label={rule} is not known; give one of {', '.join(RULES)}")
    if horizon < 1:
        raise UserError(f"data.horizon={horizon} must be 1 or more candles")
    if not threshold > 0:
        raise UserError(f"data.threshold={threshold} must be above 0")
    if stop is not None and not 0 < stop <= threshold:
        raise UserError(f"the stop {stop:g} must be above 0 and at most data.threshold={threshold:g}")


def label(
    candles: Candles,
    rule: str,
    horizon: int,
    threshold: float,
    *,
    scale: float = VOLATILITY_SCALE,
    stop: float | None = None,
) -> np.ndarray:
    """Return labels (N,) int8 of the moves that start at each row's close; UNKNOWN where the future is incomplete.

    fixed: LONG or SHORT if the return from this close to the one `horizon` rows later is beyond +-threshold.
    volatility: the same with the larger of the threshold and `scale` times the standard deviation of the last 50 log
    returns times sqrt(horizon).
    triple_barrier: LONG if a buyer's target +threshold is touched before its stop -`stop` (by default the threshold),
    SHORT if a seller's is, NO_TRADE if neither is touched within `horizon` rows (Lopez de Prado 2018). A candle that
    touches both counts as having touched the stop first, so neither side wins it.

    Rows whose future crosses a gap or the end are UNKNOWN. Raises UserError for a rule, horizon, threshold or stop
    that is not allowed.
    """
    stop = threshold if stop is None else stop
    check_rule(rule, horizon, threshold, stop)
    labels = np.full(len(candles), UNKNOWN, np.int8)
    for segment in candles.segments():
        part = candles.rows(segment)
        if len(part) <= horizon:
            continue
        if rule == "triple_barrier":
            found = _touched(part, horizon, threshold, stop)
        else:
            limits = np.full(len(part), threshold)
            if rule == "volatility":
                limits = np.maximum(threshold, scale * _past_volatility(part.close) * np.sqrt(horizon))
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


def _touched(candles: Candles, horizon: int, target: float, stop: float) -> np.ndarray:
    entry = candles.close[:-horizon]
    highs = np.lib.stride_tricks.sliding_window_view(candles.high[1:], horizon)  # (N - h, h): rows t + 1 to t + h
    lows = np.lib.stride_tricks.sliding_window_view(candles.low[1:], horizon)

    def first(touching: np.ndarray) -> np.ndarray:
        return np.where(touching.any(1), touching.argmax(1), horizon)

    entry = entry[:, None]
    long_target, long_stop = first(highs >= entry * (1 + target)), first(lows <= entry * (1 - stop))
    short_target, short_stop = first(lows <= entry * (1 - target)), first(highs >= entry * (1 + stop))
    found = np.full(len(entry), NO_TRADE, np.int8)
    # The stop is at most as far as the target, so one side's target lies beyond the other's stop: both cannot hold.
    found[long_target < long_stop] = LONG
    found[short_target < short_stop] = SHORT
    return found
