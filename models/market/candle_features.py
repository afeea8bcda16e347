"""Features of candles, by name.

A feature of row t depends on the candles up to t, and on no more than the last MEMORY of them: exponential
averages are cut off where the remaining weight falls below TAIL. So a service that keeps only that many candles
computes the same features as training did. No feature crosses a gap: rows with too few candles since the last gap are
NaN.
"""

import math
from collections.abc import Callable, Sequence

import numpy as np

from models.market.candles import DAY, Candles

TAIL = 1e-3  # total weight of the past that an exponential average leaves out
NAMES = (
    "log_return_1", "log_return_3", "log_return_12", "close_over_ema_12", "close_over_ema_26", "close_over_ema_50",
    "atr_14", "percent_b_20", "band_width_20", "rsi_14", "macd", "macd_histogram", "volume_z_50", "volatility_20",
    "volatility_50", "body", "upper_wick", "lower_wick", "hour_sin", "hour_cos", "weekday_sin", "weekday_cos",
)  # fmt: skip
# Candles that a row's features depend on, its own included: the longest average, and one more for its returns.
MEMORY = math.ceil(math.log(TAIL) / math.log(1 - 2 / 51)) + 1


def compute(candles: Candles, names: Sequence[str] = ()) -> np.ndarray:
    """Return the features (N, F) float64 of these names, by default of all NAMES; NaN in rows without full warm-up.

    Raises ValueError for an unknown name.
    """
    check(names)
    chosen = names or NAMES
    table = np.full((len(candles), len(chosen)), np.nan)
    for segment in candles.segments():
        columns = _columns(candles.rows(segment))
        block = np.stack([columns[name] for name in chosen], 1)
        block[np.isnan(block).any(1)] = np.nan
        table[segment] = block
    return table


def check(names: Sequence[str]) -> None:
    """Raise ValueError for names that are none of NAMES."""
    if missing := [name for name in names if name not in NAMES]:
        own = "your own, and those of other coins or timeframes, work only in predict.py, serve.py and follow.py"
        raise ValueError(f"there is no feature {', '.join(missing)} here: {own}; train again without them")


def _columns(candles: Candles) -> dict[str, np.ndarray]:
    """Compute features without a scale: multiplying all prices or all volumes by a number changes nothing."""
    close, high, low = candles.close, candles.high, candles.low
    averages = {span: _ema(close, 2 / (span + 1)) for span in (12, 26, 50)}
    macd = averages[12] - averages[26]
    mean, spread_20 = _mean(close, 20), deviation(close, 20)
    spread = high - low
    hour = 2 * np.pi * (candles.time % DAY) / DAY
    weekday = 2 * np.pi * ((candles.time // DAY + 3) % 7) / 7  # 1970 began on a Thursday
    return {
        **{f"log_return_{lag}": change(np.log(close), lag) for lag in (1, 3, 12)},
        **{f"close_over_ema_{span}": close / average - 1 for span, average in averages.items()},
        "atr_14": _ema(_true_range(candles), 1 / 14) / close,
        "percent_b_20": _ratio(close - (mean - 2 * spread_20), 4 * spread_20, 0.5),
        "band_width_20": 4 * spread_20 / mean,
        "rsi_14": _rsi(close),
        "macd": macd / close,
        "macd_histogram": (macd - _ema(macd, 2 / 10)) / close,
        "volume_z_50": _ratio(candles.volume - _mean(candles.volume, 50), deviation(candles.volume, 50), 0.0),
        "volatility_20": deviation(change(np.log(close), 1), 20),
        "volatility_50": np.sqrt(_ema(change(np.log(close), 1) ** 2, 2 / 51)),
        "body": _ratio(close - candles.open, spread, 0.0),
        "upper_wick": _ratio(high - np.maximum(candles.open, close), spread, 0.0),
        "lower_wick": _ratio(np.minimum(candles.open, close) - low, spread, 0.0),
        "hour_sin": np.sin(hour),
        "hour_cos": np.cos(hour),
        "weekday_sin": np.sin(weekday),
        "weekday_cos": np.cos(weekday),
    }


def _ema(values: np.ndarray, share: float) -> np.ndarray:
    """Return averages (N,) with weight (1 - share)^k for the value k rows before, NaN until the cut-off is reached."""
    weights = (1 - share) ** np.arange(math.ceil(math.log(TAIL) / math.log(1 - share)))
    return _windowed(values, len(weights), lambda finite: np.convolve(finite, weights / weights.sum(), "valid"))


def _mean(values: np.ndarray, rows: int) -> np.ndarray:
    return _windowed(values, rows, lambda finite: np.lib.stride_tricks.sliding_window_view(finite, rows).mean(1))


def deviation(values: np.ndarray, rows: int) -> np.ndarray:
    """Return the standard deviation (N,) of the last `rows` values; exactly 0 where they are all equal."""

    def of_windows(finite: np.ndarray) -> np.ndarray:
        windows = np.lib.stride_tricks.sliding_window_view(finite, rows)
        return np.where(windows.max(1) == windows.min(1), 0.0, windows.std(1))

    return _windowed(values, rows, of_windows)


def _windowed(values: np.ndarray, rows: int, function: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """Apply `function` to all windows of `rows` values after the leading NaN; rows without a whole window are NaN."""
    result = np.full(len(values), np.nan)
    start = int(np.isnan(values).sum())
    if len(values) - start >= rows:
        result[start + rows - 1 :] = function(values[start:])
    return result


def change(values: np.ndarray, lag: int) -> np.ndarray:
    """Return the differences (N,) from the values `lag` rows before, NaN where there are none."""
    result = np.full(len(values), np.nan)
    result[lag:] = values[lag:] - values[:-lag]
    return result


def _ratio(numerator: np.ndarray, denominator: np.ndarray, otherwise: float) -> np.ndarray:
    return np.where(denominator == 0, otherwise, numerator / np.where(denominator == 0, 1.0, denominator))


def _true_range(candles: Candles) -> np.ndarray:
    """Return true ranges (N,) (Wilder 1978); NaN in the first row, which has no close before it."""
    before = np.concatenate([[np.nan], candles.close[:-1]])
    spread = candles.high - candles.low
    return np.asarray(np.maximum.reduce([spread, np.abs(candles.high - before), np.abs(candles.low - before)]))


def _rsi(close: np.ndarray) -> np.ndarray:
    """Return the relative strength index (N,), 0 to 100 (Wilder 1978); 50 where the price has not moved."""
    moves = change(close, 1)
    gains, losses = _ema(np.maximum(moves, 0), 1 / 14), _ema(np.maximum(-moves, 0), 1 / 14)
    return 100 * _ratio(gains, gains + losses, 0.5)
