"""What answers comparisons without a network, all fitted to the training part alone."""

import itertools
import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.ndimage import laplace
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression, RidgeCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from models.ranking import SWAPPED
from pipelines.workloads.lmol.data import CLASSES, Comparisons
from pipelines.workloads.lmol.pairs import label, natural_shares

SHARPNESS = "sharpness rule"
FEW_SCORES = 20  # at most so many different ones are classes to a classifier
LINEAR_PAIRS = 10_000  # that the linear siamese is fitted to, each in both orders
ROUNDS = 100  # of logistic regression
LINEAR_SIDE = 8  # images are averaged down to this for the linear models

Answer = Callable[[np.ndarray, np.ndarray], np.ndarray]  # numbers of images (P,), (P,) -> probabilities (P, 3)


@dataclass(frozen=True)
class Baseline:
    """A predictor without a network."""

    name: str
    answer: Answer
    scores: np.ndarray | None = None  # (all images,) where it has scores
    soft: bool = True  # whether its probabilities are meant as such


def baselines(comparisons: Comparisons, seed: int) -> list[Baseline]:
    """Those that the scores allow. With shuffled labels a fit must come out at chance, or the test part leaks."""
    train, labels = comparisons.parts["train"], comparisons.pairs["train"][:, 2]
    pixels = np.stack([_pixels(image) for image in comparisons.images])  # one by one: they may be many
    shares = natural_shares(comparisons.scores[train], comparisons.theta)
    sharpness = np.array([math.log1p(laplace(image.mean(-1, dtype=np.float32)).var()) for image in comparisons.images])
    known = comparisons.scores * comparisons.unit
    slope = np.polynomial.Polynomial.fit(sharpness[train], known[train], 1) if np.ptp(sharpness[train]) else None
    ridge = make_pipeline(StandardScaler(), RidgeCV(np.logspace(-1, 5, 13))).fit(pixels[train], known[train])
    regressed = ridge.predict(pixels)
    shuffled = np.random.default_rng(seed).permutation(labels)
    found = [
        Baseline("majority class", lambda first, _: np.tile(shares, (len(first), 1))),
        Baseline(SHARPNESS, _threshold_rule(sharpness, comparisons), slope and slope(sharpness), soft=False),
        Baseline("linear siamese", _linear_siamese(pixels, comparisons, labels, seed)),
        Baseline("linear siamese, shuffled labels", _linear_siamese(pixels, comparisons, shuffled, seed)),
        Baseline("regress (ridge), then compare", _threshold_rule(regressed, comparisons), regressed, soft=False),
    ]
    if len(np.unique(comparisons.scores[train])) <= FEW_SCORES:
        found.append(_classify_then_compare(pixels, comparisons))
    return found


def _pixels(image: np.ndarray) -> np.ndarray:
    """uint8 (S, S, C) -> (F,) float, averaged over blocks so that a side has at most LINEAR_SIDE."""
    block = math.ceil(len(image) / LINEAR_SIDE)
    side = len(image) // block
    cut = image[: side * block, : side * block].astype(np.float64)
    return cut.reshape(side, block, side, block, -1).mean(axis=(1, 3)).ravel()


def _threshold_rule(values: np.ndarray, comparisons: Comparisons) -> Answer:
    """The larger of two values ranks higher, or the smaller, unless they are near; both settled by training pairs."""
    first, second, labels = comparisons.pairs["train"].T
    thresholds = np.unique(np.quantile(np.abs(values[first] - values[second]), np.linspace(0, 1, 101)))
    weights = _weights(comparisons, labels)
    sign, near = max(
        itertools.product((1, -1), thresholds),
        key=lambda rule: (label(rule[0] * values[first], rule[0] * values[second], rule[1]) == labels) @ weights,
    )
    return lambda first, second: np.eye(len(CLASSES))[label(sign * values[first], sign * values[second], near)]


def _weights(comparisons: Comparisons, labels: np.ndarray) -> np.ndarray:
    """(P,) of training pairs, by which their answers are as frequent as those of any two training images."""
    natural = np.array(natural_shares(comparisons.scores[comparisons.parts["train"]], comparisons.theta))
    return (natural * len(labels) / np.maximum(np.bincount(labels, minlength=len(CLASSES)), 1))[labels]


def _linear_siamese(pixels: np.ndarray, comparisons: Comparisons, labels: np.ndarray, seed: int) -> Answer:
    """Logistic regression on the difference of two images and its size."""
    pairs = comparisons.pairs["train"]
    drawn = np.random.default_rng(seed).permutation(len(pairs))[:LINEAR_PAIRS]
    first, second, labels = pairs[drawn, 0], pairs[drawn, 1], labels[drawn]

    def features(first: np.ndarray, second: np.ndarray) -> np.ndarray:
        difference = pixels[first] - pixels[second]
        return np.concatenate([difference, np.abs(difference)], axis=1)

    both = np.concatenate([features(first, second), features(second, first)])
    labels = np.concatenate([labels, np.array(SWAPPED)[labels]])
    model = _logistic_regression(both, labels, _weights(comparisons, labels))
    return lambda first, second: _all_classes(model, features(first, second), len(CLASSES))


def _classify_then_compare(pixels: np.ndarray, comparisons: Comparisons) -> Baseline:
    """Which score an image has, by logistic regression; a pair's answer has the chance of all scores that give it."""
    train = comparisons.parts["train"]
    values, classes = np.unique(comparisons.scores[train], return_inverse=True)
    chances = _all_classes(_logistic_regression(pixels[train], classes), pixels, len(values))
    answer = np.eye(len(CLASSES))[label(values[:, None], values, comparisons.theta)]

    def answers(first: np.ndarray, second: np.ndarray) -> np.ndarray:
        return np.einsum("pi,ijk,pj->pk", chances[first], answer, chances[second], optimize=True)

    return Baseline("classify (logistic regression), then compare", answers, chances @ values * comparisons.unit)


def _logistic_regression(features: np.ndarray, labels: np.ndarray, weights: np.ndarray | None = None) -> Any:
    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=ROUNDS))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # so many tell what a linear model can do
        return model.fit(features, labels, logisticregression__sample_weight=weights)


def _all_classes(model: Any, features: np.ndarray, num: int) -> np.ndarray:
    """(N, num) probabilities, 0 for classes that training lacked."""
    found = np.zeros((len(features), num))
    found[:, model.classes_] = model.predict_proba(features)
    return found
