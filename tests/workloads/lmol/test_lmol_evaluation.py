"""The figures of answers and scores by hand, the baselines, and a whole evaluation of a comparator that knows."""

import csv
import io
import itertools
import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.ndimage import gaussian_filter

from models.ranking import SWAPPED
from pipelines.workloads.lmol import data, evaluation
from pipelines.workloads.lmol.baselines import SHARPNESS, baselines
from pipelines.workloads.lmol.data import CLASSES
from tests.workloads.lmol.brightness import CONFIG, PARTS, Brightness, comparisons, labelled, score


@pytest.fixture(autouse=True, scope="module")
def few_resamples():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(evaluation, "RESAMPLES", 200)
        yield


def evaluated(model, found):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(data, "load", lambda folder: found)
        (result,) = evaluation.evaluate(CONFIG, model, Path("unread"), torch.device("cpu"), score)
    return result


@pytest.fixture(scope="module")
def known(few_resamples):
    """Data, a comparator that knows the scores, and its evaluation."""
    found, model = comparisons(), Brightness()
    return found, model, evaluated(model, found)


def one_hot(labels):
    return np.eye(3)[labels]


def test_figures_of_pairs_by_hand():
    labels = np.array([0, 0, 0, 0, 1, 1, 1, 2, 2, 2])
    probabilities = one_hot([0, 0, 0, 1, 1, 1, 1, 2, 2, 0]) * 0.79 + 0.07
    found = evaluation.pair_figures(probabilities, labels)
    assert found["accuracy"] == 0.8
    assert found["interval"] == pytest.approx([0.4902, 0.9433], abs=1e-4)  # Wilson, 8 of 10
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
    assert evaluation.pair_figures(sure, labels)["calibration_error"] == pytest.approx(0.4)
    found = evaluation.pair_figures(np.concatenate([sure, unsure]), np.concatenate([labels, labels]))
    assert found["calibration_error"] == pytest.approx((0.4 + 0.45) / 2)
    assert [each["n"] for each in found["reliability"]] == [10, 10]


def test_always_first_is_all_bias_and_no_consistency():
    first = one_hot([0, 0, 0, 0])
    assert evaluation.swap_consistency(first, first[:, SWAPPED]) == 0
    assert evaluation.position_bias(first, first[:, SWAPPED]) == (1.0, [1.0, 1.0])
    fair = one_hot([0, 1, 2, 1])
    assert evaluation.swap_consistency(fair, fair) == 1
    assert evaluation.position_bias(fair, fair)[0] == 0


@pytest.mark.parametrize(("tolerant", "count"), [(False, 13), (True, 19)])  # weak orders, semiorders of three
def test_answers_to_three_pairs_that_some_scores_give(tolerant, count):
    assert len(evaluation._possible_answers(tolerant)) == count


@pytest.mark.parametrize("theta", [0, 2])
def test_answers_by_scores_are_transitive_and_a_circle_is_not(theta):
    scores = np.random.default_rng(0).integers(0, 9, 50)

    def by_scores(first, second):
        difference = scores[first] - scores[second]
        return one_hot(np.where(np.abs(difference) <= theta, 2, np.where(difference > 0, 0, 1)))

    def in_a_circle(first, second):
        return one_hot(np.where((first - second) % 3 == 0, 2, np.where((first - second) % 3 == 1, 0, 1)))

    def violations(ask, images):
        return evaluation.transitivity(ask, images, theta, 0)["transitivity_violations"]

    assert violations(by_scores, np.arange(50)) == 0
    assert violations(in_a_circle, np.arange(3)) == 1
    assert evaluation.transitivity(by_scores, np.arange(2), theta, 0) == {}


def test_random_answers_violate_transitivity_as_often_as_said():
    generator = np.random.default_rng(0)
    answers = generator.integers(0, 3, (50, 50))
    answers = np.where(np.arange(50)[:, None] < np.arange(50), answers, np.array(SWAPPED)[answers.T])
    found = evaluation.transitivity(lambda a, b: one_hot(answers[a, b]), np.arange(50), 1, 0)
    assert found["transitivity_violations"] == pytest.approx(found["transitivity_violations_at_random"], abs=0.05)


@pytest.mark.parametrize("levels", [6, 60])
def test_margins_split_the_pairs_and_theta_is_an_edge(levels):
    found = comparisons(theta=2, levels=levels)
    labels = found.pairs["test"][:, 2]
    rows = evaluation.by_margin(found, one_hot(np.full(len(labels), 2)))  # Similar, always
    assert sum(row["n"] for row in rows) == len(labels)
    for row in rows:
        assert row["accuracy"] == (1.0 if row["to"] <= 1.0 else 0.0)  # theta in the scores' unit
        assert row["low"] <= row["accuracy"] <= row["high"]
    assert all(before["to"] < after["from"] for before, after in itertools.pairwise(rows))


def test_figures_of_scores_by_hand():
    known = np.arange(50.0)
    found = evaluation.score_figures(known + np.tile([1.0, -1.0], 25), known, 0)
    assert (found["mae"], found["rmse"]) == (1.0, 1.0)
    assert found["mae_interval"] == [1.0, 1.0]
    assert found["pearson"] == pytest.approx(np.corrcoef(known, known + np.tile([1.0, -1.0], 25))[0, 1])
    reverse = evaluation.score_figures(-known, known, 0)
    assert [reverse[name] for name in ("pearson", "spearman", "kendall")] == pytest.approx([-1, -1, -1])
    noisy = evaluation.score_figures(known + np.random.default_rng(0).normal(0, 20, 50), known, 0)
    for name in ("pearson", "spearman", "kendall", "mae", "rmse"):
        low, high = noisy[f"{name}_interval"]
        assert low < noisy[name] < high
    assert noisy["kendall"] < noisy["spearman"]


def test_scores_that_are_all_the_same_have_no_correlation():
    found = evaluation.score_figures(np.ones(20), np.arange(20.0), 0)
    assert found["pearson"] is found["spearman_interval"] is found["kendall"] is None
    assert found["mae"] == pytest.approx(8.6)


def test_a_comparator_that_knows_is_right_and_stands_beside_its_baselines(known):
    found, _, result = known
    summary = result.summary
    assert summary["accuracy"] == summary["swap_consistency"] == 1
    assert summary["position_bias"] == summary["transitivity_violations"] == 0
    assert summary["pearson"] > 0.99
    assert summary["rmse"] < 0.25
    assert summary["n"] == 300
    assert summary["images"] == PARTS["test"]
    assert summary["seconds"] > 0
    assert summary["comparison_ms"] > 0
    rows = {row["predictor"]: row for row in result.table}
    similar = (found.pairs["test"][:, 2] == 2).mean()
    assert rows["majority class"]["accuracy"] == (found.pairs["test"][:, 2] == 0).mean()
    assert rows["blank images"]["accuracy"] == pytest.approx(similar)
    assert rows["linear siamese"]["accuracy"] > 0.8
    assert rows["linear siamese, shuffled labels"]["accuracy"] < 0.55
    assert rows["regress (ridge), then compare"]["accuracy"] > 0.95
    assert rows["regress (ridge), then compare"]["Pearson"] > 0.99
    assert rows["classify (logistic regression), then compare"]["accuracy"] > 0.9
    assert rows[SHARPNESS]["NLL"] is None
    json.dumps(summary, allow_nan=False)


def test_each_image_is_encoded_once(known):
    found, model, _ = known
    needed = PARTS["test"] + PARTS["validation"] + len(found.references)
    assert sum(model.encoded) == needed + 2  # one blank image, one to count operations


def test_probabilities_of_every_pair_and_scores_of_every_image_are_kept(known):
    found, _, result = known
    columns = result.examples
    assert {len(column) for column in columns.values()} == {300}
    for order in ("", "_swapped"):
        rows = np.array([columns[f"p_{name}{order}"] for name in ("first", "second", "similar")])
        assert rows.sum(0) == pytest.approx(np.ones(300), abs=1e-5)
        assert np.array(CLASSES)[rows.argmax(0)].tolist() == columns["label"]
    numbers = [found.names.index(name) for name in columns["first_image"]]
    assert columns["first_score"] == (found.scores[numbers] * 0.5).tolist()
    rows = list(csv.DictReader(io.StringIO(result.files["test.scores.csv"])))
    assert len(rows) == PARTS["test"]
    wrong = np.mean([abs(float(row["score"]) - float(row["known"])) for row in rows])
    assert wrong == pytest.approx(result.summary["mae"], abs=1e-3)


def test_a_lean_to_the_first_image_shows_and_leaves_the_scores():
    summary = evaluated(Brightness(lean=4.0), comparisons()).summary
    low, high = summary["position_bias_interval"]
    assert 0.05 < low < summary["position_bias"] < high
    assert summary["swap_consistency"] < 0.95
    assert summary["pearson"] > 0.98


def test_intervals_hold_for_a_comparator_with_errors():
    summary = evaluated(Brightness(error=0.8), comparisons(levels=9)).summary
    assert summary["accuracy"] < 0.95
    assert 0.85 < summary["interval_coverage"] <= 1
    assert summary["standard_error"] == pytest.approx(summary["rmse"], rel=0.5)
    low, high = summary["accuracy_interval_over_images"]
    assert low < summary["accuracy"] < high
    assert high - low > summary["accuracy_interval"][1] - summary["accuracy_interval"][0]


def test_intervals_hold_where_training_images_are_known_too_well():
    found = comparisons(levels=9)
    unseen = np.concatenate([found.parts["validation"], found.parts["test"]])
    images = found.images.astype(int)
    images[unseen] += np.random.default_rng(1).integers(-12, 13, (len(unseen), 1, 1, 1))
    summary = evaluated(Brightness(), replace(found, images=images.clip(0, 255).astype(np.uint8))).summary
    assert summary["standard_error_factor"] > 2
    assert 0.85 < summary["interval_coverage"] <= 1


def test_baselines_learn_from_the_training_part_alone():
    found = comparisons()
    scores, pairs = found.scores.copy(), dict(found.pairs)
    for part in ("validation", "test"):
        scores[found.parts[part]] = 0
        pairs[part] = pairs[part] * [1, 1, 0]
    blind = replace(found, scores=scores, pairs=pairs)
    first, second, _ = found.pairs["test"].T
    for one, other in zip(baselines(found, 0), baselines(blind, 0), strict=True):
        assert one.name == other.name
        np.testing.assert_array_equal(one.answer(first, second), other.answer(first, second))


def test_many_scores_leave_no_classes_to_classify():
    names = [baseline.name for baseline in baselines(comparisons(levels=60), 0)]
    assert "classify (logistic regression), then compare" not in names
    assert len(names) == 5


def test_a_pristine_image_is_of_the_family_of_the_one_beside_it():
    found = comparisons(families=("blur", "noise", "pristine"))
    first, second, labels = found.pairs["test"].T
    rows = evaluation.by_family(found, {"truth": one_hot(labels)})
    count = Counter(frozenset((found.families[i], found.families[j])) for i, j in zip(first, second, strict=True))
    assert list(rows) == ["blur", "noise", "pristine", "across families"]
    assert rows["blur"]["n"] == count[frozenset(("blur",))] + count[frozenset(("blur", "pristine"))]
    assert rows["pristine"]["n"] == count[frozenset(("pristine",))]
    assert rows["across families"]["n"] == count[frozenset(("blur", "noise"))]


def test_the_sharpness_rule_ranks_blurred_images_and_is_fooled_by_noise():
    generator = np.random.default_rng(0)
    found = comparisons(theta=0, levels=5, families=("blur", "noise"))
    plain = 255 * (gaussian_filter(generator.normal(size=(len(found.scores), 16, 16)), (0, 1, 1)) * 1.5 + 0.5).clip(
        0, 1
    )
    images = np.array(
        [
            gaussian_filter(image, 0.4 * (4 - level))
            if family == "blur"
            else image + generator.normal(0, 20 * (4 - level), image.shape)
            for image, level, family in zip(plain, found.scores, found.families, strict=True)
        ]
    )
    # Trained on blur alone, as a rule for blur would be.
    blurred = found.parts["train"][np.array(found.families)[found.parts["train"]] == "blur"]
    pairs = {**found.pairs, "train": labelled(found.scores, blurred, 0, 300, generator)}
    found = replace(found, images=images.clip(0, 255).astype(np.uint8)[..., None], pairs=pairs)
    rule = next(baseline for baseline in baselines(found, 0) if baseline.name == SHARPNESS)
    first, second, labels = found.pairs["test"].T
    truth = one_hot(labels)
    families = evaluation.by_family(found, {"rule": rule.answer(first, second), "truth": truth})
    assert families["blur"]["rule"] > 0.7
    assert families["noise"]["rule"] < 0.45
    assert {family["truth"] for family in families.values()} == {1.0}
    assert sum(family["n"] for family in families.values()) == len(labels)
    assert evaluation.by_family(comparisons(), {"truth": truth}) == {}
