"""Scores of many images from many answers, by sparse matrices and conjugate gradients (Laplace's approximation).

The prior's correlation of similar images goes through LANDMARKS images (FITC: Snelson and Ghahramani 2006). The
posterior's covariance is represented by samples (Papandreou and Yuille 2010).

    N images, P answers, M landmarks, K samples
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy import linalg
from scipy.sparse import coo_array, csr_array

from models.images.people.preferences import Heard, Posterior, Prior, Uncertainty, laplacian, logits, newton

MOST_DENSE = 1500  # images whose covariance is kept whole
LANDMARKS, SAMPLES, FEW_SAMPLES = 200, 192, 16
CHOOSING = 3  # every third sample is used to choose pairs
NEWTON, GRADIENTS = 12, 300  # steps, at most
CLOSE = 1e-3  # residual of conjugate gradients, as a share of the first


@dataclass(frozen=True)
class Sampled(Posterior):
    """Posterior whose `covariance` holds samples of the scores, less their mean, over the root of K: (N, K)."""

    @property
    def centred(self) -> np.ndarray:
        """Samples (N, K), less the mean of all images."""
        return np.asarray(self.covariance - self.covariance.mean(0))

    @property
    def errors(self) -> np.ndarray:
        """Standard errors (N,) of the scores less their mean."""
        return np.asarray(np.sqrt(np.square(self.centred).sum(1)))

    def variances(self, first: np.ndarray, second: np.ndarray) -> np.ndarray:
        """Return the variances (P,) of the differences of two scores."""
        return np.asarray(np.square(self.covariance[first] - self.covariance[second]).sum(1))

    def uncertainty(self) -> "Uncertainty":
        """Return the covariance by which `next_pairs` chooses, from some of the samples."""
        return SampledUncertainty(math.sqrt(CHOOSING) * self.centred[:, ::CHOOSING])


class SampledUncertainty(Uncertainty):
    """The covariance of scores as samples (N, K) times their transpose."""

    def __init__(self, samples: np.ndarray):
        self.samples, self.square = samples, samples.T @ samples  # (N, K), (K, K)

    def of(self, first: np.ndarray, second: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return variances (P,) of differences, and squared lengths (P,) of their covariance with all scores."""
        apart = self.samples[first] - self.samples[second]
        return np.square(apart).sum(1), ((apart @ self.square) * apart).sum(1)

    def answered(self, first: int, second: int, weight: float) -> None:
        """Reduce the covariance by an answer: samples lose part of their component along the pair's difference."""
        apart = self.samples[first] - self.samples[second]
        size = apart @ apart
        lost = (1 - math.sqrt(max(0.0, 1 - weight * size))) / max(size, 1e-300)
        self.samples = self.samples - lost * np.outer(self.samples @ apart, apart)
        self.square = self.samples.T @ self.samples


def some(pairs: np.ndarray, count: int) -> np.ndarray:
    """Return the rows of answers from which a prior is chosen: all, or of many images those about the most asked."""
    if count <= MOST_DENSE:
        return np.arange(len(pairs))
    heard = np.bincount(pairs[:, :2].ravel(), minlength=count)
    kept = np.argsort(-heard, kind="stable")[: MOST_DENSE // 3]
    return np.flatnonzero(np.isin(pairs[:, :2], kept).all(1))


def fit_many(pairs: np.ndarray, prior: Prior, *, heard: Heard, samples: int = SAMPLES) -> Sampled:
    """Return the posterior of scores = mean + own e + alike w, with e and w ~ N(0, 1), given pairs (P, 3)."""
    first, second, label = pairs.T
    generator, count = np.random.default_rng(0), len(prior.mean)
    own, alike = _factors(prior, generator)
    unknown, tie = np.zeros((count + alike.shape[1], 1)), 0.0

    def scored(z: np.ndarray) -> np.ndarray:  # (N + M, K) -> (N, K)
        return np.asarray(own[:, None] * z[:count] + alike @ z[count:])

    def back(s: np.ndarray) -> np.ndarray:  # its transpose
        return np.concatenate([own[:, None] * s, alike.T @ s])

    for _ in range(NEWTON):
        scores = prior.mean + scored(unknown)[:, 0]
        said = logits(heard.of(scores[first] - scores[second]), tie)
        slope, information, tie_step = newton(label, said, tie, heard)
        gradient = np.bincount(first, slope, count) - np.bincount(second, slope, count)
        curvature = laplacian(first, second, information, count)
        within = np.concatenate([np.square(own) * curvature.diagonal(), (alike * (curvature @ alike)).sum(0)])

        def system(z: np.ndarray, curvature: csr_array = curvature) -> np.ndarray:
            return np.asarray(z + back(curvature @ scored(z)))

        step = _solved(system, back(gradient[:, None]) - unknown, 1 + within)
        unknown, tie = unknown + step, tie + tie_step
        if np.abs(scored(step)).max(initial=0) < 1e-3:
            break
    answer, root = np.arange(len(pairs)), np.sqrt(information)
    ends = np.concatenate([first, second]), np.concatenate([answer, answer])
    pushed = coo_array((np.concatenate([root, -root]), ends), shape=(count, len(pairs))).tocsr()
    drawn = back(pushed @ generator.standard_normal((len(pairs), samples)))
    drawn = _solved(system, drawn + generator.standard_normal((len(unknown), samples)), 1 + within)
    return Sampled(prior.mean + scored(unknown)[:, 0], scored(drawn) / math.sqrt(samples), tie)


def _factors(prior: Prior, generator: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Return the scores' independent deviations (N,), and their loadings on the landmarks' common factors (N, M)."""
    if prior.features is None or not prior.share:
        return prior.deviation, np.zeros((len(prior.mean), 0))
    drawn = np.sort(generator.choice(len(prior.mean), min(LANDMARKS, len(prior.mean)), replace=False))
    among = prior.likeness(drawn, drawn) + 1e-6 * np.eye(len(drawn))
    shared = linalg.solve_triangular(linalg.cholesky(among, lower=True), prior.likeness(drawn), lower=True).T
    own = prior.deviation * np.sqrt((1 - prior.share * np.square(shared).sum(1)).clip(min=0))
    return own, prior.deviation[:, None] * math.sqrt(prior.share) * shared


def _solved(system: Callable[[np.ndarray], np.ndarray], right: np.ndarray, diagonal: np.ndarray) -> np.ndarray:
    """Return solutions (n, K) of a symmetric system for right sides (n, K), by preconditioned conjugate gradients."""
    found, residual = np.zeros_like(right), right.copy()
    ready = residual / diagonal[:, None]
    direction, size = ready, (residual * ready).sum(0)
    enough = CLOSE**2 * size
    for _ in range(GRADIENTS):
        if (size <= enough).all():
            break
        moved = system(direction)
        rate = size / np.maximum((direction * moved).sum(0), 1e-300)
        found += rate * direction
        residual -= rate * moved
        ready = residual / diagonal[:, None]
        before, size = size, (residual * ready).sum(0)
        direction = ready + size / np.maximum(before, 1e-300) * direction
    return found
