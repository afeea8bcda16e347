"""Predictions, labels and baselines for tests, and published models to judge."""

import numpy as np
from scipy.special import softmax

from pipelines.workloads.crypto.verdict.classification import class_shares

# Test-set confusion matrices of six published models of 15-minute candles, and what follows from them:
# (matrix, accuracy, majority, balanced accuracy, macro-F1, MCC, sign right when traded and moved).
SHIPPED = {
    "BTC": ([[149, 735, 171], [157, 2781, 182], [154, 733, 182]], 0.5934, 0.5950, 0.401, 0.393, 0.170, 0.505),
    "ETH": ([[1, 464, 885], [0, 1385, 1119], [0, 451, 939]], 0.4434, 0.4775, 0.410, 0.337, 0.152, 0.515),
    "BNB": ([[344, 578, 302], [552, 1832, 368], [332, 574, 362]], 0.4840, 0.5248, 0.411, 0.411, 0.139, 0.527),
    "SOL": ([[561, 0, 1003], [1048, 0, 1081], [569, 0, 982]], 0.2942, 0.4060, 0.331, 0.242, -0.005, 0.495),
    "XRP": ([[0, 269, 1241], [0, 790, 1548], [0, 244, 1152]], 0.3703, 0.4458, 0.388, 0.288, 0.121, 0.481),
    "ADA": ([[1272, 184, 302], [1316, 356, 193], [1150, 188, 283]], 0.3644, 0.3556, 0.363, 0.325, 0.055, 0.517),
}


def sample(seed: int, num: int, strength: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """Return probabilities (N, 3) and labels (N,) drawn from them."""
    generator = np.random.default_rng(seed)
    probabilities = softmax(strength * generator.normal(size=(num, 3)) + [0.0, 0.3, 0.0], axis=1)
    labels = (generator.random((num, 1)) > probabilities.cumsum(axis=1)[:, :2]).sum(axis=1)
    return probabilities, labels


def guesses(seed: int, labels: np.ndarray) -> dict[str, np.ndarray]:
    """Return baselines that know only the prior and take no time to fit."""
    prior = class_shares(labels)
    drawn = np.random.default_rng(seed).choice(3, len(labels), p=prior)
    return {"majority": np.tile(prior, (len(labels), 1)), "guess": (np.eye(3)[drawn] + prior) / 2}


def rows_with_a_signal(seed: int, train: int = 1500, test: int = 800) -> dict[str, np.ndarray]:
    """Return the arguments of the baselines, with labels that depend on the first feature and on noise."""
    generator = np.random.default_rng(seed)
    features = generator.normal(size=(train + test, 4))
    move = features[:, 0] + 2 * generator.normal(size=train + test)
    labels = 1 + (move > 0.8).astype(int) - (move < -0.8)
    return {
        "train": {"last row": features[:train]},
        "labels": labels[:train],
        "test": {"last row": features[train:]},
        "test_labels": labels[train:],
    }
