"""The scorer: a network that sees one image and predicts its score, with a standard error."""

import math

import torch
from torch import Tensor, nn

from models.images import ranking
from models.images.comparator.config import ComparatorConfig
from models.images.comparator.interface import Comparator, pixels
from models.images.comparator.siamese import image_encoder
from models.images.reliability import Reliability

LEAST_LOG_ERROR, MOST_LOG_ERROR = -6.0, 3.0  # of standard errors, in standard deviations of the training scores
SHARE_OF_VARIANCE = 0.5  # beta of Seitzer et al. (2022)


class Scorer(Comparator):
    """A convolutional encoder that predicts an image's score, and answers pairs from two scores by Davidson's model.

    Encodings are (U, 2): the score, in standard deviations of the training scores from their mean, and the logarithm of
    its standard error. With a `trunk`, its network is shared: for A attributes encodings are (U, 2 A), and each scorer
    reads the two columns at its `place`.
    """

    family = "comparator"
    config: ComparatorConfig

    def __init__(self, config: ComparatorConfig, trunk: "Scorer | None" = None, place: int = 0, attributes: int = 1):
        super().__init__(config)
        self.encoder: nn.Module = trunk.encoder if trunk else image_encoder(config)
        self.head: nn.Linear = trunk.head if trunk else nn.Linear(config.width, 2 * attributes)
        self.place = place
        self.log_discrimination = nn.Parameter(torch.zeros(()))
        self.tie = nn.Parameter(torch.zeros(()))

    def encode(self, images: Tensor) -> Tensor:
        """Return scores and the logarithms of their standard errors (U, 2 A) of images (U, C, S, S)."""
        mean, log_error = self.head(self.encoder(pixels(images))).unflatten(1, (-1, 2)).unbind(2)
        return torch.stack([mean, log_error.clamp(LEAST_LOG_ERROR, MOST_LOG_ERROR)], 2).flatten(1)

    def own(self, encoded: Tensor) -> tuple[Tensor, Tensor]:
        """Return this attribute's scores and log errors, (U,) each, from encodings (U, 2 A)."""
        return encoded[:, 2 * self.place], encoded[:, 2 * self.place + 1]

    def compare_encoded(self, encoded: Tensor, first: Tensor, second: Tensor) -> Tensor:
        """Return logits (P, 3) by Davidson's model of the two scores."""
        mean, _ = self.own(encoded)
        half = self.log_discrimination.exp() / 2 * (mean[first] - mean[second])
        return torch.stack([half, -half, self.tie.expand_as(half)], -1)

    def goals(self, scores: Tensor, errors: Tensor | None) -> Tensor:
        """Return training targets (N,): scores (N,) on the user's scale, standardised; errors are not used."""
        centre, spread = self.standard
        return (scores - centre).float() / spread

    def score_loss(self, encoded: Tensor, known: Tensor) -> Tensor:
        """Return the loss (U,) of encodings (U, 2 A) for known scores (U,), standardised as encodings are.

        A normal distribution's negative log-likelihood, weighted by a power of its variance so that images that are
        hard at first keep their gradient (Seitzer et al. 2022).
        """
        mean, log_error = self.own(encoded.float())
        nats = (known - mean).square() * (-2 * log_error).exp() / 2 + log_error
        return nats * (2 * SHARE_OF_VARIANCE * log_error.detach()).exp()

    def estimates(self, encoded: Tensor) -> tuple[Tensor, Tensor]:
        """Return scores (U,) on the user's scale and their information (U,) from encodings (U, 2 A)."""
        centre, spread = self.standard
        mean, log_error = self.own(encoded.double().cpu())
        return centre + spread * mean, (-2 * log_error).exp() / spread**2

    @property
    def standard(self) -> tuple[float, float]:
        """Mean and standard deviation of the training scores, on the user's scale; (0, 1) where they are not known."""
        spread = float(self.prior.std())
        return (float(self.prior.mean()), spread) if spread > 0 else (0.0, 1.0)

    def fit_scale(self, budget: int = 32, seed: int = 0) -> None:
        """Store the learned scale: there are no references to compare."""
        discrimination = math.exp(float(self.log_discrimination.detach())) / self.standard[1]
        learned = ranking.Davidson(discrimination, float(self.tie.detach()))
        self._keep(ranking.Scale(learned, self.prior.cpu(), Reliability(0.0, 1.0, 0.0, 1.0)))
