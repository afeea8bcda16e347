"""Baselines: a signal in the last row is found, and nothing else is used."""

import numpy as np
import pytest

from pipelines.workloads.crypto.verdict.baselines import IMAGINED, SPANS, fit_and_predict, rolling_priors
from pipelines.workloads.crypto.verdict.classification import class_shares, metrics
from tests.workloads.crypto.verdict.samples import rows_with_a_signal


def test_baselines_find_a_signal_in_the_last_row():
    rows = rows_with_a_signal(0)
    labels = rows.pop("test_labels")
    prior = class_shares(rows["labels"])
    found = {name: metrics(p, labels, prior) for name, p in fit_and_predict(**rows).items()}
    assert list(found) == ["logistic regression, last row", "gradient boosting, last row"]
    for each in found.values():
        assert each["log_loss"] < each["prior_log_loss"] - 0.03


def test_baselines_depend_on_the_seed_and_predict_each_test_row_by_itself():
    rows = rows_with_a_signal(1, train=300)
    del rows["test_labels"]
    few = {**rows, "test": {"last row": rows["test"]["last row"][:5]}}
    all_rows, again, first_rows = (fit_and_predict(**given, seed=3) for given in (rows, rows, few))
    for name, probabilities in all_rows.items():
        assert np.array_equal(probabilities, again[name])
        assert np.allclose(probabilities[:5], first_rows[name], atol=1e-12)


@pytest.mark.parametrize("labels", [[0, 1], [2]])
def test_baselines_give_three_probabilities_where_training_lacks_a_class(labels):
    generator = np.random.default_rng(0)
    for num in (60, 1200):
        found = fit_and_predict(
            {"window": generator.normal(size=(num, 3))},
            generator.choice(labels, num),
            {"window": generator.normal(size=(20, 3))},
        )
        for probabilities in found.values():
            assert probabilities.shape == (20, 3)
            assert (probabilities > 0).all()
            assert probabilities.sum(axis=1) == pytest.approx(np.ones(20))


def test_a_rolling_prior_knows_no_label_before_its_horizon_has_passed():
    labels = np.array([0, 0, 2, 2, -1, 2, 1, 1])
    prior, rows = np.full(3, 1 / 3), np.arange(8)
    found = rolling_priors(labels, rows, prior, horizon=2, candles_per_day=4)
    for row, shares in zip(rows, found, strict=True):
        for days, each in zip(SPANS, shares, strict=True):
            known = [k for k in labels[max(row - 1 - round(4 * days), 0) : max(row - 1, 0)] if k >= 0]
            counts = np.bincount(known, minlength=3) + IMAGINED / 3
            np.testing.assert_allclose(each, counts / counts.sum())
    later = labels.copy()
    later[5:] = 0
    assert (rolling_priors(later, rows, prior, 2, 4)[:7] == found[:7]).all()
