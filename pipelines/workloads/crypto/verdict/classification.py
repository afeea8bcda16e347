"""Metrics of a classifier of the next move.

Labels and columns of probabilities are 0 SHORT, 1 NO_TRADE, 2 LONG; the predicted class is the most probable one. A
metric that is undefined for the given rows is None, never NaN.
"""

import math
from typing import TypedDict

import numpy as np

from common.statistics import reliability, wilson
from models.market.inputs import CLASSES
from models.market.labels import LONG, NO_TRADE, SHORT

NUM_CLASSES = len(CLASSES)


class Metrics(TypedDict):
    """All metrics of a classifier."""

    n: int
    confusion: list[list[int]]
    accuracy: float
    majority_accuracy: float
    balanced_accuracy: float | None
    macro_f1: float
    mcc: float | None
    never_predicted: list[str]
    directional_hit_rate: float | None
    directional_hit_rate_interval: list[float] | None
    directional_n: int
    log_loss: float
    prior_log_loss: float
    direction_log_loss: float | None
    prior_direction_log_loss: float | None
    brier: float
    calibration_error: float
    reliability: list[dict[str, float]]


def class_shares(labels: np.ndarray) -> np.ndarray:
    """Return the shares (3,) of the classes, with one imaginary row added to each.

    Without that row the prior's log loss is unbounded if training lacks a class, and every model beats it.
    """
    counts = np.bincount(np.asarray(labels, dtype=np.int64), minlength=NUM_CLASSES) + 1.0
    return np.asarray(counts / counts.sum())


def prior_rows(prior: np.ndarray, num: int) -> np.ndarray:
    """Return a prior (3,) or (num, 3) as (num, 3) float64."""
    return np.broadcast_to(np.asarray(prior, dtype=np.float64), (num, NUM_CLASSES)).copy()


def metrics(probabilities: np.ndarray, labels: np.ndarray, prior: np.ndarray) -> Metrics:
    """Return all metrics of probabilities (N, 3) for labels (N,), and those of `prior`, the class shares in training.

    The prior is (3,), or (N, 3) if rows differ in their training data. Log losses are in nats, with probabilities kept
    2.2e-16 away from 0 and 1; that of the direction is about SHORT against LONG in the rows where the price moved. The
    Brier score is the sum over classes, 0 to 2 (Brier 1950); the calibration error is that of the predicted class (Guo
    et al. 2017). Balanced accuracy is the mean recall of the classes that occur, macro-F1 the mean over all three, MCC
    that of Gorodkin 2004, 0 for constant predictions. The directional hit rate covers the rows where the model traded
    and the price moved; its Wilson interval treats rows as independent, so it is too narrow if labels overlap.
    """
    probabilities, labels = checked(probabilities, labels)
    priors, moved = prior_rows(prior, len(labels)), labels != NO_TRADE
    pairs = np.bincount(labels * NUM_CLASSES + probabilities.argmax(axis=1), minlength=NUM_CLASSES**2)
    matrix = pairs.reshape(NUM_CLASSES, NUM_CLASSES)  # one row per label and one column per prediction
    total, actual, predicted, correct = matrix.sum(), matrix.sum(axis=1), matrix.sum(axis=0), matrix.diagonal()
    present = actual > 0
    hits, wrong = int(correct[[SHORT, LONG]].sum()), int(matrix[SHORT, LONG] + matrix[LONG, SHORT])
    spread = math.sqrt(float(total**2 - predicted @ predicted) * float(total**2 - actual @ actual))
    calibration_error, bins = reliability(probabilities.max(axis=1), probabilities.argmax(axis=1) == labels)
    return {
        "n": int(total),
        "confusion": matrix.tolist(),
        "accuracy": float(correct.sum() / total),
        "majority_accuracy": float(actual.max() / total),
        "balanced_accuracy": float((correct[present] / actual[present]).mean()) if present.sum() > 1 else None,
        "macro_f1": float((2 * correct / np.maximum(predicted + actual, 1)).mean()),
        "mcc": float((correct.sum() * total - actual @ predicted) / (spread or 1)) if present.sum() > 1 else None,
        "never_predicted": [name for name, count in zip(CLASSES, predicted, strict=True) if not count],
        "directional_hit_rate": hits / (hits + wrong) if hits + wrong else None,
        "directional_hit_rate_interval": wilson(hits, hits + wrong),
        "directional_n": hits + wrong,
        "log_loss": float(log_losses(probabilities, labels).mean()),
        "prior_log_loss": float(log_losses(priors, labels).mean()),
        "direction_log_loss": float(direction_log_losses(probabilities, labels)[moved].mean()) if moved.any() else None,
        "prior_direction_log_loss": float(direction_log_losses(priors, labels)[moved].mean()) if moved.any() else None,
        "brier": float(((probabilities - np.eye(NUM_CLASSES)[labels]) ** 2).sum(axis=1).mean()),
        "calibration_error": calibration_error,
        "reliability": bins,
    }


def checked(probabilities: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return rows in float64 that sum to exactly 1, which float32 rows do not, and labels in int64."""
    probabilities, labels = np.asarray(probabilities, dtype=np.float64), np.asarray(labels)
    sums = probabilities.sum(axis=1)
    assert len(labels), "no rows"
    assert np.isin(labels, range(NUM_CLASSES)).all(), "rows whose future is unknown"
    assert ((probabilities >= 0).all(axis=1) & (np.abs(sums - 1) < 1e-3)).all(), "not probabilities"
    return probabilities / sums[:, None], labels.astype(np.int64)


def log_losses(probabilities: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Return the log loss (N,) of each row, nats."""
    tiny = np.finfo(np.float64).eps
    return np.asarray(-np.log(np.clip(probabilities[np.arange(len(labels)), labels], tiny, 1 - tiny)))


def direction_log_losses(probabilities: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Return the log loss (N,) of SHORT against LONG of each row, nats; 0 where the label is NO_TRADE."""
    sides = np.clip(probabilities[:, [SHORT, LONG]], np.finfo(np.float64).eps, None)
    chosen = np.where(labels == LONG, sides[:, 1], sides[:, 0])
    return np.where(labels == NO_TRADE, 0.0, -np.log(chosen / sides.sum(axis=1)))
