"""Verdicts: no skill for noise, skill for a signal, a suspected leak for a leak."""

import json

import numpy as np
import pytest

from pipelines.workloads.crypto.baselines import fit_and_predict
from pipelines.workloads.crypto.calibration import softmax
from pipelines.workloads.crypto.classification import class_shares
from pipelines.workloads.crypto.judge import LEAK, NO_SKILL, SKILL, verdict
from tests.workloads.crypto.samples import SHIPPED, guesses, rows_with_a_signal, sample


def test_a_perfect_predictor_is_suspected_of_a_leak():
    _, labels = sample(0, 500)
    found = verdict(np.eye(3)[labels], labels, class_shares(labels), guesses(0, labels), horizon=3)
    assert found["verdict"] == LEAK
    assert len(found["reasons"]) == 3
    assert "balanced accuracy of the model is 1.000" in found["reasons"][0]


@pytest.mark.parametrize(("share", "expected"), [(0.2, False), (0.9, True)])
def test_being_right_about_a_few_sure_moves_is_no_leak_but_about_most_moves_it_is(share, expected):
    generator = np.random.default_rng(0)
    labels = generator.integers(0, 3, 1500)
    right = np.where(generator.random(1500) < 0.92, labels, 2 - labels)
    said = np.where((labels != 1) & (generator.random(1500) < share), right, 1)
    probabilities = 0.2 * np.eye(3)[said] + 0.8 / 3  # so unsure that only the sign reveals the leak
    found = verdict(probabilities, labels, np.full(3, 1 / 3), guesses(0, labels), horizon=3)
    assert any("has the sign right" in reason for reason in found["reasons"]) == expected


def test_the_future_among_the_features_is_found_by_a_baseline():
    rows = rows_with_a_signal(0)
    labels = rows.pop("test_labels")
    rows["train_features"][:, 2] = rows["train_labels"]
    rows["test_features"][:, 2] = labels
    prior = class_shares(rows["train_labels"])
    blind = np.tile(prior, (len(labels), 1))
    found = verdict(blind, labels, prior, fit_and_predict(**rows), horizon=3)
    assert found["verdict"] == LEAK
    assert any("gradient boosting" in reason for reason in found["reasons"])


def test_shuffled_labels_show_no_skill_at_more_than_the_nominal_rate():
    verdicts = []
    for seed in range(40):
        probabilities, labels = sample(seed, 1000, 0.1)
        labels = np.random.default_rng(1000 + seed).permutation(labels)
        prior = class_shares(labels)
        found = verdict(probabilities, labels, prior, guesses(seed, labels), horizon=3, resamples=200, seed=seed)
        verdicts.append(found["verdict"])
    assert set(verdicts) <= {SKILL, NO_SKILL}
    assert verdicts.count(SKILL) <= 2


def test_a_model_that_learned_shuffled_labels_shows_no_skill():
    rows = rows_with_a_signal(4)
    labels = rows.pop("test_labels")
    rows["train_labels"] = np.random.default_rng(0).permutation(rows["train_labels"])
    learned = fit_and_predict(**rows)
    prior = class_shares(rows["train_labels"])
    for name in ("logistic regression", "gradient boosting"):
        assert verdict(learned[name], labels, prior, learned, horizon=3)["verdict"] == NO_SKILL


def test_a_planted_signal_is_skill():
    rows = rows_with_a_signal(2, test=3000)
    labels = rows.pop("test_labels")
    # The feature that the model uses is hidden from the last row, so the baselines find nothing.
    seen = rows["test_features"][:, 0].copy()
    for part in ("train", "test"):
        rows[f"{part}_features"][:, 0] = 0
        rows[f"{part}_last_returns"] = rows[f"{part}_features"][:, 1]
    scores = np.stack([-seen / 2, np.full(3000, -0.2), seen / 2], axis=1)
    found = verdict(softmax(scores), labels, class_shares(rows["train_labels"]), fit_and_predict(**rows), horizon=3)
    assert found["verdict"] == SKILL
    figures = ["log_loss", "log_loss", "macro_f1", "macro_f1", "direction_log_loss"]
    assert [row["figure"] for row in found["comparisons"]] == figures
    assert all(row["low"] > 0 for row in found["comparisons"])
    json.dumps(found, allow_nan=False)


def test_knowing_when_prices_move_but_not_in_which_direction_is_no_skill():
    generator = np.random.default_rng(0)
    wild = generator.random(3000)
    labels = np.where(generator.random(3000) < wild, 2 * generator.integers(0, 2, 3000), 1)
    lean = 0.02 * generator.normal(size=3000)  # the model must lean to one side
    probabilities = np.stack([wild * (0.5 - lean), 1 - wild, wild * (0.5 + lean)], axis=1)
    prior = class_shares(labels)
    found = verdict(probabilities, labels, prior, guesses(0, labels), horizon=3)
    *others, direction = found["comparisons"]
    assert all(row["low"] > 0 for row in others)
    assert (direction["figure"], direction["low"] < 0) == ("direction_log_loss", True)
    assert found["verdict"] == NO_SKILL
    assert len(found["reasons"]) == 1


def test_a_signal_that_a_baseline_has_too_is_no_skill():
    rows = rows_with_a_signal(3)
    labels = rows.pop("test_labels")
    others = fit_and_predict(**rows)
    found = verdict(others["logistic regression"], labels, class_shares(rows["train_labels"]), others, horizon=3)
    assert found["verdict"] == NO_SKILL
    assert any("against logistic regression: not better (+0.0000)" in reason for reason in found["reasons"])


def test_the_published_model_of_sol_shows_no_skill_however_well_calibrated():
    matrix = np.array(SHIPPED["SOL"][0])
    labels = np.repeat([0, 1, 2], matrix.sum(axis=1))
    predicted = np.concatenate([np.repeat([0, 1, 2], row) for row in matrix])
    order = np.random.default_rng(0).permutation(len(labels))
    labels, predicted = labels[order], predicted[order]
    # Only the predictions were published; the log loss is lowest with about half the weight on them.
    prior = class_shares(labels)
    for weight in (0.5, 0.9):
        probabilities = weight * np.eye(3)[predicted] + (1 - weight) * prior
        found = verdict(probabilities, labels, prior, guesses(1, labels), horizon=3)
        assert found["verdict"] == NO_SKILL


def test_gains_whose_intervals_contain_zero_are_no_skill():
    probabilities, labels = sample(6, 200, 0.2)
    found = verdict(probabilities, labels, class_shares(labels), guesses(6, labels), horizon=3)
    assert all(row["gain"] > 0 for row in found["comparisons"])
    assert found["verdict"] == NO_SKILL
    assert "but 0 is within its interval" in found["reasons"][0]


def test_too_few_rows_show_no_skill():
    probabilities, labels = sample(0, 20, 3)
    found = verdict(probabilities, labels, np.full(3, 1 / 3), guesses(0, labels), horizon=3)
    assert found["verdict"] == NO_SKILL
    assert "too few rows for an interval" in found["reasons"][0]


def test_a_verdict_without_baselines_is_refused():
    probabilities, labels = sample(0, 100)
    with pytest.raises(ValueError, match="needs a baseline beside the prior"):
        verdict(probabilities, labels, np.full(3, 1 / 3), {"majority": probabilities}, horizon=3)
