"""Scores as whole numbers of an exact unit, so that differences of exactly theta do not depend on rounding.

The unit is a hundredth where a CSV has two decimals, and a sixtieth where its decimals are those of sixtieths.
"""

from collections.abc import Mapping, Sequence
from decimal import Decimal, InvalidOperation
from fractions import Fraction

import numpy as np

from models.images.ranking import SIMILAR

LARGEST_DENOMINATOR = 1000  # of units that are no power of ten
DECIMALS = 9  # beyond these, decimals are dropped; up to 3 decimals can hardly be a rounded fraction and stay decimals
LARGEST_THETA = 2**61  # units; no scores are further apart, and sums with them stay below 2^63

LabelledPair = tuple[int, str, str, int]  # line of the CSV, names of the first and second image, label


def number(text: str) -> Fraction | None:
    """Return the exact value of a decimal number; None if it is not a number, or larger than 10^9."""
    try:
        value = Decimal(text)
    except InvalidOperation:
        return None
    return Fraction(value) if value.is_finite() and abs(value) <= 10**9 and value.adjusted() >= -30 else None


def whole(texts: Sequence[str]) -> tuple[np.ndarray, Fraction]:
    """Return scores (N,) int64 in a unit that makes them whole numbers, and the unit.

    With up to three decimals the unit is that of the last decimal. With more it is the largest 1/q, q up to 1,000, of
    which all scores are multiples to the last decimal written: 2.883333 and 3.016667 are sixtieths. Failing that, it is
    that of the last of at most nine decimals.
    """
    values = [Fraction(Decimal(text)) for text in texts]
    decimals = max(0, *(-int(Decimal(text).normalize().as_tuple().exponent) for text in texts))
    denominators = range(1, LARGEST_DENOMINATOR + 1) if decimals > 3 else ()
    # Numbers that a computer printed are off by more than half of a seventeenth decimal.
    slack = max(Fraction(51, 100 * 10**decimals), Fraction(1, 10**12))
    for q in denominators:
        if all(abs(value - Fraction(round(value * q), q)) <= slack for value in values):
            break
    else:
        q = 10 ** min(decimals, DECIMALS)
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
