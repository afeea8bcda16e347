"""Significance by moving blocks (Künsch 1989): of the difference between two predictors on the same rows, of a mean."""

import math
from collections.abc import Sequence
from typing import TypedDict

import numpy as np
from scipy.special import stdtr

from common.statistics import CONFIDENCE, moving_block_sums, percentiles
from models.market.labels import NO_TRADE
from pipelines.workloads.crypto.verdict.classification import checked, direction_log_losses, log_losses

MIN_BLOCKS = 10  # fewer blocks give no meaningful interval


class Gain(TypedDict):
    """A mean of paired differences, above 0 where the first predictor is better, with its interval if there is one."""

    gain: float
    low: float | None
    high: float | None


def block_bootstrap(
    probabilities: np.ndarray,
    other: np.ndarray,
    labels: np.ndarray,
    horizon: int,
    resamples: int = 1000,
    confidence: float = CONFIDENCE,
    seed: int = 0,
) -> dict[str, Gain]:
    """Return the gains of `probabilities` (N, 3) over `other` (N, 3), with intervals of the paired differences.

    Labels that look `horizon` candles ahead overlap, so blocks of at least that many rows, in order of time, are drawn.
    The gains are those in log_loss and direction_log_loss, without an interval for fewer than ten blocks.
    """
    probabilities, labels = checked(probabilities, labels)
    other, _ = checked(other, labels)
    saved = {
        "log_loss": log_losses(other, labels) - log_losses(probabilities, labels),
        "direction_log_loss": direction_log_losses(other, labels) - direction_log_losses(probabilities, labels),
    }
    weights = np.stack([np.ones(len(labels)), labels != NO_TRADE], 1)
    sums = np.concatenate([np.stack(list(saved.values()), 1), weights], 1)
    block = block_length(len(sums), horizon)

    def gains(total: np.ndarray) -> np.ndarray:
        return np.asarray(total[..., :2] / np.maximum(total[..., 2:], 1))

    found = [Gain(gain=float(gain), low=None, high=None) for gain in gains(sums.sum(axis=0))]
    if len(sums) >= MIN_BLOCKS * block:
        drawn = np.concatenate([gains(part) for part in moving_block_sums(sums, block, resamples, seed)])
        for gain, values in zip(found, drawn.T, strict=True):
            gain["low"], gain["high"] = percentiles(values, ((1 - confidence) / 2, (1 + confidence) / 2))
    return dict(zip(saved, found, strict=True))


def block_length(steps: int, least: int) -> int:
    """Return the steps of a block: N^(1/3), but no fewer than `least`."""
    return max(least, math.ceil(math.pow(steps, 1 / 3)))


def p_value(values: np.ndarray, horizon: int) -> float:
    """Return the one-sided p-value of a mean of values (N,) above 0, by the standard error over moving blocks.

    Blocks are three horizons long or more, where the autocorrelation reaches further (`fitted_block`). The part of the
    variance that they miss is extrapolated from blocks of half the length, as in a flat-top kernel, and the degrees of
    freedom of Student's t are those of that kernel, fewer where few blocks make up most of the variance. Exactly 1
    means fewer than MIN_BLOCKS blocks or values that do not vary; any other result is below 1.
    """
    count, values = len(values), np.asarray(values, np.float64)
    if count < MIN_BLOCKS * (least := block_length(count, 3 * horizon)):
        return 1.0
    block = max(least, min(fitted_block(values), count // MIN_BLOCKS))
    total = np.concatenate([[0.0], np.cumsum(values - values.mean())])
    whole, half = ((total[size:] - total[:-size]) ** 2 / size for size in (block, max(block // 2, 1)))
    if not (variance := max(whole.mean(), 2 * whole.mean() - half.mean())) > 0:
        return 1.0
    share, even = block / count, min(1.0, 3 * whole.mean() ** 2 / (whole**2).mean())
    freedom = max((0.75 / share - 1) * even, 1.0)
    return float(min(math.nextafter(1, 0), stdtr(freedom, -values.mean() * math.sqrt((1 - share) * count / variance))))


def fitted_block(values: np.ndarray) -> int:
    """Return the block length for the mean of values (N,) (Politis and White 2004, Patton's correction of 2009)."""
    count, centred = len(values), values - values.mean()
    spectrum = np.fft.rfft(centred, 2 * count)
    covariance = np.fft.irfft(spectrum * spectrum.conj())[: math.isqrt(count) + 6] / count
    if not covariance[0] > 0:
        return 1
    large = np.abs(covariance[1:]) >= 2 * math.sqrt(math.log10(count) / count) * covariance[0]
    following = np.any(np.lib.stride_tricks.sliding_window_view(large, 5), axis=1)  # five small ones end it
    lags = len(following) if following.all() else int(following.argmin())
    lag = np.arange(1, min(2 * max(lags, 1), len(covariance) - 1) + 1)
    weight = np.minimum(1.0, 2 * (1 - lag / lag[-1])) * covariance[lag]
    spread = covariance[0] + 2 * weight.sum()
    return max(1, math.ceil((1.5 * count * (2 * (lag * weight).sum() / spread) ** 2) ** (1 / 3))) if spread else 1


def holm(p_values: Sequence[float], family: int = 0) -> np.ndarray:
    """Return p-values (K,) adjusted for comparison with the level of all of them together (Holm 1979).

    The rest of a larger `family` was tested before.
    """
    given = np.asarray(p_values, dtype=np.float64)
    order = np.argsort(given, kind="stable")
    adjusted = np.maximum.accumulate(given[order] * (max(family, len(given)) - np.arange(len(given))))
    return np.asarray(np.minimum(adjusted, 1.0)[order.argsort()])
