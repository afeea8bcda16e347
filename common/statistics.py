"""Intervals of figures, 95 % unless said otherwise, as [low, high] or half their width; None: too few values."""

import math
from collections.abc import Hashable, Iterator, Sequence

import numpy as np

CONFIDENCE = 0.95
Z95 = 1.96  # standard errors to either side of a mean
FEW = 30  # values, up to which Student's t is used, as their own deviation is uncertain
QUANTILES_95 = (0.025, 0.975)
BINS = 10  # of confidence, equally wide
RESAMPLES = 1000  # of a bootstrap, by default
RESAMPLES_AT_ONCE = 100  # bounds the memory that `moving_block_sums` takes


def mean_and_half_width(values: np.ndarray) -> tuple[float, float | None]:
    """Return the mean of values (N,) and half the width of its interval, which is None for a single value."""
    return float(values.mean()), ratio_half_width(values, np.ones(len(values)))


def ratio_half_width(values: np.ndarray, weights: np.ndarray) -> float | None:
    """Return half the width of the interval of sum(values) / sum(weights), both (N,); None for a single pair."""
    if (count := len(values)) < 2:
        return None
    residual = values - values.sum() / weights.sum() * weights
    errors = Z95
    if count <= FEW:
        from scipy.special import stdtrit  # half a second to import

        errors = stdtrit(count - 1, QUANTILES_95[1])
    return float(errors * residual.std(ddof=1) * math.sqrt(count) / weights.sum())


def interval_around(centre: float, half_width: float | None) -> list[float] | None:
    """Return the interval of a centre and half a width; None without a width."""
    return None if half_width is None else [centre - half_width, centre + half_width]


def difference_interval(one: tuple[float, float, float], other: tuple[float, float, float]) -> list[float]:
    """Return the interval of a difference of independent figures (value, low, high), by Zou and Donner 2008."""
    (x, x_low, x_high), (y, y_low, y_high) = one, other
    return [x - y - math.hypot(x - x_low, y_high - y), x - y + math.hypot(x_high - x, y - y_low)]


def wilson(successes: int, trials: int) -> list[float] | None:
    """Return the score interval of a share (Wilson 1927); None without trials."""
    if not trials:
        return None
    from scipy.stats import binomtest  # a second to import

    low, high = binomtest(successes, trials).proportion_ci(CONFIDENCE, "wilson")
    return [float(low), float(high)]


def reliability(confidence: np.ndarray, correct: np.ndarray) -> tuple[float, list[dict[str, float]]]:
    """Return the expected calibration error and the bins with rows (Guo et al. 2017).

    Confidence (N,) is the probability of the answer given, which is `correct` (N,) or not.
    """
    numbers = np.searchsorted(np.linspace(0, 1, BINS + 1)[1:-1], confidence)
    counts, confidences, hits = (np.bincount(numbers, each, BINS) for each in (None, confidence, correct))
    bins = [
        {"n": int(count), "confidence": float(sure / count), "accuracy": float(right / count)}
        for count, sure, right in zip(counts, confidences, hits, strict=True)
        if count
    ]
    return float(np.abs(confidences - hits).sum() / len(correct)), bins


def resampled_groups(groups: Sequence[Hashable], resamples: int, seed: int) -> Iterator[np.ndarray]:
    """Yield resamples (Efron 1979) of items (N,) as indices: of whole `groups` (N,), then of as many items in each."""
    numbers = {name: number for number, name in enumerate(dict.fromkeys(groups))}
    group = np.array([numbers[name] for name in groups])
    order, size = np.argsort(group, kind="stable"), np.bincount(group)
    starts, generator, within = size.cumsum() - size, np.random.default_rng(seed), np.random.default_rng([seed, 1])
    for _ in range(resamples):
        each = np.repeat(drawn := generator.integers(len(size), size=len(size)), size[drawn])
        yield order[starts[each] + (within.random(len(each)) * size[each]).astype(np.int64)]


def resampled_counts(count: int, resamples: int, seed: int) -> np.ndarray | None:
    """Return (resamples, count), how often each of `count` items occurs in a resample; None for a single item."""
    return None if count < 2 else np.random.default_rng(seed).multinomial(count, np.full(count, 1 / count), resamples)


def moving_block_sums(rows: np.ndarray, block: int, resamples: int, seed: int) -> Iterator[np.ndarray]:
    """Yield sums (n, K) over rows (N, K) in random blocks, which keep neighbours together (Künsch 1989)."""
    cumulative = np.concatenate([np.zeros((1, rows.shape[1])), rows.cumsum(axis=0)])
    blocks = cumulative[block:] - cumulative[:-block]  # sums over each block, by its first row
    generator = np.random.default_rng(seed)
    for begin in range(0, resamples, RESAMPLES_AT_ONCE):
        num = min(RESAMPLES_AT_ONCE, resamples - begin)
        yield blocks[generator.integers(0, len(blocks), (num, math.ceil(len(rows) / block)))].sum(axis=1)


def percentiles(resampled: Sequence[float] | np.ndarray, quantiles: tuple[float, float] = QUANTILES_95) -> list[float]:
    """Return the interval between two quantiles of a figure's resampled values."""
    low, high = np.quantile(resampled, quantiles)
    return [float(low), float(high)]


def ratio_percentiles(values: np.ndarray, weights: np.ndarray, counts: np.ndarray | None) -> list[float] | None:
    """Return the interval of sum(values) / sum(weights), both (N,), by the counts of `resampled_counts`."""
    return None if counts is None else percentiles(counts @ values / (counts @ weights))
