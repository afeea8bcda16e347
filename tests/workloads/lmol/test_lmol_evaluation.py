"""Whole evaluations of comparators that know the scores, lean to one side, or make errors."""

import csv
import io
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from common import statistics
from pipelines.workloads.lmol import data, evaluation
from pipelines.workloads.lmol.data import CLASSES
from pipelines.workloads.lmol.judging.baselines import SHARPNESS
from tests.workloads.lmol.brightness import CONFIG, PARTS, Brightness, comparisons, map_items


@pytest.fixture(autouse=True, scope="module")
def few_resamples():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(statistics, "RESAMPLES", 200)
        yield


def evaluated(model, found):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(data, "load", lambda *_: found)
        return evaluation.evaluate(
            CONFIG, "default", model.fitted_to(found), Path("unread"), torch.device("cpu"), map_items
        )


@pytest.fixture(scope="module")
def known(few_resamples):
    """Data, a comparator that knows the scores, and its evaluation."""
    found, model = comparisons(), Brightness()
    return found, model, evaluated(model, found)


@pytest.fixture(scope="module")
def erring(few_resamples):
    """The evaluation of a comparator with errors."""
    return evaluated(Brightness(error=0.8), comparisons(levels=9))


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
    assert rows["ridge"]["accuracy"] > 0.95
    assert rows["ridge"]["Pearson"] > 0.99
    assert rows[SHARPNESS]["NLL"] is None
    json.dumps(summary, allow_nan=False)


def test_each_image_is_encoded_once(known):
    found, model, _ = known
    assert sum(model.encoded) == PARTS["test"] + len(found.references) + 1  # a blank image


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


def test_intervals_hold_for_a_comparator_with_errors(erring):
    summary = erring.summary
    assert summary["accuracy"] < 0.95
    assert 0.85 < summary["coverage"] <= 1
    assert summary["standard_error"] == pytest.approx(summary["rmse"], rel=0.5)
    low, high = summary["accuracy_interval"]
    assert low < summary["accuracy"] < high
    as_if_independent = statistics.wilson(round(summary["accuracy"] * summary["n"]), summary["n"])
    assert high - low > as_if_independent[1] - as_if_independent[0]


def test_an_output_has_one_interval_for_one_accuracy_and_one_for_each_lead(erring):
    result = erring
    own, *others = result.table
    assert own["95 %"] == result.summary["accuracy_interval"]
    assert [name for name in result.summary if name.startswith("accuracy")] == ["accuracy", "accuracy_interval"]
    for row in others:
        low, high = row["lead in accuracy 95 %"]
        assert row["lead in accuracy"] == pytest.approx(own["accuracy"] - row["accuracy"])
        assert low <= row["lead in accuracy"] <= high


def test_an_evaluation_says_first_that_its_images_are_too_few(erring):
    assert erring.summary["few"] == ""
    found = comparisons(levels=9)
    few = found.parts["test"][:8]
    inside = np.isin(found.pairs["test"][:, :2], few).all(1)
    found = replace(
        found, parts={**found.parts, "test": few}, pairs={**found.pairs, "test": found.pairs["test"][inside]}
    )
    summary = evaluated(Brightness(error=0.8), found).summary
    assert next(iter(summary)) == "few"
    assert summary["few"].startswith("too few images for a verdict: 8 are for testing")


def test_intervals_hold_where_training_images_are_known_too_well():
    found = comparisons(levels=9)
    unseen = np.concatenate([found.parts["validation"], found.parts["test"]])
    images = found.images.astype(int)
    images[unseen] += np.random.default_rng(1).integers(-12, 13, (len(unseen), 1, 1, 1))
    summary = evaluated(Brightness(), replace(found, images=images.clip(0, 255).astype(np.uint8))).summary
    assert 0.85 < summary["coverage"] <= 1
