"""Ratings of single images: intervals that hold, and raters who are told apart."""

import numpy as np
import pytest

from pipelines.workloads.lmol.sources import scores as ratings
from tests.workloads.lmol.sources.files import data, folder, read, refusal, table

DIFFERENT = {"a.png": "1 and 2", "b.png": "3 and 5"}


@pytest.mark.parametrize("counts", [(1, 2, 4), (2,), (4,)])
def test_intervals_of_one_two_and_four_ratings_hold_for_95_percent(counts):
    generator = np.random.default_rng(0)
    true = generator.normal(size=6000)
    several = np.resize(counts, len(true))
    image = np.repeat(np.arange(len(true)), several)
    rating = true[image] + generator.normal(0, 0.6, len(image))
    scores, errors, *_ = ratings.averaged(image, np.zeros(len(image), np.int64), rating)
    within = np.abs(scores - true) <= 1.96 * errors
    for count in counts:
        assert 0.93 <= within[several == count].mean() <= 0.97


def test_an_image_on_which_raters_disagree_more_is_less_certain():
    generator = np.random.default_rng(1)
    noise = np.where(np.arange(400) % 2, 0.2, 1.0)
    image = np.repeat(np.arange(400), 8)
    true = generator.normal(size=400)
    rating = (true + noise * generator.normal(size=(8, 400))).T.ravel()
    scores, errors, *_ = ratings.averaged(image, np.zeros(len(image), np.int64), rating)
    assert np.median(errors[::2]) > 1.5 * np.median(errors[1::2])
    assert 0.93 <= (np.abs(scores - true) <= 1.96 * errors).mean() <= 0.98


def test_a_rater_who_guesses_counts_less_and_one_who_is_strict_is_corrected():
    generator = np.random.default_rng(2)
    true = generator.normal(size=100)
    image, rater = np.repeat(np.arange(100), 5), np.tile(np.arange(5), 100)
    level, noise = np.array([0, 0, 0, -1.5, 0]), np.array([0.3, 0.3, 0.3, 0.3, 3.0])
    seen = generator.random(500) < 0.6  # not all rate all
    image, rater = image[seen], rater[seen]
    rating = true[image] + level[rater] + noise[rater] * generator.normal(size=len(image))
    used, place = np.unique(image, return_inverse=True)
    scores, _, levels, noises = ratings.averaged(place, rater, rating)
    plain = np.bincount(place, rating) / np.bincount(place)
    assert np.corrcoef(scores, true[used])[0, 1] > np.corrcoef(plain, true[used])[0, 1] + 0.1
    assert noises.argmax() == 4
    assert levels.argmin() == 3


@pytest.mark.parametrize("most", [2, 3])
def test_raters_levels_are_found_where_each_image_has_a_few_of_their_ratings(most):
    generator = np.random.default_rng(4)
    true, level = generator.normal(size=600), np.array([-1.0, -0.4, 0, 0.2, 0.4, 0.8])
    several = generator.integers(1, most + 1, len(true))
    image = np.repeat(np.arange(len(true)), several)
    rater = np.concatenate([generator.choice(6, count, replace=False) for count in several])
    rating = true[image] + level[rater] + generator.normal(0, 0.3, len(image))
    scores, errors, levels, _ = ratings.averaged(image, rater, rating)
    assert levels == pytest.approx(level - level[rater].mean(), abs=0.1)
    off = scores - true - (scores - true).mean()
    assert 0.92 <= (np.abs(off) <= 1.96 * errors).mean() <= 0.98


def test_scores_without_any_repetition_get_a_prior_that_is_said(tmp_path):
    folder(tmp_path, {f"{name}.png": str(i) for i, name in enumerate("abcd")})
    found = read(data(tmp_path))
    assert found.errors == pytest.approx([0.25 * np.std([0, 1, 2, 3])] * 4)
    assert any("no image has two ratings" in note for note in found.facts["columns"])
    rows = [(f"{name}.png", i, "x") for i, name in enumerate("abcd")]
    table(tmp_path / "scores.csv", ("image", "score", "rater"), *rows)
    assert read(data(tmp_path)).errors == pytest.approx([0.7 * np.std([0, 1, 2, 3])] * 4)
    rows = [(f"{name}.png", i, 0, 1) for i, name in enumerate("abcd")]
    table(tmp_path / "scores.csv", ("image", "score", "std", "count"), *rows)
    assert read(data(tmp_path)).errors.tolist() == [0] * 4


def test_rows_of_an_image_are_ratings_without_a_rater_too_if_most_images_differ(tmp_path):
    folder(tmp_path, {f"{name}.png": "1" for name in "abcd"})
    rows = [("a.png", 1), ("a.png", 2), ("b.png", 3), ("b.png", 5), ("c.png", 6), ("c.png", 7), ("d.png", 8)]
    table(tmp_path / "scores.csv", ("image", "score"), *rows)
    found = read(data(tmp_path))
    assert [float(score * found.unit) for score in found.scores] == [1.5, 4, 6.5, 8]
    assert "7 ratings of 4 images were averaged" in found.facts["columns"]
    table(tmp_path / "scores.csv", ("image", "score"), *rows[:4], *rows[5:])
    found = read(data(tmp_path))  # of two in four, nobody knows which score is right
    assert found.facts["quarantined"] == {name: "it has the scores " + said for name, said in DIFFERENT.items()}


def test_ratings_that_mostly_agree_are_ratings_too(tmp_path):
    folder(tmp_path, {f"{name}.png": "1" for name in "abcd"})
    rows = [("a.png", 1), ("a.png", 2), *((f"{name}.png", 3) for name in "bcd" for _ in range(2))]
    table(tmp_path / "scores.csv", ("image", "score"), *rows)
    found = read(data(tmp_path))
    assert [float(score * found.unit) for score in found.scores] == [1.5, 3, 3, 3]
    assert not found.facts["quarantined"]
    table(tmp_path / "scores.csv", ("image", "score", "count"), *((*row, 5) for row in rows))
    said = "count and std are ignored, as every row counts as one rating"
    assert said in read(data(tmp_path)).facts["columns"]


@pytest.mark.parametrize(("spread", "said"), [("-1,5", "std is -1 and count 5"), ("1,0", "std is 1 and count 0")])
def test_deviations_and_numbers_of_ratings_that_cannot_be_are_refused(tmp_path, spread, said):
    folder(tmp_path, {"a.png": "1", "b.png": "2"})
    (tmp_path / "scores.csv").write_text(f"image,score,std,count\na.png,1,1,1\nb.png,2,{spread}\n")
    assert f"scores.csv, line 3: {said}; give 0 and 1 or more" in refusal(tmp_path)
