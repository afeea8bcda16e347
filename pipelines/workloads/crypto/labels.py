"""What came after: SHORT, NO_TRADE or LONG for every row whose whole future is known."""

import numpy as np

from common.errors import UserError
from pipelines.workloads.crypto.candles import Candles

CLASSES = ("SHORT", "NO_TRADE", "LONG")
SHORT, NO_TRADE, LONG = range(3)
UNKNOWN = -1  # without a full future, or without the past that the rule needs; in no class
RULES = ("fixed", "volatility", "triple_barrier")
FEE, SLIPPAGE = 0.001, 0.0005  # of the notional, per side
VOLATILITY_ROWS = 50
VOLATILITY_SCALE = 0.5


def round_trip_cost(fee: float = FEE, slippage: float = SLIPPAGE) -> float:
    """Share of the notional that entering and leaving together cost."""
    return 2 * (fee + slippage)


def check_threshold(threshold: float, fee: float = FEE, slippage: float = SLIPPAGE) -> None:
    """Raises UserError for a threshold that a correct prediction could reach without earning its cost."""
    cost = round_trip_cost(fee, slippage)
    if threshold < cost * (1 - 1e-9):
        raise UserError(
            f"data.threshold={threshold:g} is below the cost of a trade, 2 x (fee {fee:g} + slippage {slippage:g}) = "
            f"{cost:g}: a label could be right and lose money; give data.threshold={cost:g} or more"
        )


def check_rule(rule: str, horizon: int, threshold: float, stop: float | None = None) -> None:
    """Raises UserError for what `label` cannot do."""
    if rule not in RULES:
        raise UserError(f"data.label={rule} is not known; give one of {', '.join(RULES)}")
    if horizon < 1:
        raise UserError(f"data.horizon={horizon} must be 1 or more candles")
    if not threshold > 0:
        raise UserError(f"data.threshold={threshold} must be above 0")
    if stop is not None and not 0 < stop <= threshold:
        raise UserError(f"the stop {stop:g} must be above 0 and no further away than data.threshold={threshold:g}")


def label(
    candles: Candles,
    rule: str,
    horizon: int,
    threshold: float,
    *,
    scale: float = VOLATILITY_SCALE,
    stop: float | None = None,
) -> np.ndarray:
    """Labels (N,) int8 of the moves that start at each row's close; UNKNOWN where the future is not complete.

    fixed: the return to the close `horizon` rows on, beyond +-threshold or not.
    volatility: the same, against the larger of the threshold and `scale` times the standard deviation of the last 50
    log returns times sqrt(horizon).
    triple_barrier: LONG if a buyer's target +threshold is touched before its stop -`stop` (by default the threshold),
    SHORT likewise for a seller, NO_TRADE if neither is within `horizon` rows (Lopez de Prado 2018). A bar that touches
    both has touched the stop first, so it is nobody's.

    Rows whose future crosses a gap or the end are UNKNOWN. Raises UserError for a rule, horizon, threshold or stop
    that cannot be.
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
    """(N,) of log returns up to and including each row."""
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
    # With a stop no further than the target the two exclude each other: one's target lies beyond the other's stop.
    found[long_target < long_stop] = LONG
    found[short_target < short_stop] = SHORT
    return found
