"""The scores of a table: whole numbers of an exact unit, and means of people's ratings with standard errors.

In whole numbers, differences of exactly theta do not depend on rounding. The unit is a hundredth where a table has two
decimals, and a sixtieth where its decimals are those of sixtieths. Of ratings,

    rating = score of the image + level of the rater + noise of the rater

N images, K ratings, R raters
"""

import re
from collections.abc import Mapping, Sequence
from decimal import Decimal, InvalidOperation
from fractions import Fraction

import numpy as np

from models.images.ranking import SIMILAR

LARGEST_DENOMINATOR = 1000  # of units that are no power of ten
DECIMALS = 9  # beyond these, decimals are dropped; up to 3 decimals can hardly be a rounded fraction and stay decimals
LARGEST_THETA = 2**61  # units; no scores are further apart, and sums with them stay below 2^63

LabelledPair = tuple[int, str, str, int]  # line of the CSV, names of the first and second image, label
LONE_SCORE, LONE_RATING = 0.25, 0.7  # standard errors where nothing is rated twice, as shares of the scores' deviation
ROUNDS = 30
SCALE = re.compile(r"(?<!\s)\s*(%|/\s*[1-9]\d{0,2})?$")  # behind a score: 76%, 7.6/10
FEW = 4.0  # weight, in ratings, of a rater's prior: the pooled variance and level 0


def number(text: str) -> Fraction | None:
    """Return the exact value of a decimal number; None if it is not a number, or larger than 10^9."""
    try:
        value = Decimal(text)
    except InvalidOperation:
        return None
    return Fraction(value) if value.is_finite() and abs(value) <= 10**9 and value.adjusted() >= -30 else None


def whole(texts: Sequence[str]) -> tuple[np.ndarray, Fraction]:
    """Return scores (N,) int64 in a unit that makes them whole numbers, and the unit.

    With up to three decimals the unit is that of the last decimal, with more the largest 1/q, q up to 1,000, of which
    all are multiples to the last decimal written (2.883333 and 3.016667 are sixtieths), else that of the last of nine.
    """
    values = [Fraction(Decimal(text)) for text in texts]
    decimals = max(0, *(-int(Decimal(text).normalize().as_tuple().exponent) for text in texts))
    # Numbers that a computer printed are off by more than half of a seventeenth decimal.
    slack = max(Fraction(51, 100 * 10**decimals), Fraction(1, 10**12))

    def fits(q: int) -> bool:
        return all(abs(value - Fraction(round(value * q), q)) <= slack for value in values)

    q = next(filter(fits, range(1, LARGEST_DENOMINATOR + 1 if decimals > 3 else 0)), 10 ** min(decimals, DECIMALS))
    return np.array([round(value * q) for value in values], np.int64), Fraction(1, q)


def in_units(theta: float, unit: Fraction) -> int:
    """Return the largest whole number of units not above `theta` as it was typed: 0.2 has 12 sixtieths."""
    return min(Fraction(Decimal(str(theta))) // unit, LARGEST_THETA)


def fit_theta(pairs: Sequence[LabelledPair], score: Mapping[str, int]) -> int:
    """Return the smallest theta, in units, among those that contradict the fewest labels of `pairs`."""
    distance = np.array([abs(score[a] - score[b]) for _, a, b, _ in pairs])
    similar = np.sort(distance[np.array([label == SIMILAR for *_, label in pairs])])
    others = np.sort(distance[np.array([label != SIMILAR for *_, label in pairs])])
    tried = np.unique([0, *similar])
    wrong = len(similar) - np.searchsorted(similar, tried, "right") + np.searchsorted(others, tried, "right")
    return int(tried[wrong.argmin()])


def averaged(image: np.ndarray, rater: np.ndarray, rating: np.ndarray) -> tuple[np.ndarray, ...]:
    """Return scores (N,) and their errors (N,) from ratings (K,), by image and rater (K,), and levels and noises (R,).

    A rater's noise is shrunk towards that of all.
    """
    raters = rater.max() + 1
    levels, variances = np.zeros(raters), np.ones(raters)
    for _ in range(ROUNDS):
        weights = 1 / variances[rater]
        total = np.bincount(image, weights)
        scores = np.bincount(image, weights * (rating - levels[rater])) / total
        off = rating - scores[image]
        free = 1 - weights / total[image]  # one minus a rating's leverage on its score
        heard = np.bincount(rater, free, raters)
        shared = free > 0  # an image's only rating says nothing about its rater's level
        levels = np.bincount(rater, off * shared, raters) / (np.bincount(rater, shared, raters) + FEW)
        levels -= levels[rater].mean()
        followed = (1 - 1 / raters) * (heard / (heard + FEW)).sum()  # degrees of freedom of the levels
        square = np.square(off - levels[rater]) * free.sum() / max(free.sum() - followed, 1e-12)
        pooled = square.sum() / max(free.sum(), 1e-12)
        variances = (np.bincount(rater, square, raters) + FEW * pooled) / (heard + FEW)
        variances = np.maximum(variances, 1e-12 + 0.01 * pooled)
    own = np.bincount(image, weights * square) / np.maximum(np.bincount(image, free), 1e-9)  # 1: as expected
    errors = standard_errors(1 / np.sqrt(total), np.sqrt(own), np.bincount(image), LONE_RATING * scores.std())
    return scores, errors, levels, np.sqrt(variances)


def standard_errors(unit: np.ndarray, deviations: np.ndarray, counts: np.ndarray, lone: float) -> np.ndarray:
    """Return the standard errors (N,) of images with `counts` (N,) ratings that deviate by `deviations` (N,).

    `unit` (N,) are the errors if ratings deviate by 1, `lone` all errors where nothing is rated twice. The variance is
    pooled over images; an image's own counts as far as images are found to differ (Buehlmann 1967).
    """
    if not (free := counts - 1.0).sum():
        return np.full(len(counts), lone)
    if not (pooled := (free * np.square(deviations)).sum() / free.sum()):
        return np.zeros(len(counts))
    share, chance = np.square(deviations) / pooled, 2 / np.maximum(free, 1e-9)
    seen = free > 0
    differ = max(0.0, float((free * (np.square(share - 1) - chance))[seen].sum() / (free * (1 + chance))[seen].sum()))
    trust = np.where(seen, differ / (differ * (1 + chance) + chance), 0.0)
    return np.asarray(unit * np.sqrt(pooled * (1 + trust * (share - 1))))
