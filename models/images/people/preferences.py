"""Scores from people's answers about pairs: Davidson's model, with a normal prior that may correlate similar images.

    P(first), P(second), P(similar)  ∝  exp(d / 2), exp(-d / 2), exp(tie)      d = a (s_first - s_second) + b

The discrimination a and the lean b are the rater's (`raters.py`), 1 and 0 where all raters are treated alike.

The scores s (N,) of the images have a normal prior: a share of their variance follows the images' features, so that an
answer about one image informs about similar ones (preference learning with Gaussian processes: Chu and Ghahramani
2005). The prior's hyperparameters and the pairs to ask about are chosen by Laplace's approximation. With few answers
that is too near to the prior's mean, and too sure: a ranking is made by expectation propagation (`propagation.py`),
averaged over likely priors.

    N images   P pairs   F features
"""

import math
from dataclasses import dataclass

import numpy as np
from scipy import linalg
from scipy.sparse import coo_array, csr_array
from scipy.special import log_softmax, softmax

from models.images.ranking import FIRST, SECOND, SIMILAR

UNKNOWN = 4.0  # standard deviation of scores without a prior
SPREADS = (0.125, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0)  # tried factors on the prior's standard deviations
UNITS = (0.0625, 0.125, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0)  # and on its mean and standard deviations together
SHARES = (0.0, 0.8, 0.97, 0.99)  # tried shares of the variance that follows features
LENGTHS = (0.4, 0.6, 0.85, 1.2, 1.7)  # tried length scales of that, in root mean square differences of images
TYPICAL = (1.0, 0.97, 0.6, 1.0)  # spread, share, length and unit without answers
# Neighbours in the grid of these four: one step in each; length and spread together, since answers can hardly tell
# their joint growth from none; and another unit with the same deviations.
STEPS = (
    *((1, 0, 0, 0), (-1, 0, 0, 0), (0, 1, 0, 0), (0, -1, 0, 0), (0, 0, 1, 0), (0, 0, -1, 0), (1, 0, 1, 0)),
    *((-1, 0, -1, 0), (0, 0, 0, 1), (0, 0, 0, -1), (1, 0, 0, -1), (-1, 0, 0, 1)),
)
UNLIKELY = 3.0  # nats below the likeliest prior, at which others are dropped
DOUBT = 1.0  # nats lost for each step away from the typical value
TIE_VARIANCE = 9.0  # of the tie's prior
ITERATIONS = 50  # of Newton's method
SMALLEST = 1e-6  # share of a full Newton step
CANDIDATES = 20_000  # pairs among which the next ones are chosen

Place = tuple[int, ...]  # in SPREADS, SHARES, LENGTHS and UNITS


@dataclass(frozen=True)
class Heard:
    """The raters' parameters for each of P answers."""

    factor: np.ndarray | float = 1.0  # (P,) discriminations
    lean: np.ndarray | float = 0.0  # (P,) towards First

    def of(self, difference: np.ndarray) -> np.ndarray:
        """Return differences (P,) of scores as the raters perceive them."""
        return np.asarray(self.factor * difference + self.lean)


ALIKE = Heard()


@dataclass(frozen=True)
class Prior:
    """Distribution of the scores before the answers."""

    mean: np.ndarray  # (N,)
    deviation: np.ndarray  # (N,)
    features: np.ndarray | None = None  # (N, F), each of unit variance
    share: float = 0.0
    length: float = 1.0

    def covariance(self, rows: np.ndarray | slice = slice(None)) -> np.ndarray:
        """Return the covariance (n, n) of the images `rows`."""
        deviation = self.deviation[rows]
        correlation = np.eye(len(deviation))
        if self.features is not None and self.share:
            correlation = (1 - self.share) * correlation + self.share * self.likeness(rows, rows)
        return np.asarray(deviation[:, None] * correlation * deviation)

    def likeness(self, rows: np.ndarray | slice, others: np.ndarray | slice = slice(None)) -> np.ndarray:
        """Return the correlation (n, m) that images `rows` have with `others` by their features."""
        assert self.features is not None, "only features tell which images are alike"
        one, other = self.features[rows], self.features[others]
        product = np.square(one).sum(1)[:, None] + np.square(other).sum(1) - 2 * one @ other.T
        return np.asarray(np.exp(-product.clip(min=0) / (4 * one.shape[1] * self.length**2)))


@dataclass(frozen=True)
class Posterior:
    """Distribution of the scores after the answers."""

    scores: np.ndarray  # (N,)
    covariance: np.ndarray  # (N, N)
    tie: float
    evidence: float = math.nan  # log marginal likelihood of the answers, under one prior

    @property
    def centred(self) -> np.ndarray:
        """Covariance (N, N) of the scores less their mean, since answers about pairs leave the mean open."""
        centred: np.ndarray = self.covariance - self.covariance.mean(0)
        centred -= centred.mean(1, keepdims=True)
        return centred

    @property
    def errors(self) -> np.ndarray:
        """Standard errors (N,) of the scores less their mean."""
        return np.asarray(np.sqrt(np.diag(self.centred).clip(min=0)))

    def variances(self, first: np.ndarray, second: np.ndarray) -> np.ndarray:
        """Return the variances (P,) of the differences of two scores."""
        return of_differences(self.covariance, first, second)

    def uncertainty(self) -> "Uncertainty":
        """Return the covariance by which `next_pairs` chooses."""
        return Uncertainty(self.centred)


def fit(pairs: np.ndarray, prior: Prior, rows: np.ndarray | slice = slice(None), heard: Heard = ALIKE) -> Posterior:
    """Return the posterior of the scores of the images `rows` given pairs (P, 3), first and second among `rows`, label.

    Newton's method in the form of Rasmussen and Williams (2006, section 3.4.3), which needs no inverse of the prior's
    covariance; the tie takes a Newton step of its own in each iteration.
    """
    mean, covariance = prior.mean[rows], prior.covariance(rows)
    first, second, label = pairs.T
    count = len(mean)
    weights, tie, objective = np.zeros(count), 0.0, -math.inf  # scores = mean + covariance @ weights
    step, tie_step, size = np.zeros(count), 0.0, 1.0
    for _ in range(ITERATIONS):
        tried = weights + size * step, tie + size * tie_step
        deviation = covariance @ tried[0]
        scores = mean + deviation
        said = logits(heard.of(scores[first] - scores[second]), tried[1])
        likelihood = log_softmax(said, axis=1)[np.arange(len(label)), label].sum()
        reached = float(likelihood - deviation @ tried[0] / 2 - tried[1] ** 2 / (2 * TIE_VARIANCE))
        if reached < objective - 1e-9 and size > SMALLEST:
            size /= 2
            continue
        rose = reached - objective
        (weights, tie), objective, size = tried, reached, 1.0
        if rose < 1e-7:
            break
        slope, information, tie_step = newton(label, said, tie, heard)
        gradient = np.bincount(first, slope, count) - np.bincount(second, slope, count)
        curvature = laplacian(first, second, information, count)
        system = np.eye(count) + curvature @ covariance
        step = linalg.solve(system, curvature @ deviation + gradient) - weights
    posterior = linalg.solve(system, covariance, transposed=True)
    evidence = objective - np.linalg.slogdet(system)[1] / 2
    return Posterior(mean + covariance @ weights, (posterior + posterior.T) / 2, tie, float(evidence))


def logits(difference: np.ndarray, tie: float) -> np.ndarray:
    """Return logits (P, 3) of the answers to pairs whose scores differ by `difference` (P,)."""
    return np.stack([difference / 2, -difference / 2, np.full_like(difference, tie)], axis=1)


def newton(label: np.ndarray, said: np.ndarray, tie: float, heard: Heard) -> tuple[np.ndarray, np.ndarray, float]:
    """Return slope and curvature (P,) of the log-likelihood in differences, by logits (P, 3), and the tie's step."""
    chances = softmax(said, axis=1)
    residual, lean = np.eye(3)[label] - chances, chances[:, FIRST] - chances[:, SECOND]
    slope = heard.factor * (residual[:, FIRST] - residual[:, SECOND]) / 2
    information = np.square(heard.factor) * (1 - chances[:, SIMILAR] - np.square(lean)) / 4
    tie_curvature = (chances[:, SIMILAR] * (1 - chances[:, SIMILAR])).sum() + 1 / TIE_VARIANCE
    return slope, information, (residual[:, SIMILAR].sum() - tie / TIE_VARIANCE) / tie_curvature


def laplacian(first: np.ndarray, second: np.ndarray, weights: np.ndarray, count: int) -> csr_array:
    """Return the curvature (N, N) of the log-likelihood in scores, from its curvature (P,) in differences."""
    rows, columns = np.concatenate([[first, second], [second, first], [first, first], [second, second]], axis=1)
    values = np.concatenate([-weights, -weights, weights, weights])
    return coo_array((values, (rows, columns)), shape=(count, count)).tocsr()


def likely_priors(pairs: np.ndarray, prior: Prior, heard: Heard = ALIKE) -> tuple[list[Prior], np.ndarray]:
    """Return likely priors of the scores in logits, the likeliest first, and their log hyperpriors (K,).

    The scores of `prior` are first scaled to the spread UNKNOWN. The priors differ in the deviation's factor, share
    and length and, if the mean tells images apart, in the unit of both; errors of such a mean are typically
    uncorrelated. The search climbs from the typical values, which few answers leave as they are, to the neighbours
    under which the answers are likeliest; only images that were compared count.
    """
    rows, ends = np.unique(pairs[:, :2], return_inverse=True)
    local = np.column_stack([ends.reshape(-1, 2), pairs[:, 2]])
    grids = (SPREADS, SHARES, LENGTHS, UNITS)
    typical = tuple(grid.index(value) for grid, value in zip(grids, TYPICAL, strict=True))
    mean, informed = prior.mean - prior.mean.mean(), np.ptp(prior.mean) > 0
    begin = typical if prior.features is not None and not informed else (typical[0], 0, *typical[2:])
    logit = UNKNOWN / math.sqrt(np.square(mean).mean() + np.square(prior.deviation).mean())

    def scaled(place: Place) -> Prior:
        spread, share, length, unit = (grid[i] for grid, i in zip(grids, place, strict=True))
        unit *= logit
        return Prior(unit * mean, unit * spread * prior.deviation, prior.features, share, length)

    def near(place: Place) -> list[Place]:
        found = [place]
        for step in STEPS if len(pairs) else ():
            new = tuple(max(0, min(i + by, len(grid) - 1)) for i, by, grid in zip(place, step, grids, strict=True))
            share = new[1] if prior.features is not None else 0
            # Without a share, no length counts; without a mean, another unit is another spread.
            found.append((new[0], share, new[2] if share else typical[2], new[3] if informed else typical[3]))
        return found

    def beforehand(place: Place) -> float:
        return -DOUBT * sum(abs(i - usual) for i, usual in zip(place, begin, strict=True))

    tried: dict[Place, float] = {}
    best, place = begin, None
    while best != place:
        place = best
        for each in near(place):
            if each not in tried:
                tried[each] = (fit(local, scaled(each), rows, heard).evidence if len(pairs) else 0.0) + beforehand(each)
        best = max(near(place), key=tried.__getitem__)
    ordered = sorted(tried, key=tried.__getitem__, reverse=True)
    likely = [each for each in ordered if tried[each] > tried[best] - UNLIKELY]
    return [scaled(each) for each in likely], np.array([beforehand(each) for each in likely])


def next_pairs(posterior: Posterior, count: int, asked: np.ndarray, seed: int) -> np.ndarray:
    """Return pairs (count, 2) whose answers tell most about the scores; `asked` (P, 2) are excluded.

    The gain of a pair is the expected fall of the scores' summed variance about their mean (A-optimal design: Chaloner
    and Verdinelli 1995); the answer's entropy alone would choose odd images, which tell nothing about others. The
    covariance is updated as if each pair had been answered, so that a batch does not ask the same twice.
    """
    generator, num = np.random.default_rng(seed), len(posterior.scores)
    after = np.arange(num) + 1
    first, second = draw(num - after, after, CANDIDATES, generator).T
    known = set(map(tuple, np.sort(asked[:, :2], axis=1).tolist()))
    free = np.array([pair not in known for pair in zip(first.tolist(), second.tolist(), strict=True)], bool)
    first, second = first[free], second[free]
    swapped = generator.random(len(first)) < 0.5
    first, second = np.where(swapped, second, first), np.where(swapped, first, second)
    left = posterior.uncertainty()
    difference = posterior.scores[first] - posterior.scores[second]
    chosen: list[int] = []
    for _ in range(min(count, len(first))):
        variance, length = left.of(first, second)
        # The information at a difference that is itself uncertain (MacKay 1992).
        chances = softmax(logits(difference / np.sqrt(1 + math.pi * variance / 32), posterior.tie), axis=1)
        information = (1 - chances[:, SIMILAR] - np.square(chances[:, FIRST] - chances[:, SECOND])) / 4
        weight = information / (1 + information * variance)  # of the fall of the covariance
        gain = weight * length
        gain[chosen] = -1.0
        best = int(gain.argmax())
        chosen.append(best)
        left.answered(first[best], second[best], weight[best])
    return np.stack([first[chosen], second[chosen]], axis=1)


class Uncertainty:
    """The covariance (N, N) of scores, which falls with each pair that is chosen as if it had been answered."""

    def __init__(self, covariance: np.ndarray):
        self.covariance, self.square = covariance, covariance @ covariance

    def of(self, first: np.ndarray, second: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return variances (P,) of differences, and squared lengths (P,) of their covariance with all scores."""
        return of_differences(self.covariance, first, second), of_differences(self.square, first, second)

    def answered(self, first: int, second: int, weight: float) -> None:
        """Reduce the covariance by an answer about a pair."""
        column, beyond = (each[:, first] - each[:, second] for each in (self.covariance, self.square))
        fall = weight * np.outer(column, column)
        product = weight * np.outer(beyond, column)
        self.square += weight * (column @ column) * fall - product - product.T
        self.covariance -= fall


def of_differences(matrix: np.ndarray, first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Return the quadratic form (P,) of a matrix (N, N) at the differences of two unit vectors each."""
    diagonal = np.diag(matrix)
    return np.asarray((diagonal[first] + diagonal[second] - 2 * matrix[first, second]).clip(min=0))


def draw(counts: np.ndarray, starts: np.ndarray, most: int, generator: np.random.Generator) -> np.ndarray:
    """Draw at most `most` different pairs (i, j), (P, 2), with j one of counts[i] numbers from starts[i]."""
    ends = np.cumsum(counts)
    total = int(ends[-1])
    numbers = generator.permutation(total) if total <= most else generator.choice(total, most, replace=False)
    i = np.searchsorted(ends, numbers, side="right")
    return np.stack([i, starts[i] + numbers - (ends - counts)[i]], axis=1)
