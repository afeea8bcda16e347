"""Calibration: reliability bins as in scikit-learn, and the temperature that undoes a distortion."""

import numpy as np
import pytest

from common.statistics import BINS
from pipelines.workloads.crypto.verdict.classification import (
    TEMPERATURES,
    class_shares,
    fit_temperature,
    metrics,
    softmax,
)
from tests.workloads.crypto.verdict.samples import sample


def test_reliability_bins_equal_those_of_scikit_learn():
    from sklearn.calibration import calibration_curve

    probabilities, labels = sample(1, 2000, 2)
    found = metrics(probabilities, labels, class_shares(labels))
    right = probabilities.argmax(axis=1) == labels
    accuracy, confidence = calibration_curve(right, probabilities.max(axis=1), n_bins=BINS)
    filled = found["reliability"]
    assert [row["accuracy"] for row in filled] == pytest.approx(accuracy.tolist())
    assert [row["confidence"] for row in filled] == pytest.approx(confidence.tolist())
    weights = np.array([row["n"] for row in filled]) / 2000
    assert found["calibration_error"] == pytest.approx((weights * np.abs(accuracy - confidence)).sum())


@pytest.mark.parametrize("temperature", [0.5, 1.0, 3.0])
def test_the_temperature_by_which_logits_were_multiplied_is_found(temperature):
    probabilities, labels = sample(0, 20_000, 1.5)
    logits = np.log(probabilities) * temperature
    found = fit_temperature(logits, labels)
    assert found == pytest.approx(temperature, rel=0.05)
    prior = class_shares(labels)
    before, after = (metrics(softmax(logits, t), labels, prior) for t in (1.0, found))
    assert after["log_loss"] <= before["log_loss"] + 1e-9
    assert after["calibration_error"] < 0.02


def test_the_temperature_stays_bounded_where_labels_are_separable_or_logits_worthless():
    labels = np.random.default_rng(0).integers(0, 3, 300)
    low, high = TEMPERATURES
    assert fit_temperature(np.eye(3)[labels], labels) == pytest.approx(low, rel=0.01)
    assert fit_temperature(-np.eye(3)[labels], labels) == pytest.approx(high, rel=0.01)
