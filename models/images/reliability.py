"""Scores as posterior means, from a prior over scores and the measured reliability of estimates.

An estimate x of an image's score s, made from comparisons, is taken to be

    x = offset + slope s + error        variance of the error = floor + dispersion / information

The four numbers are measured on images of known score that the comparator was not trained on. No number of answers
removes the `floor`, which the comparator gets wrong about an image; a `slope` near 0 means that x says nothing. The
prior of s is the scores of the training images. Score and standard error are the posterior's mean and standard
deviation (empirical Bayes: Robbins 1956).

    N, M images   Q quantiles of the prior   float64
"""

import math
from dataclasses import astuple, dataclass, replace

import torch
from torch import Tensor

from common.statistics import CONFIDENCE, Z95

QUANTILES = 256  # Q
SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)  # of the error's variance that may fall with information
FOLDS = 5  # an image's interval is judged by a fit to the other folds
# Least factor on standard errors: where most scores are found exactly, as those of few values are, intervals could
# shrink to nothing and still hold for 95 %, at the cost of the images that are in doubt.
NARROWEST = 0.8
FINEST = 1e-3  # least standard error, as a share of the spread of the known scores


def quantiles(scores: Tensor) -> Tensor:
    """Return the prior (Q,), quantiles of known scores (M,), interpolated where most differ, else scores that occur."""
    shares = (torch.arange(QUANTILES, dtype=torch.float64) + 0.5) / QUANTILES
    ordered = scores.detach().to("cpu", torch.float64).sort().values
    if 2 * ordered.unique().numel() > len(ordered):
        place = shares * (len(ordered) - 1)
        return ordered[place.floor().long()].lerp(ordered[place.ceil().long()], place.frac())
    return ordered[(shares * len(ordered)).long()]


def with_ends(scores: Tensor, errors: Tensor) -> list[dict[str, float]]:
    """Return scores (N,) with the ends of their 95 % intervals, by their standard errors (N,)."""
    both = zip(scores.tolist(), (Z95 * errors).tolist(), strict=True)
    return [{"score": score, "low": score - reach, "high": score + reach} for score, reach in both]


@dataclass(frozen=True)
class Reliability:
    """The model of estimates."""

    offset: float
    slope: float
    floor: float
    dispersion: float
    factor: float = 1.0  # on standard errors, so that 95 % intervals hold for 95 % of images

    def scores(self, prior: Tensor, estimates: Tensor, information: Tensor) -> tuple[Tensor, Tensor]:
        """Return scores (N,) and standard errors (N,) for estimates (N,) with their Fisher information (N,).

        Each quantile of the prior (Q,) stands for a normal distribution as wide as the gap to the nearer of its
        neighbours: none where a score occurs repeatedly, so that scores of few values stay on these values.
        """
        parts = zip(estimates.split(1024), information.split(1024), strict=True)
        found = [self._posterior(prior, *part) for part in parts]
        mean, variance = (torch.cat(each) for each in zip(*found, strict=True)) if found else (estimates, estimates)
        return mean, self.factor * variance.sqrt().clamp_min(FINEST * max(float(prior.std()), 1e-9))

    def _posterior(self, prior: Tensor, estimates: Tensor, information: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean (N,) and variance (N,) of the mixture of Q normal distributions."""
        gaps = torch.cat([prior[1:2] - prior[:1], prior.diff(), prior[-1:] - prior[-2:-1]])
        square = torch.minimum(gaps[1:], gaps[:-1]).square()  # (Q,) variances of the prior's parts
        noise = self.floor + self.dispersion / information[:, None]
        total = noise + self.slope**2 * square  # (N, Q)
        residual = estimates[:, None] - self.offset - self.slope * prior
        weights = (-(residual.square() / total + total.log()) / 2).softmax(dim=1)
        means = prior + (self.slope * square / total) * residual
        mean = (weights * means).sum(1)
        spread = square * (noise / total) + (means - mean[:, None]).square()
        return mean, (weights * spread).sum(1)


def fit(
    prior: Tensor | None, estimates: Tensor, information: Tensor, known: Tensor, groups: Tensor | None = None
) -> Reliability:
    """Measure reliability on images (M,) of known score, and the factor on standard errors.

    The interval of each image comes from a fit to the other folds. A prior of None is made of their known scores, too,
    since an image's own score in it would narrow its interval. Images of one of the `groups` (M,), numbers from 0, are
    in one fold: errors that they share are new in a further group.
    """
    # Without groups, each fold has all kinds of scores.
    fold = (known.argsort(stable=True).argsort() if groups is None else groups) % FOLDS
    mean, error = torch.empty_like(known), torch.empty_like(known)
    for each in fold.unique():
        inside = fold == each
        rest = ~inside if int((~inside).sum()) > 2 else torch.ones_like(inside)
        others = quantiles(known[rest]) if prior is None else prior
        regression = _likeliest(others, estimates[rest], information[rest], known[rest])
        mean[inside], error[inside] = regression.scores(others, estimates[inside], information[inside])
    factor = max(NARROWEST, calibrated(error, mean, known))
    whole = quantiles(known) if prior is None else prior
    return replace(_likeliest(whole, estimates, information, known), factor=factor)


def calibrated(standard_errors: Tensor, estimates: Tensor, known: Tensor) -> float:
    """Return the factor on standard errors (M,) that makes 95 % intervals hold for 95 % of images of known score.

    The interval of a further image then holds with that probability (split conformal prediction: Lei et al. 2018). A
    root mean square would be dominated by the few images that are mistaken for something else.
    """
    distances = ((estimates - known).abs() / standard_errors).sort().values
    return float(distances[min(math.ceil(CONFIDENCE * (len(distances) + 1)), len(distances)) - 1]) / Z95


def _likeliest(prior: Tensor, estimates: Tensor, information: Tensor, known: Tensor) -> Reliability:
    """Return the regression under which the known scores (M,) are likeliest, the mean of SHARES by likelihood.

    The best share alone would change in a leap where rounding decides between two.
    """
    tried = [_regression(share, estimates, information, known) for share in SHARES]
    found = [each.scores(prior, estimates, information) for each in tried]
    likelihoods = [-(((known - mean) / error).square() / 2 + error.log()).sum() for mean, error in found]
    numbers = torch.tensor([astuple(each)[:4] for each in tried], dtype=torch.float64)
    return Reliability(*(torch.stack(likelihoods).softmax(0) @ numbers).tolist())


def _regression(share: float, estimates: Tensor, information: Tensor, known: Tensor) -> Reliability:
    """Return the regression of estimates (M,) on known scores (M,) if a share of variance falls with information.

    The slope is drawn towards 0 by as much as chance alone would make of it (James and Stein 1961, the positive part),
    so that the scores of a comparator which knows nothing are the prior's mean.
    """
    smooth = float((1 / information).mean())
    weights = 1 / ((1 - share) * smooth + share / information)  # (M,)
    x, s = ((weights * each).sum() / weights.sum() for each in (estimates, known))
    variation = (weights * (known - s).square()).sum().clamp_min(1e-300)
    slope = (weights * (known - s) * (estimates - x)).sum() / variation
    squares = (weights * (estimates - x - slope * (known - s)).square()).sum()
    least = (FINEST * max(float(known.std(correction=0)), 1e-9)) ** 2
    scale = (squares / max(1, len(known) - 2)).clamp_min(least / smooth)
    kept = float(slope * (1 - scale / variation / slope.square().clamp_min(1e-300)).clamp_min(0))
    return Reliability(float(x) - kept * float(s), kept, float(scale) * (1 - share) * smooth, float(scale) * share)
