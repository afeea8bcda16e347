"""Scores in one pass: a vision-language model rates an image in words, from Bad to Excellent (Wu et al. 2024, Q-Align).

It learns, by Kullback-Leibler divergence, the distribution over the five levels implied by an image's score and
standard error (You et al. 2025, DeQA-Score). The levels are spread evenly over the training scores; a value between two
of them is split so that the mean is kept. Places count levels: 0 is Bad, 4 is Excellent.
"""

import math

import torch
from torch import Tensor
from torch.nn import functional

from common import noise
from common.plain import Plain
from models.images import ranking
from models.images.reliability import Reliability
from models.images.vlm_comparator.config import ANSWERS, BOTH, LEVELS
from models.images.vlm_comparator.model import VlmComparator
from models.images.vlm_comparator.prompt_tokens import Prompt

WORDS = ANSWERS[LEVELS]
TOP = len(WORDS) - 1
LEAST_ERROR, LEAST_VARIANCE = 1e-6, 1e-4  # in levels


def distribution(places: Tensor, errors: Tensor) -> Tensor:
    """Return probabilities (U, 5) of the levels for places (U,) that are known up to normal errors (U,)."""
    errors = errors.double().clamp_min(LEAST_ERROR)[:, None]
    above = places.double()[:, None] - torch.arange(TOP + 1.0, dtype=torch.float64, device=places.device)
    z = above / errors
    density = (-z.square() / 2).exp() / math.sqrt(2 * math.pi)
    ramps = errors * density + above * torch.special.ndtr(z)  # expected excess over each level
    passed = (ramps[:, :-1] - ramps[:, 1:]).clamp(0, 1)  # share of the way from each level to the next
    return torch.cat([torch.ones_like(errors), passed], 1) - functional.pad(passed, (0, 1))


def moments(logits: Tensor) -> tuple[Tensor, Tensor]:
    """Return mean and variance (U,), in levels, of logits (U, 5)."""
    shares = logits.softmax(-1)
    levels = torch.arange(len(WORDS), dtype=shares.dtype, device=shares.device)
    mean = (shares * levels).sum(-1)
    return mean, (shares * (levels - mean[:, None]).square()).sum(-1)


class LevelComparator(VlmComparator):
    """Comparator that asks for the level of one image; with BOTH, it is also asked about pairs.

    With LEVELS, answers to pairs follow from two scores by Davidson's model, which is fitted to unseen images.
    """

    level: Prompt

    @property
    def span(self) -> tuple[Tensor, Tensor]:
        """The score of Bad, and the step from level to level, on the user's scale."""
        low, step = self.prior.min(), (self.prior.max() - self.prior.min()) / TOP
        return low, torch.where(step > 0, step, 1.0)

    def answered(
        self, encoded: Tensor, first: Tensor, second: Tensor, numbers: Tensor | None, beside: bool
    ) -> tuple[Tensor, Tensor]:
        """Return logits (P, 3) and, if `beside`, those of the levels (U, 5)."""
        if (both := self.config.question == BOTH) and not beside:
            return super().answered(encoded, first, second, numbers, beside)
        with noise.rows(numbers):  # of the images
            levels = self.levels(encoded)
        return self.compare_encoded(encoded, first, second) if both else self._answers(levels, first, second), levels

    def levels(self, encoded: Tensor) -> Tensor:
        """Return logits (U, 5) of the levels from encodings (U, ..., V), one pass an image."""

        def ask(part: slice) -> Tensor:
            return self.ask(self.level, slice(0, None), self.project(encoded[part]), use_cache=False)[0]

        return ask(slice(0, None)) if torch.is_grad_enabled() else self.in_parts(ask, len(encoded))

    def compare_encoded(self, encoded: Tensor, first: Tensor, second: Tensor) -> Tensor:
        """Return logits (P, 3), by the question about both images or from the levels of each."""
        if self.config.question == BOTH:
            return super().compare_encoded(encoded, first, second)
        return self._answers(self.levels(encoded), first, second)

    def _answers(self, levels: Tensor, first: Tensor, second: Tensor) -> Tensor:
        """Return logits (P, 3) from the levels' means by Davidson's model, without gradients."""
        _, step = self.span
        places = moments(levels.detach().float())[0]
        discrimination, tie = self.fitted[:2].to(places.dtype)
        each = torch.where(discrimination == 0, 1.0, discrimination * step.to(places.dtype))
        half = each / 2 * (places[first] - places[second])
        return torch.stack([half, -half, tie.expand_as(half)], -1)

    def goals(self, scores: Tensor, errors: Tensor | None) -> Tensor:
        """Return the distributions (N, 5) to learn for scores (N,), with standard errors (N,) where they are known."""
        low, step = (each.cpu() for each in self.span)
        places = ((scores - low) / step).clamp(0, TOP)
        return distribution(places, torch.zeros_like(places) if errors is None else errors / step).float()

    def score_loss(self, levels: Tensor, goals: Tensor) -> Tensor:
        """Return the divergence (U,) of logits (U, 5) from distributions (U, 5)."""
        return functional.kl_div(levels.float().log_softmax(-1), goals, reduction="none").sum(-1)

    def estimates(self, encoded: Tensor) -> tuple[Tensor, Tensor]:
        """Return scores (U,) on the user's scale and their information (U,) of encodings (U, ..., V)."""
        low, step = (each.cpu() for each in self.span)
        mean, variance = moments(self.levels(encoded).double().cpu())
        return low + step * mean, (variance.clamp_min(LEAST_VARIANCE) * step.square()).reciprocal()

    def fit_scale(self, budget: int = 32, seed: int = 0) -> None:
        """Use the levels as the scale, until `rely` fits it to unseen images."""
        each = ranking.Davidson(float(1 / self.span[1]), 0.0)
        self._keep(ranking.Scale(each, self.prior.cpu(), Reliability(0.0, 1.0, 0.0, 1.0)))

    def weigh(self, encoded: Tensor, estimates: Tensor, information: Tensor, known: Tensor) -> None:
        """Fit Davidson's model to all pairs of images (M,) of known score."""
        first, second = torch.triu_indices(len(known), len(known), 1)
        apart = known[first] - known[second]
        similar = apart.abs() <= (self.config.theta + 0.5) * self.config.unit
        label = torch.where(similar, ranking.SIMILAR, torch.where(apart > 0, ranking.FIRST, ranking.SECOND))
        davidson = ranking.fit(functional.one_hot(label, 3).double(), estimates[first] - estimates[second])
        self.fitted[:2] = torch.tensor([davidson.discrimination, davidson.tie], dtype=self.fitted.dtype)

    def describe(self) -> dict[str, Plain]:
        """Add the words, scores, prompt and token ids by which to ask for levels without this package."""
        low, step = map(float, self.span)
        scores: dict[str, Plain] = {"scores": [low + step * place for place in range(len(WORDS))]}
        asked = {"prompt": self.level.alone, "label_ids": self.level.answers.tolist()}
        return {**super().describe(), "levels": {"words": list(WORDS), **scores, **asked}}
