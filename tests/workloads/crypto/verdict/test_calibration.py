"""Calibration: reliability bins as in scikit-learn."""

import numpy as np
import pytest

from common.statistics import BINS
from pipelines.workloads.crypto.verdict.classification import class_shares, metrics
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
