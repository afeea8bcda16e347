"""Classification metrics: those of scikit-learn, and None where they are undefined."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.workloads.crypto.verdict.classification import class_shares, metrics
from tests.workloads.crypto.verdict.samples import SHIPPED, sample


def of_matrix(matrix):
    """The metrics of predictions with this confusion matrix."""
    labels, predicted = np.repeat(np.indices((3, 3)).reshape(2, -1), np.ravel(matrix), axis=1)
    return metrics(np.eye(3)[predicted], labels, np.full(3, 1 / 3))


@settings(max_examples=10, deadline=None)
@given(
    seed=st.integers(0, 10**6), num=st.integers(3, 200), strength=st.floats(0, 6), lacking=st.sampled_from([-1, 1, 2])
)
def test_every_metric_equals_that_of_scikit_learn(seed, num, strength, lacking):
    from sklearn import metrics as scikit

    probabilities, labels = sample(seed, num, strength)
    labels[labels == lacking] = 0
    labels[:2] = [0, 2 if lacking == 1 else 1]
    prior = class_shares(labels)
    found = metrics(probabilities, labels, prior)
    predicted = probabilities.argmax(axis=1)
    classes = [0, 1, 2]
    expected = {
        "confusion": scikit.confusion_matrix(labels, predicted, labels=classes).tolist(),
        "accuracy": scikit.accuracy_score(labels, predicted),
        "macro_f1": scikit.f1_score(labels, predicted, labels=classes, average="macro", zero_division=0),
        "mcc": scikit.matthews_corrcoef(labels, predicted),
        "log_loss": scikit.log_loss(labels, probabilities, labels=classes),
        "prior_log_loss": scikit.log_loss(labels, np.tile(prior, (num, 1)), labels=classes),
        "brier": scikit.brier_score_loss(labels, probabilities, labels=classes),
    }
    assert found["confusion"] == expected.pop("confusion")
    assert {name: found[name] for name in expected} == pytest.approx(expected, abs=1e-9)
    recalls = scikit.recall_score(labels, predicted, labels=sorted(set(labels.tolist())), average=None, zero_division=0)
    assert found["balanced_accuracy"] == pytest.approx(recalls.mean())


def test_probabilities_in_float32_are_accepted():
    probabilities, labels = sample(0, 500)
    prior = class_shares(labels)
    exact, rounded = (metrics(p, labels, prior) for p in (probabilities, probabilities.astype(np.float32)))
    assert rounded["log_loss"] == pytest.approx(exact["log_loss"], abs=1e-6)


@pytest.mark.parametrize(("label", "predicted"), [(1, 1), (1, 0), (2, 2)])
@pytest.mark.parametrize("num", [1, 40])
def test_labels_of_a_single_class_give_no_nan(num, label, predicted):
    found = metrics(np.tile(np.eye(3)[predicted], (num, 1)), np.full(num, label), np.full(3, 1 / 3))
    json.dumps(found, allow_nan=False)
    assert found["mcc"] is None
    assert found["balanced_accuracy"] is None
    assert len(found["never_predicted"]) == 2


def test_without_trades_the_hit_rate_is_none():
    found = of_matrix([[0, 10, 0], [0, 20, 0], [0, 5, 0]])
    assert found["directional_n"] == 0
    assert found["directional_hit_rate"] is None
    assert found["directional_hit_rate_interval"] is None
    assert found["mcc"] == 0
    assert found["never_predicted"] == ["SHORT", "LONG"]


def test_the_log_loss_is_the_sum_of_those_of_moving_and_of_the_direction():
    probabilities, labels = sample(0, 400)
    found = metrics(probabilities, labels, np.full(3, 1 / 3))
    still, moved = probabilities[:, 1], labels != 1
    moving = -np.log(np.where(moved, 1 - still, still)).mean()
    assert found["log_loss"] == pytest.approx(moving + moved.mean() * found["direction_log_loss"])
    assert found["prior_direction_log_loss"] == pytest.approx(np.log(2))


@pytest.mark.parametrize("coin", SHIPPED)
def test_published_confusion_matrices_give_their_known_metrics(coin):
    matrix, accuracy, majority, balanced, macro_f1, mcc, hit_rate = SHIPPED[coin]
    found = of_matrix(matrix)
    assert found["n"] == 5244
    assert found["accuracy"] == pytest.approx(accuracy, abs=6e-5)
    assert found["majority_accuracy"] == pytest.approx(majority, abs=6e-5)
    names = ("balanced_accuracy", "macro_f1", "mcc", "directional_hit_rate")
    assert [found[name] for name in names] == pytest.approx([balanced, macro_f1, mcc, hit_rate], abs=6e-4)


def test_five_of_six_published_models_lose_to_the_majority_class_and_two_never_predict_some_class():
    found = {coin: of_matrix(row[0]) for coin, row in SHIPPED.items()}
    assert [coin for coin, f in found.items() if f["accuracy"] > f["majority_accuracy"]] == ["ADA"]
    assert {coin: f["never_predicted"] for coin, f in found.items() if f["never_predicted"]} == {
        "SOL": ["NO_TRADE"],
        "XRP": ["SHORT"],
    }
    hits = [(f["directional_hit_rate"] * f["directional_n"], f["directional_n"]) for f in found.values()]
    assert [round(sum(column)) for column in zip(*hits, strict=True)] == [6227, 12336]
