"""Figures of answers about pairs, by hand."""

import itertools
from collections import Counter

import numpy as np
import pytest

from common import statistics
from models.images.ranking import SWAPPED
from pipelines.workloads.lmol.judging.figures import (
    accuracies_over_images,
    by_family,
    by_margin,
    pair_figures,
    position_bias,
    possible_answers,
    swap_consistency,
    transitivity,
)
from tests.workloads.lmol.brightness import comparisons, one_hot


def test_figures_of_pairs_by_hand():
    labels = np.array([0, 0, 0, 0, 1, 1, 1, 2, 2, 2])
    probabilities = one_hot([0, 0, 0, 1, 1, 1, 1, 2, 2, 0]) * 0.79 + 0.07
    found = pair_figures(probabilities, labels)
    assert found["accuracy"] == 0.8
    assert found["confusion"] == [[3, 1, 0], [0, 3, 0], [1, 0, 2]]
    assert found["classes"]["First"] == {"accuracy": 0.75, "precision": 0.75, "n": 4}
    assert found["classes"]["Similar"] == {"accuracy": pytest.approx(2 / 3), "precision": 1.0, "n": 3}
    assert found["macro_f1"] == pytest.approx((0.75 + 6 / 7 + 0.8) / 3)
    assert found["nll"] == pytest.approx(-(8 * np.log(0.86) + 2 * np.log(0.07)) / 10)
    assert found["calibration_error"] == pytest.approx(0.06)  # says 0.86, is right 8 times in 10
    (only,) = found["reliability"]
    assert (only["confidence"], only["accuracy"], only["n"]) == (pytest.approx(0.86), 0.8, 10)


def test_too_much_confidence_is_a_calibration_error():
    labels = np.zeros(10, dtype=int)
    sure = one_hot([0] * 6 + [1] * 4)
    unsure = np.tile([0.55, 0.45, 0.0], (10, 1))
    assert pair_figures(sure, labels)["calibration_error"] == pytest.approx(0.4)
    found = pair_figures(np.concatenate([sure, unsure]), np.concatenate([labels, labels]))
    assert found["calibration_error"] == pytest.approx((0.4 + 0.45) / 2)
    assert [each["n"] for each in found["reliability"]] == [10, 10]


def test_accuracies_over_images_are_those_of_the_pairs_among_drawn_images():
    generator = np.random.default_rng(0)
    pairs = np.array([[7, 2, 0], [2, 4, 1], [9, 7, 2], [4, 9, 0]])
    right = generator.random((2, 4)) < 0.5
    found = accuracies_over_images(right, pairs, [*map(str, range(10))], 3)
    expected, images = [], [2, 4, 7, 9]
    for drawn in statistics.resampled_groups(range(4), statistics.RESAMPLES, 3):
        among = [
            k for i in drawn for j in drawn for k, pair in enumerate(pairs) if [images[i], images[j]] == [*pair[:2]]
        ]
        if among:  # as often as both images were drawn
            expected.append(right[:, among].mean(1))
    assert found == pytest.approx(np.array(expected))
    assert len(found) > 100


def test_accuracies_of_images_in_groups_hold_in_new_groups():
    generator = np.random.default_rng(1)
    groups = np.arange(400) // 20
    pairs, holds = generator.integers(0, 400, (600, 2)), []
    pairs = pairs[groups[pairs[:, 0]] != groups[pairs[:, 1]]]
    for _ in range(20):
        hard = generator.normal(size=20)[groups[pairs]].sum(1)  # what images of a group share
        right = (hard + generator.normal(size=len(pairs)) > 0)[None]
        low, high = statistics.percentiles(accuracies_over_images(right, pairs, groups.astype(str), 0)[:, 0])
        holds.append(low <= 0.5 <= high)
    assert np.mean(holds) >= 0.85


def test_always_first_is_all_bias_and_no_consistency():
    first = one_hot([0, 0, 0, 0])
    assert swap_consistency(first, first[:, SWAPPED]) == 0
    assert position_bias(first, first[:, SWAPPED]) == (1.0, [1.0, 1.0])
    fair = one_hot([0, 1, 2, 1])
    assert swap_consistency(fair, fair) == 1
    assert position_bias(fair, fair)[0] == 0
    lean, interval = position_bias(one_hot([0, 2, 1, 1]), one_hot([2, 2, 1, 2]))  # the half of First or Second in one
    assert lean == 0
    assert interval == pytest.approx([-1.96 * np.sqrt(1 / 8) / 2, 1.96 * np.sqrt(1 / 8) / 2], rel=1e-4)


@pytest.mark.parametrize(("tolerant", "count"), [(False, 13), (True, 19)])  # weak orders, semiorders of three
def test_answers_to_three_pairs_that_some_scores_give(tolerant, count):
    assert len(possible_answers(tolerant)) == count


@pytest.mark.parametrize("theta", [0, 2])
def test_answers_by_scores_are_transitive_and_a_circle_is_not(theta):
    scores = np.random.default_rng(0).integers(0, 9, 50)

    def by_scores(first, second):
        difference = scores[first] - scores[second]
        return one_hot(np.where(np.abs(difference) <= theta, 2, np.where(difference > 0, 0, 1)))

    def in_a_circle(first, second):
        return one_hot(np.where((first - second) % 3 == 0, 2, np.where((first - second) % 3 == 1, 0, 1)))

    def violations(ask, images):
        return transitivity(ask, images, theta, 0)["transitivity_violations"]

    assert violations(by_scores, np.arange(50)) == 0
    assert violations(in_a_circle, np.arange(3)) == 1
    assert transitivity(by_scores, np.arange(2), theta, 0) == {}


def test_random_answers_violate_transitivity_as_often_as_said():
    generator = np.random.default_rng(0)
    answers = generator.integers(0, 3, (50, 50))
    answers = np.where(np.arange(50)[:, None] < np.arange(50), answers, np.array(SWAPPED)[answers.T])
    found = transitivity(lambda a, b: one_hot(answers[a, b]), np.arange(50), 1, 0)
    assert found["transitivity_violations"] == pytest.approx(found["transitivity_violations_at_random"], abs=0.05)


@pytest.mark.parametrize("levels", [6, 60])
def test_margins_split_the_pairs_and_theta_is_an_edge(levels):
    found = comparisons(theta=2, levels=levels)
    labels = found.pairs["test"][:, 2]
    rows = by_margin(found, one_hot(np.full(len(labels), 2)))  # Similar, always
    assert len(rows) <= 12
    assert sum(row["n"] for row in rows) == len(labels)
    for row in rows:
        assert row["from"] <= row["to"]
        assert row["accuracy"] == (1.0 if row["to"] <= 1.0 else 0.0)  # theta in the scores' unit
        assert row["low"] <= row["accuracy"] <= row["high"]
    assert all(before["to"] < after["from"] for before, after in itertools.pairwise(rows))


def test_a_pristine_image_is_of_the_family_of_the_one_beside_it():
    found = comparisons(families=("blur", "noise", "pristine"))
    first, second, labels = found.pairs["test"].T
    rows = by_family(found, {"truth": one_hot(labels)})
    count = Counter(frozenset((found.families[i], found.families[j])) for i, j in zip(first, second, strict=True))
    assert list(rows) == ["blur", "noise", "pristine", "across families"]
    assert rows["blur"]["n"] == count[frozenset(("blur",))] + count[frozenset(("blur", "pristine"))]
    assert rows["pristine"]["n"] == count[frozenset(("pristine",))]
    assert rows["across families"]["n"] == count[frozenset(("blur", "noise"))]
