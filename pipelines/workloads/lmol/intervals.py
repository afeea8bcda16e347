"""95 % intervals of the evaluation's figures."""

from collections.abc import Sequence

import numpy as np
from scipy import stats

RESAMPLES = 1000


def wilson(right: int, count: int) -> tuple[float, float]:
    """Return Wilson's interval of a share, for `right` successes in `count` independent trials."""
    interval = stats.binomtest(right, count).proportion_ci(method="wilson")
    return float(interval.low), float(interval.high)


def percentiles(resampled: Sequence[float] | np.ndarray) -> list[float]:
    """Return the interval between the 2.5 % and 97.5 % quantiles of a figure's resampled values."""
    low, high = np.quantile(resampled, (0.025, 0.975))
    return [float(low), float(high)]
