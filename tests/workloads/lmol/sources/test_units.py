"""Exact scores: decimals, sixtieths, theta in units, theta fitted to labels."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.images.ranking import FIRST, SECOND, SIMILAR
from pipelines.workloads.lmol.sources import scores as units


@given(st.lists(st.integers(60, 300), min_size=12, max_size=60, unique=True), st.sampled_from([6, 10, 16]))
@settings(deadline=None)
def test_sixtieths_are_recognised_in_decimals(sixtieths, decimals):
    texts = [f"{value / 60:.{decimals}f}" for value in [*sixtieths, 61]]
    scores, unit = units.whole(texts)
    assert (scores * int(60 * unit)).tolist() == [*sixtieths, 61]
    assert units.in_units(0.2, unit) == 12 // int(60 * unit)


@given(st.lists(st.integers(-(10**6), 10**6), min_size=1, max_size=50), st.integers(0, 3))
@settings(deadline=None)
def test_a_few_decimals_are_taken_as_they_are(values, decimals):
    texts = [f"{'-' if value < 0 else ''}{abs(value) / 10**decimals:.{decimals}f}" for value in values]
    scores, unit = units.whole(texts)
    assert [score * unit for score in scores.tolist()] == [Fraction(text) for text in texts]


@pytest.mark.parametrize(
    ("theta", "unit", "whole"), [(0.2, 60, 12), (0.3, 10, 3), (0.29, 100, 29), (1.1, 10, 11), (0.0999, 10, 0)]
)
def test_theta_is_what_was_typed(theta, unit, whole):
    assert units.in_units(theta, Fraction(1, unit)) == whole


def test_scores_of_random_digits_keep_nine_of_them():
    texts = [repr(value) for value in np.random.default_rng(0).random(50).tolist()]
    scores, unit = units.whole(texts)
    assert unit == Fraction(1, 10**9)
    assert np.abs(scores * 1e-9 - [float(text) for text in texts]).max() <= 0.5e-9


@given(st.lists(st.integers(0, 30), min_size=3, max_size=15), st.integers(0, 30))
@settings(deadline=None)
def test_theta_is_fitted_to_any_labels_made_with_one(scores, theta):
    score = {str(row): value for row, value in enumerate(scores)}
    asked = [
        (0, a, b, SIMILAR if abs(score[a] - score[b]) <= theta else FIRST if score[a] > score[b] else SECOND)
        for a in score
        for b in score
        if a < b
    ]
    found = units.fit_theta(asked, score)
    for _, a, b, label in asked:
        assert (abs(score[a] - score[b]) <= found) == (label == SIMILAR)
