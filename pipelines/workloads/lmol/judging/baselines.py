"""Baselines that answer comparisons without a network, fitted to the training part.

Thresholds on the difference of two predicted scores are fitted to the validation part, as predictors know the scores of
training images too well.
"""

import itertools
import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.ndimage import laplace
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

from models.images.ranking import SWAPPED
from pipelines.workloads.lmol.data import CLASSES, Comparisons
from pipelines.workloads.lmol.judging.one_image import FEW_SCORES, SIDE, Timed, shallow_scores, timed
from pipelines.workloads.lmol.pairs import label

SHARPNESS = "sharpness rule"
LINEAR_PAIRS = 10_000  # to which the linear siamese is fitted, each in both orders
ROUNDS = 100  # of logistic regression

Answer = Callable[[np.ndarray, np.ndarray], np.ndarray]  # numbers of images (P,), (P,) -> probabilities (P, 3)


@dataclass(frozen=True)
class Baseline:
    """A predictor without a network."""

    name: str
    answer: Answer
    scores: np.ndarray | None = None  # (N,) of all images, if it gives scores
    soft: bool = True  # False if its probabilities are 0 and 1 only
    milliseconds: float | None = None  # that an image takes, where it is looked at


def baselines(comparisons: Comparisons, seed: int, tower: Sequence[Timed] = ()) -> list[Baseline]:
    """Return the baselines that the scores allow; one, of shuffled labels, must come out at chance.

    Those that predict scores see what the model's `tower` does, kinds of features (N, F), as well as the pixels.
    """
    train, labels = comparisons.parts["train"], comparisons.pairs["train"][:, 2]
    pixels, cost = timed(lambda: np.stack([_pixels(image) for image in comparisons.images]))  # one at a time: memory
    shares = comparisons.shares
    sharpness, looking = timed(lambda: np.array([_sharpness(image) for image in comparisons.images]))
    known = comparisons.scores * comparisons.unit
    line = np.polynomial.Polynomial.fit(sharpness[train], known[train], 1) if np.ptp(sharpness[train]) else None
    shuffled = np.random.default_rng(seed).permutation(labels)
    found = [
        Baseline("majority class", lambda first, _: np.tile(shares, (len(first), 1))),
        Baseline(SHARPNESS, threshold_rule(sharpness, comparisons), line(sharpness) if line else None, False, looking),
        Baseline("linear siamese", _linear_siamese(pixels, comparisons, labels, seed), milliseconds=cost),
        Baseline("linear siamese, shuffled labels", _linear_siamese(pixels, comparisons, shuffled, seed)),
    ]
    for name, scores in shallow_scores(comparisons, (pixels, cost), tower, seed).items():
        found.append(of_scores(name, scores, comparisons))
    if len(np.unique(comparisons.scores[train])) <= FEW_SCORES:
        found.append(replace(_classify_then_compare(pixels, comparisons), milliseconds=cost))
    return found


def of_scores(name: str, found: Timed, comparisons: Comparisons) -> Baseline:
    """Return the baseline that compares predicted scores (N,)."""
    scores, milliseconds = found
    return Baseline(name, threshold_rule(scores, comparisons), scores, False, milliseconds)


def _sharpness(image: np.ndarray) -> float:
    return math.log1p(laplace(image.mean(-1, dtype=np.float32)).var())


def _pixels(image: np.ndarray) -> np.ndarray:
    """Average an image (S, S, C) uint8 over blocks, to at most SIDE a side; returns (F,) float."""
    block = math.ceil(len(image) / SIDE)
    side = len(image) // block
    cut = image[: side * block, : side * block].astype(np.float64)
    return np.ravel(cut.reshape(side, block, side, block, -1).mean(axis=(1, 3)))


def threshold_rule(values: np.ndarray, comparisons: Comparisons) -> Answer:
    """Return the rule, fitted to validation pairs, that the larger or the smaller value wins unless they are near."""
    first, second, labels = comparisons.pairs["validation"].T
    thresholds = np.unique(np.quantile(np.abs(values[first] - values[second]), np.linspace(0, 1, 101)))
    sign, near = max(
        itertools.product((1, -1), thresholds),
        key=lambda rule: (label(rule[0] * values[first], rule[0] * values[second], rule[1]) == labels).sum(),
    )
    return lambda first, second: np.eye(len(CLASSES))[label(sign * values[first], sign * values[second], near)]


def _weights(comparisons: Comparisons, labels: np.ndarray) -> np.ndarray:
    """Return weights (P,) of training pairs that make labels as frequent as among all pairs of training images."""
    natural = np.array(comparisons.shares)
    counts = np.bincount(labels, minlength=len(CLASSES))
    weights: np.ndarray = (natural * len(labels) / np.maximum(counts, 1))[labels]
    return weights


def _linear_siamese(pixels: np.ndarray, comparisons: Comparisons, labels: np.ndarray, seed: int) -> Answer:
    """Fit a logistic regression on the difference of two images and its absolute value."""
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
    """Predict both scores by logistic regression; sum the probabilities of score pairs that lead to an answer."""
    train = comparisons.parts["train"]
    values, classes = np.unique(comparisons.scores[train], return_inverse=True)
    chances = _all_classes(_logistic_regression(pixels[train], classes), pixels, len(values))
    answer = np.eye(len(CLASSES))[label(values[:, None], values, comparisons.theta)]

    def answers(first: np.ndarray, second: np.ndarray) -> np.ndarray:
        return np.asarray(np.einsum("pi,ijk,pj->pk", chances[first], answer, chances[second], optimize=True))

    return Baseline("classify (logistic regression), then compare", answers, chances @ values * comparisons.unit)


def _logistic_regression(features: np.ndarray, labels: np.ndarray, weights: np.ndarray | None = None) -> Pipeline:
    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=ROUNDS))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # enough rounds for a baseline
        return model.fit(features, labels, logisticregression__sample_weight=weights)


def _all_classes(model: Pipeline, features: np.ndarray, num: int) -> np.ndarray:
    """Return probabilities (N, num), 0 for classes that do not occur in training."""
    found = np.zeros((len(features), num))
    found[:, model.classes_] = model.predict_proba(features)
    return found
