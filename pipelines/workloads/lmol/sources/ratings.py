"""Scores from people's ratings of single images: the level and the noise of each rater, and how sure a score is.

rating = score of the image + level of the rater + noise of the rater

N images, K ratings, R raters
"""

from dataclasses import dataclass

import numpy as np

LONE_SCORE, LONE_RATING = 0.25, 0.7  # standard errors where nothing is rated twice, as shares of the scores' deviation
ROUNDS = 30
FEW = 4.0  # ratings' worth of the pooled variance, and of no level, that a rater begins with


@dataclass(frozen=True)
class Rated:
    """Scores of images (N,), their standard errors (N,), and each rater's level and noise (R,)."""

    scores: np.ndarray
    errors: np.ndarray
    levels: np.ndarray
    noises: np.ndarray


def averaged(image: np.ndarray, rater: np.ndarray, rating: np.ndarray) -> Rated:
    """Return the scores of images (N,) from ratings (K,), by number of image (K,) and of rater (K,).

    The noise of a rater is pooled over the images that others rated too, and drawn towards that of all raters.
    """
    raters = rater.max() + 1
    levels, variances = np.zeros(raters), np.ones(raters)
    for _ in range(ROUNDS):
        weights = 1 / variances[rater]
        total = np.bincount(image, weights)
        scores = np.bincount(image, weights * (rating - levels[rater])) / total
        off = rating - scores[image]
        free = 1 - weights / total[image]  # of a rating, what its own score does not follow
        heard = np.bincount(rater, free, raters)
        levels = np.bincount(rater, off, raters) / (heard + FEW)
        levels -= levels[rater].mean()
        followed = (1 - 1 / raters) * (heard / (heard + FEW)).sum()  # degrees of freedom of the levels
        square = np.square(off - levels[rater]) * free.sum() / max(free.sum() - followed, 1e-12)
        pooled = square.sum() / max(free.sum(), 1e-12)
        variances = (np.bincount(rater, square, raters) + FEW * pooled) / (heard + FEW)
        variances = np.maximum(variances, 1e-12 + 0.01 * pooled)
    own = np.bincount(image, weights * square) / np.maximum(np.bincount(image, free), 1e-9)  # 1 where as all expect
    several = np.bincount(image)
    errors = standard_errors(1 / np.sqrt(total), np.sqrt(own), several, LONE_RATING * scores.std())
    return Rated(scores, errors, levels, np.sqrt(variances))


def standard_errors(unit: np.ndarray, deviations: np.ndarray, counts: np.ndarray, lone: float) -> np.ndarray:
    """Return the standard errors (N,) of images with `counts` (N,) ratings that deviate by `deviations` (N,).

    `unit` (N,) are the errors if ratings deviate by 1; `lone` stands for all errors where nothing is rated twice. The
    variance is pooled over images; an image's own counts as far as images are found to differ (Buehlmann 1967).
    """
    free = counts - 1.0
    if not free.sum():
        return np.full(len(counts), lone)
    pooled = (free * np.square(deviations)).sum() / free.sum()
    if not pooled:
        return np.zeros(len(counts))
    share, chance = np.square(deviations) / pooled, 2 / np.maximum(free, 1e-9)
    seen = free > 0
    differ = max(0.0, float((free * (np.square(share - 1) - chance))[seen].sum() / (free * (1 + chance))[seen].sum()))
    trust = np.where(seen, differ / (differ * (1 + chance) + chance), 0.0)
    errors: np.ndarray = unit * np.sqrt(pooled * (1 + trust * (share - 1)))
    return errors
