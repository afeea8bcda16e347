"""Calibration of probabilities: reliability bins, their error, and temperature scaling (Guo et al. 2017)."""

import math
from typing import Any

import numpy as np

from pipelines.workloads.crypto.labels import CLASSES

BINS = 10  # of confidence, equally wide
TEMPERATURES = (0.05, 20.0)  # bounds of the fit, reached if the labels are separable or the logits worthless


def reliability(probabilities: np.ndarray, labels: np.ndarray) -> tuple[float, list[dict[str, Any]]]:
    """Return the mean distance of confidence and accuracy, weighted by the rows of each bin, and the bins.

    Probabilities (N, 3), labels (N,); confidence is the probability of the predicted class.
    """
    confidence, correct = probabilities.max(axis=1), probabilities.argmax(axis=1) == labels
    edges = np.linspace(0, 1, BINS + 1)
    bin_numbers = np.searchsorted(edges[1:-1], confidence)
    counts = np.bincount(bin_numbers, minlength=BINS)
    confidences, hits = (np.bincount(bin_numbers, weights=values, minlength=BINS) for values in (confidence, correct))
    bins = [
        {
            "from": float(edges[i]),
            "to": float(edges[i + 1]),
            "n": int(counts[i]),
            "confidence": float(confidences[i] / counts[i]) if counts[i] else None,
            "accuracy": float(hits[i] / counts[i]) if counts[i] else None,
        }
        for i in range(BINS)
    ]
    return float(np.abs(confidences - hits).sum() / len(labels)), bins


def fit_temperature(logits: np.ndarray, labels: np.ndarray) -> float:
    """Return the temperature T in TEMPERATURES for which softmax(logits / T) has the lowest log loss.

    Logits (N, 3) and labels (N,) are those of validation rows: a temperature fitted on test rows flatters the model.
    Raises ValueError for logits that are not finite, for other shapes and for no rows.
    """
    from scipy.optimize import minimize_scalar

    logits, labels = np.asarray(logits, dtype=np.float64), np.asarray(labels, dtype=np.int64)
    if len(labels) == 0 or logits.shape != (len(labels), len(CLASSES)) or not np.isfinite(logits).all():
        raise ValueError(f"finite logits (N, 3) and N labels are needed, got {logits.shape} and {labels.shape}")
    rows = np.arange(len(labels))

    def log_loss(log_temperature: float) -> float:
        scaled = logits / math.exp(log_temperature)
        scaled = scaled - scaled.max(axis=1, keepdims=True)
        return float((np.log(np.exp(scaled).sum(axis=1)) - scaled[rows, labels]).mean())

    bounds = [math.log(bound) for bound in TEMPERATURES]
    return math.exp(minimize_scalar(log_loss, bounds=bounds, method="bounded", options={"xatol": 1e-6}).x)


def softmax(logits: np.ndarray, temperature: float = 1.0) -> np.ndarray:
    """Return probabilities (N, 3) float64 of logits (N, 3)."""
    scaled = np.asarray(logits, dtype=np.float64) / temperature
    scaled = np.exp(scaled - scaled.max(axis=1, keepdims=True))
    return scaled / scaled.sum(axis=1, keepdims=True)
