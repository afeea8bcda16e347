"""Raters who answer about pairs: how well each tells images apart, and how each leans (Chen et al. 2013, crowd-BT).

A rater who guesses has a discrimination near 0, and hardly counts. Discriminations and leans have normal priors; they
and the scores are fitted in turn, the former to the expected likelihood under the latter's posterior.

    P answers, R raters, Q points of a quadrature
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from scipy.special import softmax

from common.plain import Plain
from models.images.inputs import ImagesInput
from models.images.people.many_images import FEW_SAMPLES, MOST_DENSE, SAMPLES, fit_many, some
from models.images.people.preferences import ALIKE, Heard, Posterior, Prior, fit, likely_priors, logits, next_pairs
from models.images.people.propagation import averaged
from models.images.ranking import FIRST, SECOND, SIMILAR
from models.images.reliability import with_ends

DISCRIMINATION, SPREAD, LEAN = 1.0, 0.5, 0.5  # prior mean and deviation of discriminations, deviation of leans
LEAST, MOST, GUESSING = 0.02, 4.0, 0.25  # discriminations; raters below the last are reported as guessing
ROUNDS, STEPS = 6, 5
POINTS, WEIGHTS = np.polynomial.hermite_e.hermegauss(9)


@dataclass(frozen=True)
class Raters:
    """Raters' fitted parameters."""

    names: Sequence[str]
    of: np.ndarray  # (P,) the index of each answer's rater
    factor: np.ndarray  # (R,)
    lean: np.ndarray  # (R,)

    @property
    def heard(self) -> Heard:
        """The raters' parameters for each answer."""
        return Heard(self.factor[self.of], self.lean[self.of])

    def table(self) -> list[str]:
        """Return a line for each rater, the least discriminating first."""
        count = np.bincount(self.of, minlength=len(self.names)).tolist()
        return [
            f"rater {self.names[i] or 'without a name'}: {count[i]:,} answer{'s' * (count[i] != 1)}, discrimination "
            f"{self.factor[i]:.2f}, leans {abs(self.lean[i]):.2f} to {'First' if self.lean[i] > 0 else 'Second'}"
            + (": answers as if guessing, and hardly counts" if self.factor[i] < GUESSING else "")
            for i in np.argsort(self.factor)
        ]


@dataclass(frozen=True)
class Fitted:
    """Likely priors of the scores, the likeliest first, and the raters' parameters."""

    priors: list[Prior]
    beforehand: np.ndarray  # (K,) their log hyperpriors
    heard: Heard
    raters: Raters | None  # None: all are treated alike

    def posterior(self, pairs: np.ndarray, samples: int = SAMPLES) -> Posterior:
        """Return the posterior under the likeliest prior; of many images, with its covariance by `samples`."""
        if len(self.priors[0].mean) > MOST_DENSE:
            return fit_many(pairs, self.priors[0], heard=self.heard, samples=samples)
        return fit(pairs, self.priors[0], heard=self.heard)


def fitted(pairs: np.ndarray, prior: Prior, names: Sequence[str] = ()) -> Fitted:
    """Return likely priors given pairs (P, 3), answered by `names` (P,); fewer than two raters are treated alike."""
    sample = some(pairs, len(prior.mean))
    found = Fitted(*likely_priors(pairs[sample], prior), ALIKE, None)
    listed, of = np.unique(np.asarray(names, str), return_inverse=True)
    if len(listed) < 2:
        return found
    raters = Raters(listed.tolist(), of, np.full(len(listed), DISCRIMINATION), np.zeros(len(listed)))
    for _ in range(ROUNDS):
        raters = updated(raters, pairs, found.posterior(pairs, FEW_SAMPLES))
        # Scores are in the logits of the raters who count: a factor on all discriminations would only rescale scores.
        usual = float(np.square(raters.factor).sum() / raters.factor.sum())
        raters = replace(raters, factor=raters.factor / usual)
        priors = [replace(each, mean=usual * each.mean, deviation=usual * each.deviation) for each in found.priors]
        found = Fitted(priors, found.beforehand, raters.heard, raters)
    if len(prior.mean) > MOST_DENSE:
        return found
    return Fitted(*likely_priors(pairs[sample], prior, raters.heard), raters.heard, raters)


def updated(raters: Raters, pairs: np.ndarray, posterior: Posterior) -> Raters:
    """Return the raters' likeliest parameters under the scores' posterior, by Newton's method."""
    first, second, label = pairs.T
    mean = (posterior.scores[first] - posterior.scores[second])[:, None]
    place = mean + np.sqrt(posterior.variances(first, second))[:, None] * POINTS  # (P, Q)
    share, sign = WEIGHTS / WEIGHTS.sum(), np.array([1.0, -1.0, 0.0])[label][:, None]
    factor, lean, count = raters.factor.copy(), raters.lean.copy(), len(raters.names)

    def summed(values: np.ndarray) -> np.ndarray:
        return np.bincount(raters.of, values @ share, count)

    for _ in range(STEPS):
        seen = factor[raters.of][:, None] * place + lean[raters.of][:, None]
        chances = softmax(logits(seen.ravel(), posterior.tie), axis=1).reshape(*seen.shape, 3)
        tilt = chances[..., FIRST] - chances[..., SECOND]
        slope, curvature = (sign - tilt) / 2, (1 - chances[..., SIMILAR] - np.square(tilt)) / 4
        held = (factor - DISCRIMINATION) / SPREAD**2, lean / LEAN**2  # by the prior
        up = np.stack([summed(slope * place) - held[0], summed(slope) - held[1]], 1)
        across = summed(curvature * place)
        square = summed(curvature * np.square(place)) + 1 / SPREAD**2, summed(curvature) + 1 / LEAN**2
        system = np.stack([np.stack([square[0], across], 1), np.stack([across, square[1]], 1)], 1)
        step = np.linalg.solve(system, up[..., None])[..., 0]
        factor, lean = (factor + step[:, 0]).clip(LEAST, MOST), lean + step[:, 1]
    return Raters(raters.names, raters.of, factor, lean)


def ranked(answers: np.ndarray, found: Fitted) -> tuple[Posterior, list[str]]:
    """Return the posterior to report given answers (P, 3), and why its errors are not calibrated, if they are not."""
    said = f"over {MOST_DENSE:,} images: scores and intervals are Laplace's approximation, by sparse matrices"
    if len(found.priors[0].mean) <= MOST_DENSE:
        try:
            return averaged(answers, found.priors, found.beforehand, found.heard), []
        except ArithmeticError as error:
            said = f"{error}; scores and intervals are Laplace's approximation, and intervals may be too narrow"
    return found.posterior(answers), [said]


def by_votes(given: ImagesInput) -> dict[str, Plain]:
    """Return a ranking by images' scores, standard errors and votes, in centred logits, and a next pair to vote on."""
    votes = [(one, other, ("First", "Second", "Similar").index(said)) for one, other, said in given.votes]
    answers = np.array(votes, np.int64).reshape(-1, 3)
    found = fitted(answers, Prior(np.array(given.scores), np.array(given.errors)))
    posterior, notes = ranked(answers, found)
    middle = posterior.scores - posterior.scores.mean()
    ends = with_ends(torch.from_numpy(middle), torch.from_numpy(posterior.errors))
    rows: list[Plain] = [{"image": int(i), **ends[i]} for i in np.argsort(-middle, kind="stable")]
    pairs = next_pairs(found.posterior(answers), 1, answers, seed=len(answers))
    return {"ranking": rows, "next": pairs[0].tolist() if len(pairs) else None, **({"notes": notes} if notes else {})}
