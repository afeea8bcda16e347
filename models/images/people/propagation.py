"""Rankings by expectation propagation: scores from answers about pairs, with calibrated errors.

P pairs of `preferences.py`, Q of them different, N images
"""

import math
from collections.abc import Sequence

import numpy as np
from scipy import linalg
from scipy.special import softmax

from models.images.people.preferences import ALIKE, TIE_VARIANCE, Heard, Posterior, Prior, laplacian, of_differences
from models.images.ranking import FIRST, SECOND, SIMILAR

ITERATIONS = 400  # about ten are enough if every pair is asked once
SMALLEST_STEP = 0.1  # of a full one
SETTLED = 1e-4  # converged: no difference moves by more, in deviations, nor does the tie
HALVINGS = 30  # of the interval that holds the likeliest difference of two scores
# Differences of scores at which answers are integrated: in deviations about the likeliest, and near 0, where the
# chances of an answer change.
WIDE, NEAR = np.linspace(-6, 6, 41), np.sinh(np.linspace(-4, 4, 41))


def averaged(pairs: np.ndarray, priors: Sequence[Prior], beforehand: np.ndarray, heard: Heard = ALIKE) -> Posterior:
    """Return the posterior of all images' scores, averaged over the priors and log hyperpriors of `likely_priors`.

    One prior alone would ignore that its hyperparameters are uncertain, and give intervals too narrow. Not for
    `next_pairs`, which would then ask how far scores spread rather than which is larger.
    """
    count = len(priors[0].mean)
    scores, covariance = np.zeros((len(priors), count)), np.zeros((count, count))
    nats, ties = np.zeros(len(priors)), np.zeros(len(priors))
    for i, prior in enumerate(priors):
        found = propagated(pairs, prior, heard)
        scores[i], ties[i], nats[i] = found.scores, found.tie, beforehand[i] + found.evidence
        covariance += math.exp(nats[i] - nats[0]) * found.covariance  # one at a time, as they are large
    weights = softmax(nats)
    mean = weights @ scores
    off = np.sqrt(weights)[:, None] * (scores - mean)
    return Posterior(mean, weights[0] * covariance + off.T @ off, float(weights @ ties))


def propagated(pairs: np.ndarray, prior: Prior, heard: Heard = ALIKE) -> Posterior:
    """Return the posterior of all images' scores given pairs (P, 3) by expectation propagation (Minka 2001).

    The answers about two images are approximated by a normal site in the difference d of their scores,
    exp(pull d - precision d^2 / 2), with the same effect on mean and variance of d given all others. Steps that
    overshoot are halved. Raises ArithmeticError if it does not settle.
    """
    first, second, counts, factor, lean = _counted(pairs, heard)
    rows, ends = np.unique(np.concatenate([first, second]), return_inverse=True)
    (one, other), within = ends.reshape(2, -1), prior.covariance(rows)
    precision, pull, tie, evidence = np.zeros(len(first)), np.zeros(len(first)), 0.0, 0.0
    size, moved = 1.0, math.inf
    for _ in range(ITERATIONS if len(pairs) else 0):
        scores, covariance, integral = _normal(one, other, precision, pull, prior.mean[rows], within)
        difference = scores[one] - scores[other]
        variance = of_differences(covariance, one, other)
        rest = 1 / variance - precision  # the cavity's precision of d
        place = (difference / variance - pull) / rest
        nats, seen, wide, similar = _moments(counts, factor * place + lean, np.square(factor) / rest, tie)
        mean, spread = (seen - lean) / factor, wide / np.square(factor)
        scale = nats - (np.log(variance * rest) + difference**2 / variance - place**2 * rest) / 2
        evidence = integral + scale.sum() - tie**2 / (2 * TIE_VARIANCE)
        asked = counts.sum(1)
        tie_slope = counts[:, SIMILAR].sum() - asked @ similar - tie / TIE_VARIANCE
        tie_step = tie_slope / (asked @ (similar * (1 - similar)) + 1 / TIE_VARIANCE)
        shift, change = (mean - difference) / np.sqrt(variance), spread / variance - 1
        before, moved = moved, max(np.abs(shift).max(), np.abs(change).max(), abs(tie_step))
        if moved < SETTLED:
            break
        if moved > before:
            size = max(size / 2, SMALLEST_STEP)
        precision += size * (1 / spread - rest - precision)
        pull += size * (mean / spread - place * rest - pull)
        tie += size * tie_step
    if len(pairs) and not moved < SETTLED:  # or not a number
        raise ArithmeticError(f"expectation propagation of {len(pairs)} answers did not settle: {moved:.2g} left")
    scores, covariance, _ = _normal(first, second, precision, pull, prior.mean, prior.covariance())
    return Posterior(scores, covariance, float(tie), float(evidence))


def _counted(pairs: np.ndarray, heard: Heard) -> tuple[np.ndarray, ...]:
    """Return distinct pairs: first, second (Q,), counts of the answers (Q, 3), and their raters' factor, lean (Q,)."""
    given = pairs[:, 0] < pairs[:, 1]
    label = np.where(given, pairs[:, 2], np.array([SECOND, FIRST, SIMILAR])[pairs[:, 2]])
    factor, lean = (np.broadcast_to(each, len(pairs)) for each in (heard.factor, heard.lean))
    keys = np.column_stack([np.sort(pairs[:, :2], axis=1), factor, np.where(given, lean, -lean)])
    unique, place = np.unique(keys, axis=0, return_inverse=True)
    counts = np.zeros((len(unique), 3))
    np.add.at(counts, (place.reshape(-1), label), 1)
    first, second = unique[:, :2].astype(np.int64).T
    return first, second, counts, unique[:, 2], unique[:, 3]


def _normal(
    first: np.ndarray, second: np.ndarray, precision: np.ndarray, pull: np.ndarray, mean: np.ndarray, prior: np.ndarray
) -> tuple[np.ndarray, np.ndarray, float]:
    """Return mean (N,) and covariance (N, N) of a normal prior times the sites, and the log integral."""
    count, difference = len(mean), mean[first] - mean[second]
    curvature = laplacian(first, second, precision, count)
    slope = np.bincount(first, pull, count) - np.bincount(second, pull, count) - curvature @ mean
    system = np.eye(count) + curvature @ prior
    found = linalg.solve(system, prior, transposed=True)
    covariance = (found + found.T) / 2
    integral = (slope @ covariance @ slope - np.linalg.slogdet(system)[1]) / 2
    return mean + covariance @ slope, covariance, integral + (pull - precision * difference / 2) @ difference


def _moments(
    counts: np.ndarray, mean: np.ndarray, variance: np.ndarray, tie: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return log probabilities (P,) of answers (P, 3) to pairs with normal differences, and moments given the answers.

    The moments are mean (P,) and variance (P,) of the difference, and the chance (P,) of Similar. Integrals are sums
    over points about the maximum, as dense as the answers and the normal together vary, and as wide as the normal.
    """
    rest, asked, more = 1 / variance, counts.sum(1), (counts[:, FIRST] - counts[:, SECOND]) / 2
    low, high = mean - asked * variance, mean + asked * variance  # an answer's slope is at most 1
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        total = _total(middle, tie)
        lean = np.exp(middle / 2 - total) - np.exp(-middle / 2 - total)
        rises = more - asked * lean / 2 > (middle - mean) * rest
        low, high = np.where(rises, middle, low), np.where(rises, high, middle)
    curvature = rest + asked * (1 - np.exp(tie - _total(middle, tie)) - np.square(lean)) / 4
    scales = np.stack([1 / np.sqrt(curvature), np.sqrt(variance)], axis=1)
    about = (scales[:, :, None] * WIDE).reshape(len(mean), -1) + middle[:, None]
    at = np.sort(np.concatenate([about, np.broadcast_to(NEAR, (len(mean), len(NEAR)))], 1), 1)
    gaps = np.diff(at)
    weights = (np.pad(gaps, ((0, 0), (1, 0))) + np.pad(gaps, ((0, 0), (0, 1)))) / 2  # of the trapezoid rule
    beside = tie - _total(at, tie)  # logarithm of the chance of Similar
    nats = more[:, None] * at + asked[:, None] * (beside - tie) - np.square(at - mean[:, None]) * rest[:, None] / 2
    nats += counts[:, SIMILAR, None] * tie
    top = nats.max(1)
    mass = np.exp(nats - top[:, None]) * weights
    total = mass.sum(1)
    mass /= total[:, None]
    found = (mass * at).sum(1)
    spread = (mass * np.square(at - found[:, None])).sum(1)
    similar = (mass * np.exp(beside)).sum(1)
    return top + np.log(total) - np.log(2 * math.pi * variance) / 2, found, spread, similar


def _total(difference: np.ndarray, tie: float) -> np.ndarray:
    """Return the log normaliser of the three answers' probabilities."""
    return np.asarray(np.logaddexp(np.logaddexp(difference / 2, -difference / 2), tie))
