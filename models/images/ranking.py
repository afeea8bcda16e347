"""Scores from comparisons by Davidson's model (1970), Bradley and Terry's with ties, for soft three-way answers.

    P(first), P(second), P(similar)  ∝  exp(a d / 2), exp(-a d / 2), exp(tie)      d = s_first - s_second

References are images of known score, which stays fixed. Discrimination `a` and `tie` are fitted to comparisons among
the references; then each further image gets the score that best explains its comparisons with some of them, tempered by
`models.images.reliability`.

    N images   R references   P pairs   float64, whatever type the comparator computes in
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from models.images import reliability
from models.images.reliability import Reliability

FIRST, SECOND, SIMILAR = 0, 1, 2  # the image that ranks higher; the order of logits and labels everywhere
SWAPPED = (SECOND, FIRST, SIMILAR)  # the same answers when the images come in the other order

START = 8  # references, spread over the scores, that every image is compared with first
MORE = 4  # references per round after that
TOLERANCE = 0.25  # standard error, as a share of the difference that counts, at which an image needs no more references
FLATNESS = 1e-4  # 1 / variance of the prior on the fitted discrimination and tie, for scores of unit spread
ITERATIONS = 100  # of Newton's method; about ten are enough


@dataclass(frozen=True)
class Scale:
    """The fit that turns answers into scores."""

    davidson: "Davidson"
    prior: Tensor  # (Q,) quantiles of the scores that images have
    reliability: Reliability

    def scores(self, estimates: Tensor, information: Tensor) -> tuple[Tensor, Tensor]:
        """Return scores (N,) and standard errors (N,) for the estimates (N,) and information (N,) of `placed`."""
        return self.reliability.scores(self.prior, estimates, information)


@dataclass(frozen=True)
class References:
    """Images of known score, with which a comparator compares others.

    `log_odds` maps two tensors (P,) int64 of image numbers to the comparator's logits (P, 3). Raises ValueError for
    references without two different finite scores, and for a budget below 2.
    """

    log_odds: Callable[[Tensor, Tensor], Tensor]
    numbers: Tensor  # (R,) int64
    scores: Tensor  # (R,)
    theta: float  # scores at most this far apart count as similar
    budget: int  # comparisons of an image, each in both orders, at most

    def __post_init__(self) -> None:
        known = self.scores.detach().to("cpu", torch.float64)
        if len(known) != len(self.numbers) or not known.isfinite().all() or len(known.unique()) < 2:
            raise ValueError(f"references need finite scores, at least two different ones; given {known[:8].tolist()}")
        if self.budget < 2:
            raise ValueError(f"an image needs a budget of 2 references or more to be placed; given {self.budget}")
        object.__setattr__(self, "scores", known)
        object.__setattr__(self, "numbers", self.numbers.detach().cpu())

    def answer(self, first: Tensor, second: Tensor) -> Tensor:
        """Return probabilities (P, 3) of the answers, averaged over the two orders of the images."""
        logits = self.log_odds(torch.cat([first, second]), torch.cat([second, first]))
        given, swapped = logits.cpu().double().softmax(dim=1).chunk(2)
        return (given + swapped[:, SWAPPED]) / 2

    def placed(self, davidson: "Davidson", images: Tensor) -> tuple[Tensor, Tensor]:
        """Return scores (N,) and Fisher information (N,) of images (N,), none compared with itself.

        References spread over the scores come first, then the most informative at the estimate (Lord 1980).
        """
        free = images[:, None] != self.numbers  # (N, R) comparisons that can still be made
        compared = torch.zeros_like(free)
        wins = torch.zeros(free.shape, dtype=torch.float64)
        found, information = most_likely(davidson, self.scores, wins, compared)
        spread = torch.linspace(0, len(self.scores) - 1, min(START, self.budget, len(self.scores))).round().long()
        asked = torch.zeros_like(free)
        asked[:, self.scores.argsort(stable=True)[spread]] = True
        asked &= free
        enough = (self.theta if self.theta > 0 else float(self.scores.unique().diff().min())) * TOLERANCE
        while asked.any():
            image, reference = asked.nonzero(as_tuple=True)
            answers = self.answer(images[image], self.numbers[reference])
            wins[image, reference] = answers[:, FIRST] - answers[:, SECOND]
            compared |= asked
            free &= ~asked
            found, information = most_likely(davidson, self.scores, wins, compared)
            left = (self.budget - compared.sum(1)).clamp(max=MORE)
            left[information.rsqrt() <= enough] = 0
            _, variance = _moments(davidson, found[:, None] - self.scores)
            best = torch.where(free, variance, -1.0).argsort(dim=1, descending=True, stable=True)
            place = torch.empty_like(best).scatter_(1, best, torch.arange(best.shape[1]).expand_as(best))
            asked = free & (place < left[:, None])
        return found, information


def fit_scale(references: References, *, seed: int, prior: Tensor | None = None) -> Scale:
    """Fit the scale by comparing the references with each other.

    `seed` samples the comparisons where they exceed the budget. `prior` (Q,) are quantiles of the scores of images;
    None: of the references. Reliability is measured on references that are each left out and placed like an image. On
    images that the comparator was trained on that is too optimistic: measure it on others (`Comparator.rely`).
    """
    numbers, known = references.numbers, references.scores
    first, second = torch.triu_indices(len(numbers), len(numbers), 1)
    if len(first) > (most := len(numbers) * references.budget):
        drawn = torch.randperm(len(first), generator=torch.Generator().manual_seed(seed))[:most]
        first, second = first[drawn], second[drawn]
    davidson = fit(references.answer(numbers[first], numbers[second]), known[first] - known[second])
    left_out = references.placed(davidson, numbers)
    own = reliability.quantiles(known)
    given = None if prior is None or torch.equal(prior, own) else prior
    return Scale(davidson, own if given is None else given, reliability.fit(given, *left_out, known))


@dataclass(frozen=True)
class Davidson:
    """The fitted model of answers."""

    discrimination: float  # a, per unit of score; negative if the comparator has learned the reverse
    tie: float  # the logit of `similar`

    def probabilities(self, differences: Tensor) -> Tensor:
        """Map differences of scores (...) to probabilities (..., 3)."""
        half = self.discrimination / 2 * differences
        return torch.stack([half, -half, torch.full_like(half, self.tie)], dim=-1).softmax(dim=-1)


def fit(answers: Tensor, differences: Tensor) -> Davidson:
    """Return the most likely discrimination and tie for answers (P, 3) about pairs of known difference (P,)."""
    spread = differences.square().mean().sqrt().clamp_min(1e-300)  # all are 0 for a model that tells nothing apart
    half, zero = differences / spread / 2, torch.zeros_like(differences)
    rows = torch.stack([half, -half, zero], dim=1), torch.stack([zero, zero, zero + 1], dim=1)
    parameters = likeliest(answers, torch.stack(rows, dim=1))
    return Davidson(float(parameters[0] / spread), float(parameters[1]))


def likeliest(answers: Tensor, design: Tensor, positive: int = 0, flatness: float | Tensor = FLATNESS) -> Tensor:
    """Return the likeliest parameters (A,) given answers (P, 3), with logits linear in them by a design (P, A, 3).

    The first `positive` of them are at least 0. `flatness`, of all or of each (A,), is their prior's precision.
    """
    from scipy.optimize import minimize  # not needed for inference

    def surprise(values: np.ndarray) -> tuple[float, np.ndarray]:
        parameters = torch.from_numpy(values)
        nats = torch.einsum("a,pak->pk", parameters, design).log_softmax(dim=1)
        loss = -(answers * nats).sum() + (flatness * parameters.square()).sum() / 2
        slope = torch.einsum("pk,pak->a", nats.exp() - answers, design) + flatness * parameters
        return float(loss), slope.numpy()

    count = design.shape[1]
    bounds = [(0.0 if i < positive else None, None) for i in range(count)]
    settings = {"maxiter": 1000, "ftol": 1e-15, "gtol": 1e-8 * len(answers)}
    found = minimize(surprise, np.zeros(count), jac=True, bounds=bounds, method="L-BFGS-B", options=settings)
    return torch.from_numpy(found.x)


def most_likely(davidson: Davidson, known: Tensor, wins: Tensor, compared: Tensor) -> tuple[Tensor, Tensor]:
    """Return the most likely scores (N,) of images compared with some of R references, and their Fisher information.

    `wins` (N, R) is P(image) - P(reference) of each answer; `compared` (N, R) marks the comparisons that were made.
    A weak normal prior, as wide as the references' whole range, keeps the score of an image that beats them all finite.
    """
    centre, precision = known.mean().expand(len(wins)), (known.max() - known.min()) ** -2
    slope_unit = davidson.discrimination / 2
    # The slope is the prior's plus at most 2 |a| / 2 per reference, so the maximum lies within this reach.
    reach = 2 * abs(slope_unit) * compared.sum(1) / precision + 1e-9
    low, high = centre - reach, centre + reach
    found = centre.clone()
    enough = 1e-10 * precision.rsqrt()
    for _ in range(ITERATIONS):
        expected, variance = _moments(davidson, found[:, None] - known)
        slope = slope_unit * ((wins - expected) * compared).sum(1) + precision * (centre - found)
        information = slope_unit**2 * (variance * compared).sum(1) + precision
        low, high = torch.where(slope > 0, found, low), torch.where(slope < 0, found, high)
        better = found + slope / information
        # A Newton step leaves the bracket where the likelihood is nearly straight; halving always comes closer.
        better = torch.where((better < low) | (better > high), (low + high) / 2, better)
        moved, found = (better - found).abs(), better
        if (moved < enough).all():
            break
    _, variance = _moments(davidson, found[:, None] - known)
    return found, slope_unit**2 * (variance * compared).sum(1) + precision


def _moments(davidson: Davidson, differences: Tensor) -> tuple[Tensor, Tensor]:
    """Return mean and variance, both (...), of a variable that is 1 for first, -1 for second and 0 for similar."""
    half = davidson.discrimination / 2 * differences
    size = half.abs()
    # Three exponentials relative to the larger of the first two, which is faster than a softmax of three columns.
    less, similar = (-2 * size).exp(), (davidson.tie - size).exp()
    total = 1 + less + similar
    mean = half.sign() * (1 - less) / total
    return mean, (1 + less) / total - mean.square()
