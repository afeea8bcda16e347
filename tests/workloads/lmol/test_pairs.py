"""Parts that share no group; pairs drawn once, labelled exactly, balanced for training, natural for evaluation."""

from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from common.errors import UserError
from common.statistics import wilson
from models.images.ranking import FIRST, SECOND, SIMILAR
from pipelines.workloads.lmol import pairs

scores_of_few = st.lists(st.integers(-20, 20), min_size=2, max_size=40).map(np.array)


def labels_of_all(scores, theta):
    """Count (First or Second, Similar) over all unordered pairs, one by one."""
    similar = sum(abs(int(a) - int(b)) <= theta for a, b in combinations(scores, 2))
    return len(scores) * (len(scores) - 1) // 2 - similar, similar


def check(rows, scores, images, theta):
    """Check the properties of pairs of any part."""
    assert rows.dtype == np.int64
    assert rows.shape == (len(rows), 3)
    assert set(rows[:, :2].ravel()) <= set(images)
    assert (rows[:, 0] != rows[:, 1]).all()
    for first, second, label in rows:
        difference = int(scores[first]) - int(scores[second])
        expected = SIMILAR if abs(difference) <= theta else FIRST if difference > 0 else SECOND
        assert label == expected


def unique(rows):
    return len({frozenset(row) for row in rows[:, :2].tolist()}) == len(rows)


@given(scores_of_few, st.integers(0, 12), st.integers(1, 60), st.integers(1, 12), st.integers(0, 3))
@settings(deadline=None)
def test_training_pairs_are_balanced_unique_unless_similar_and_of_bounded_degree(scores, theta, each, degree, seed):
    images = np.arange(len(scores))[::-1][: max(2, len(scores) - 3)] + 5
    padded = np.concatenate([np.full(5, 99), scores])
    rows = pairs.training(padded, images, theta, each, degree, seed)
    check(rows, padded, images, theta)
    assert unique(rows[rows[:, 2] != SIMILAR])
    counts = np.bincount(rows[:, 2], minlength=3)
    assert counts.min() == counts.max() <= each
    assert np.bincount(rows[:, :2].ravel(), minlength=1).max() <= degree


@given(scores_of_few, st.integers(0, 12), st.integers(1, 500), st.integers(0, 3))
@settings(deadline=None)
def test_evaluation_pairs_are_unique_and_all_of_them_where_they_suffice(scores, theta, count, seed):
    images = np.arange(len(scores)) + 5
    padded = np.concatenate([np.full(5, 99), scores])
    rows = pairs.evaluation(padded, images, theta, count, seed)
    check(rows, padded, images, theta)
    assert unique(rows)
    different, similar = labels_of_all(scores, theta)
    assert len(rows) == min(count, different + similar)
    if len(rows) == different + similar:
        assert (rows[:, 2] == SIMILAR).sum() == similar


@given(scores_of_few, st.integers(0, 45))
@settings(deadline=None)
def test_natural_shares_are_those_of_all_pairs(scores, theta):
    different, similar = labels_of_all(scores, theta)
    total = different + similar
    assert pairs.natural_shares(scores, theta) == pytest.approx([different / 2 / total] * 2 + [similar / total])


@given(scores_of_few, st.sampled_from([0.05, 0.2, 0.5]))
@settings(deadline=None)
def test_the_widest_theta_is_the_last_that_keeps_the_share(scores, share):
    theta = pairs.widest_theta(scores, share)
    different, similar = labels_of_all(scores, theta)
    assert theta == 0 or similar <= share * (different + similar)
    if theta < np.ptp(scores):
        assert labels_of_all(scores, theta + 1)[1] > share * (different + similar)


def test_a_difference_of_exactly_theta_is_similar():
    """With scores in sixtieths and theta 0.2, floating point puts one difference in eight on the wrong side."""
    low = np.arange(60, 289)
    assert (pairs.label(low + 12, low, 12) == SIMILAR).all()
    assert (pairs.label(low, low + 12, 12) == SIMILAR).all()
    assert (pairs.label(low + 13, low, 12) == FIRST).all()
    assert (pairs.label(low, low + 13, 12) == SECOND).all()
    assert Fraction(12, 60) == Fraction("0.2")
    assert ((low + 12) / 60 - low / 60 > 0.2).any()


def test_training_reaches_what_is_asked_for_where_it_can():
    scores = np.random.default_rng(0).integers(0, 10, 600)
    rows = pairs.training(scores, np.arange(600), 0, 3000, 200, 0)
    assert np.bincount(rows[:, 2]).tolist() == [3000] * 3
    tight = pairs.training(scores, np.arange(600), 0, 3000, 20, 0)
    degrees = np.bincount(tight[:, :2].ravel())
    assert degrees.max() == 20
    assert len(tight) > 0.9 * 600 * 20 / 2  # nearly as many as the bound allows


def test_either_order_is_as_likely():
    scores = np.random.default_rng(1).integers(0, 10, 300)
    for rows in (
        pairs.training(scores, np.arange(300), 1, 2000, 200, 0),
        pairs.evaluation(scores, np.arange(300), 1, 6000, 0),
    ):
        # Image numbers are unrelated to scores, so the smaller comes first in half the pairs of each label.
        for label in (FIRST, SECOND, SIMILAR):
            of_label = rows[rows[:, 2] == label]
            share = (of_label[:, 0] < of_label[:, 1]).mean()
            assert abs(share - 0.5) < 4 * 0.5 / len(of_label) ** 0.5


def test_evaluation_shares_are_the_natural_ones_within_sampling_error():
    scores = np.random.default_rng(2).normal(300, 40, 500).astype(np.int64)
    images = np.arange(500)
    natural = pairs.natural_shares(scores, 12)
    for seed in range(3):
        rows = pairs.evaluation(scores, images, 12, 4000, seed)
        shares = np.bincount(rows[:, 2], minlength=3) / 4000
        for found, share in zip(shares, natural, strict=True):
            assert abs(found - share) < 4 * (share * (1 - share) / 4000) ** 0.5


def test_every_pair_is_as_likely_to_be_evaluated():
    scores = np.arange(12)
    times = np.zeros((12, 12), int)
    for seed in range(900):
        for first, second, _ in pairs.evaluation(scores, np.arange(12), 0, 22, seed):
            times[min(first, second), max(first, second)] += 1
    drawn = times[np.triu_indices(12, 1)]  # each with a chance of a third
    assert abs(drawn - 300).max() < 4.5 * (900 * (1 / 3) * (2 / 3)) ** 0.5


def test_pairs_depend_on_the_seed_and_on_nothing_else():
    scores = np.random.default_rng(3).integers(0, 50, 200)
    for draw in (
        lambda seed: pairs.training(scores, np.arange(200), 3, 300, 50, seed),
        lambda seed: pairs.evaluation(scores, np.arange(200), 3, 300, seed),
    ):
        assert (draw(0) == draw(0)).all()
        assert (draw(0) != draw(1)).any()


def test_thousands_of_images_need_no_list_of_their_millions_of_pairs():
    scores = np.random.default_rng(4).integers(0, 10_000, 30_000)
    rows = pairs.training(scores, np.arange(30_000), 100, 2000, 200, 0)
    assert np.bincount(rows[:, 2]).tolist() == [2000] * 3
    assert len(pairs.evaluation(scores, np.arange(30_000), 100, 3000, 0)) == 3000


@given(st.integers(5, 40), st.integers(3, 5), st.integers(0, 2), st.integers(0, 5))
@settings(deadline=None)
def test_no_group_is_in_two_parts_and_every_image_in_one(num_groups, folds, fold, seed):
    groups = [f"group {row * row % num_groups}" for row in range(3 * num_groups)] + [f"group {g}" for g in range(folds)]
    parts = pairs.split(groups, folds, fold, seed)
    assert sorted(np.concatenate(list(parts.values())).tolist()) == list(range(len(groups)))
    of_part = {part: {groups[row] for row in rows} for part, rows in parts.items()}
    for one, other in combinations(of_part.values(), 2):
        assert not one & other
    assert all(of_part.values())


def test_each_group_is_tested_once_over_the_folds_and_validated_once():
    groups = [f"g{row % 23}" for row in range(100)]
    folds = [pairs.split(groups, 5, fold, 0) for fold in range(5)]
    for part in ("test", "validation"):
        assert sorted(np.concatenate([each[part] for each in folds]).tolist()) == list(range(100))
    assert (folds[1]["test"] == folds[0]["validation"]).all()


def test_a_group_that_comes_moves_few_others_and_the_order_of_images_none():
    names = [f"image {row}" for row in range(200)]
    place = {}
    for shown, groups in (("all", names), ("turned", names[::-1]), ("more", [*names, "another"])):
        parts = pairs.split(groups, 5, 0, 0)
        place[shown] = {groups[row]: part for part, rows in parts.items() for row in rows}
    assert place["turned"] == place["all"]
    assert sum(place["more"][name] != place["all"][name] for name in names) <= 4
    again = pairs.split(names, 5, 0, 1)
    assert {names[row] for row in again["test"]} != {name for name, part in place["all"].items() if part == "test"}


def test_fewer_groups_than_folds_are_refused():
    with pytest.raises(UserError, match=r"8 usable images in 4 groups .* data.folds=5 .* or data.folds=4"):
        pairs.split(["a", "b", "c", "d"] * 2, 5, 0, 0)
    with pytest.raises(UserError, match=r"1 usable images in 1 groups.*give more images$"):
        pairs.split(["a"], 5, 0, 0)


@given(st.lists(st.integers(-1000, 1000), min_size=1, max_size=200).map(np.array), st.integers(1, 8))
@settings(deadline=None)
def test_references_cover_the_scale(scores, per_bin):
    rows = pairs.references(scores, per_bin)
    assert len(set(rows.tolist())) == len(rows) <= per_bin * pairs.BINS
    assert (np.diff(rows) > 0).all()
    low, width = scores.min(), (np.ptp(scores) + 1) / pairs.BINS
    bins = np.floor((scores - low) / width + 1e-9).astype(int)
    for each in range(pairs.BINS):
        assert np.isin(rows, np.flatnonzero(bins == each)).sum() == min(per_bin, (bins == each).sum())
    if per_bin > 1:
        assert {scores.min(), scores.max()} <= set(scores[rows])


def test_references_of_a_scale_beyond_a_tenth_of_int64_cover_it_too():
    scores = np.arange(100) * (np.iinfo(np.int64).max // 100)
    assert pairs.references(scores, 2).tolist() == pairs.references(np.arange(100), 2).tolist()


@pytest.mark.parametrize(
    ("images", "shares", "few"),
    [
        (8, (0.45, 0.45, 0.1), True),
        (20, (0.45, 0.45, 0.1), True),
        (40, (0.45, 0.45, 0.1), False),
        (40, (0.1, 0.1, 0.8), True),  # hardly any different scores: a guess is right in 80 %
        (400, (0.1, 0.1, 0.8), False),
    ],
)
def test_images_are_too_few_where_half_way_to_perfect_is_not_told_from_guessing(images, shares, few):
    labels = np.repeat([0, 1, 2], [round(share * 1000) for share in shares])
    said = pairs.too_few(images, labels, 5)
    assert said.startswith(f"too few images for a verdict: {images} are for testing") == few
    assert bool(said) == few
    if few:
        enough = int(said.removesuffix(" in all").rpartition(" ")[2])
        assert not pairs.too_few(enough // 5, labels, 5)
        assert pairs.too_few(enough // 5 - 2, labels, 5)


def test_how_many_images_would_do_is_found_at_once_where_answers_hardly_differ(monkeypatch):
    counts = []
    monkeypatch.setattr(pairs, "wilson", lambda right, count: counts.append(count) or wilson(right, count))
    said = pairs.too_few(400, np.append(np.zeros(4999, int), 1), 5)
    assert int(said.removesuffix(" in all").rpartition(" ")[2]) > 10_000
    assert len(counts) < 100


def test_test_pairs_of_one_answer_tell_nothing_and_few_pairs_count_however_many_images_there_are():
    assert "all 30 test pairs have the same answer" in pairs.too_few(40, np.full(30, 2), 5)
    assert pairs.too_few(400, np.array([0, 1, 2]), 5).startswith("too few images for a verdict")


def test_few_similar_images_leave_no_other_pair_out():
    scores = np.arange(0, 120, 2)
    scores[1:4] = 1, 3, 5  # of 60 images, pairs of five are similar
    rows = pairs.training(scores, np.arange(60), 1, 15_000, 200, 0)
    counts = np.bincount(rows[:, 2])
    assert counts.min() == counts.max() > 150  # before, as many as there are similar ones
    assert len({frozenset(row[:2]) for row in rows.tolist() if row[2] == SIMILAR}) == labels_of_all(scores, 1)[1]
