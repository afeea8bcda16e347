"""The siamese comparators: a convolutional encoder, or a frozen vision tower, and an antisymmetric head."""

import dataclasses
import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from models.images import ranking, reliability
from models.images.comparator.config import ComparatorConfig
from models.images.comparator.interface import Comparator, pixels
from models.images.regressions import Regressions
from models.images.texture import FEATURES, SIDE, coarse, texture
from models.images.vision_tower import Tower, layers_of, leave_out

REDUCED = 16  # channels of a cell, with weights of its own for each place
DROPPED = 0.3  # of a tower's features in training
SHARPNESSES = (4.0, 16.0)  # factors on the regressions' levels before the softmax
LEAST = 1e-4  # least probability of an answer by levels, and factor on logits of a network alone
DOUBTS = 2.0  # pseudo-pairs, answered at random, added to those that weights are fitted to
SHARES = [tenth / 10 for tenth in range(11)]  # tried weights of the regressions in scores


class Siamese(Comparator):
    """A convolutional encoder with an antisymmetric head.

    Each encoding is projected twice, as the first and as the second image of a pair, and the projections meet in sums:
    FIRST for (a, b) takes the same additions as SECOND for (b, a), so swapping the images swaps the answer bit for bit.
    Group norm instead of batch norm keeps an image's encoding independent of the rest of the batch. A `trunk` shares
    its encoder.
    """

    family = "comparator"
    config: ComparatorConfig
    share: Tensor
    encoder: nn.Module

    def __init__(
        self, config: ComparatorConfig, trunk: "Siamese | None" = None, encoder: nn.Module | None = None, parts: int = 3
    ):
        super().__init__(config)
        width = config.width
        self.encoder = trunk.encoder if trunk else encoder or image_encoder(config)
        self.as_first = nn.Linear(width, width)
        self.as_second = nn.Linear(width, width, bias=False)
        self.higher = nn.Parameter(torch.randn(width) * width**-0.5)
        self.similar = nn.Parameter(torch.randn(width) * width**-0.5)
        self.similar_bias = nn.Parameter(torch.zeros(()))
        # The weight of regressions in scores; then those of `terms` in logits, the network's less 1.
        self.register_buffer("share", torch.zeros(parts, dtype=torch.float64))

    def renewed(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        """Add the shares, which older folders lack."""
        return {"share": torch.zeros_like(self.share), **tensors}

    def encode(self, images: Tensor) -> Tensor:
        """Return encodings (U, D) of images (U, C, S, S)."""
        encoded: Tensor = self.encoder(pixels(images))
        return encoded

    def compare_encoded(self, encoded: Tensor, first: Tensor, second: Tensor) -> Tensor:
        """Return logits (P, 3) from encodings (U, ...), in training from the network alone."""
        if self.training:
            return self.network(encoded, first, second)
        terms = self.terms(encoded, first, second)
        factors = torch.cat([1 + self.share[1:2], self.share[2:]]).to(terms[0].dtype).unbind()
        return torch.stack([factor * term for factor, term in zip(factors, terms, strict=True)]).sum(0)

    def terms(self, encoded: Tensor, first: Tensor, second: Tensor) -> list[Tensor]:
        """Return the summands of the logits, (P, 3) each: the network's logits, and a constant for Similar."""
        found = self.network(encoded, first, second)
        return [found, torch.zeros_like(found) + found.new_tensor([0, 0, 1])]

    def network(self, encoded: Tensor, first: Tensor, second: Tensor) -> Tensor:
        """Return logits (P, 3) by row-wise sums, since a matrix product would round a row by its place."""
        one, other = self.as_first(encoded), self.as_second(encoded)
        forwards, backwards = functional.relu(one[first] + other[second]), functional.relu(one[second] + other[first])
        similar = ((forwards + backwards) * self.similar).sum(-1) + self.similar_bias
        return torch.stack([(forwards * self.higher).sum(-1), (backwards * self.higher).sum(-1), similar], -1)

    @torch.no_grad()
    def weigh_answers(self, encoded: Tensor, pairs: Tensor) -> None:
        """Fit the weights of `terms` to labelled pairs (P, 3) of unseen images: two rows of `encoded`, and a label."""
        first, second, label = pairs.to(encoded.device).T
        design = torch.stack(self.terms(encoded, first, second), 1).double().cpu()  # (P, terms, 3)
        design[:, 1] /= (spread := design[:, 1].square().mean().sqrt().clamp_min(1e-9))
        # Levels may separate all pairs: a prior of deviation 1 bounds their weights, as if an image's pairs were one.
        flatness = torch.full(design.shape[1:2], ranking.FLATNESS, dtype=torch.float64)
        flatness[2:-1] = 2 * len(pairs) / len(pairs[:, :2].unique())
        flatness[-1] = 1.0 if len(flatness) == 2 else ranking.FLATNESS  # few ties say little without regressions
        # Few pairs that are all right would push weights to infinity: DOUBTS more count as answered at random.
        given, doubt = functional.one_hot(label.cpu(), 3).double(), DOUBTS / len(pairs)
        answers = (given + doubt * (given + given[:, ranking.SWAPPED]).mean(0) / 2) / (1 + doubt)
        weights = ranking.likeliest(answers, design, design.shape[1] - 1, flatness)
        self.share[1], self.share[2], self.share[3:] = weights[0] - 1, weights[1] / spread, weights[2:]
        self.share[1] += LEAST * (len(weights) == 2 and not weights[0])  # the order by the network alone is kept


class TowerSiamese(Siamese):
    """A siamese over a base's vision tower, frozen unless the config tunes it, with regressions on its features.

    Encodings (U, F) are the mean and the deviation of the features of all cells, those of each cell, the texture and a
    coarse picture. The regressions' scores take part in answers and scores, with weights fitted to validation images.
    """

    head_noise = True
    levels: Tensor
    tower: Tower

    def __init__(self, config: ComparatorConfig, trunk: "TowerSiamese | None" = None):
        tower = trunk.tower if trunk else Tower(config.base, config.revision, config.tune)
        self.rate_factors = {f"tower.{name}": rate for name, rate in tower.rates.items()}
        encoder = TowerEncoder(tower.cells, tower.channels, config.width)
        self.sharpnesses = SHARPNESSES if config.levels else ()
        known, parts = dataclasses.replace(config, revision=tower.revision), 4 + len(self.sharpnesses)
        super().__init__(known, trunk, encoder, parts)
        self.tower = tower
        self.frozen = self.fixed = not tower.rates
        self._no_split_modules = layers_of(tower.network)
        leave_out(self, "tower")
        plain = FEATURES, config.channels * (config.size // math.ceil(config.size / SIDE)) ** 2
        self.regressions = Regressions([*encoder.sizes, *plain], config.supports, 1 + config.levels)
        self.register_buffer("levels", torch.zeros(config.levels, dtype=torch.float64), persistent=config.levels > 0)

    def encode(self, images: Tensor) -> Tensor:
        """Return encodings (U, F) of images (U, C, S, S)."""
        shown = pixels(images)
        cells, levels = self.tower(shown).float(), 255 * shown.detach()  # (U, T, V)
        deviation = cells.var(1, unbiased=False).clamp_min(1e-12).sqrt()  # the root's slope at 0 is infinite
        return torch.cat([cells.mean(1), deviation, cells.flatten(1), texture(levels), coarse(levels)], 1)

    def terms(self, encoded: Tensor, first: Tensor, second: Tensor) -> list[Tensor]:
        """Return the summands of the logits, (P, 3) each: network, scores, levels, and a constant for Similar.

        Those of levels are the answers' log-probabilities if the two images' levels have the regressions' odds.
        """
        found = self.regressions(encoded)
        lead, zero = found[first, 0] - found[second, 0], torch.zeros_like(found[first, 0])
        whole, similar = super().terms(encoded, first, second)
        terms = [whole, torch.stack([lead, -lead, zero], -1)]
        near = (self.config.theta + 0.5) * self.config.unit  # halfway to the next difference that scores can have
        lower = (self.levels[:, None] < self.levels - near).to(found.dtype)  # (L, L)
        for sharpness in self.sharpnesses:
            likely = (sharpness * found[:, 1:]).softmax(1)
            below = likely @ lower  # (U, L): probability that an image is below a level
            one, other = ((likely[a] * below[b]).sum(-1) for a, b in ((first, second), (second, first)))
            terms.append(torch.stack([one, other, 1 - (one + other)], -1).clamp_min(LEAST).log())
        return [*terms, similar]

    def network(self, encoded: Tensor, first: Tensor, second: Tensor) -> Tensor:
        """Return the network's logits (P, 3) from encodings (U, F)."""
        return super().network(self.encoder(encoded), first, second)

    def targets(self, scores: Tensor) -> Tensor:
        """Return the regressions' targets (U, 1 + L): the scores (U,), and their levels as one-hot rows."""
        return torch.cat([scores[:, None], (scores[:, None] - self.levels.cpu()).abs() < self.config.unit / 2], 1)

    def joined(self, encoded: Tensor, estimates: Tensor) -> Tensor:
        """Return the weighted mean (U,) of estimates from comparisons (U,) and the regressions' scores."""
        return estimates.lerp(self.regressions(encoded)[:, 0].cpu().double(), float(self.share[0]))

    def weigh(self, encoded: Tensor, estimates: Tensor, information: Tensor, known: Tensor) -> None:
        """Choose the regressions' share in scores by the squared error on images (M,) of known score."""
        prior, other = self.prior.cpu(), self.regressions(encoded)[:, 0].cpu().double()

        def error(share: float) -> float:
            mixed = estimates.lerp(other, share)
            scores, _ = reliability.fit(prior, mixed, information, known).scores(prior, mixed, information)
            return float((scores - known).square().mean())

        self.share[0] = min(SHARES, key=error)


class TowerEncoder(nn.Sequential):
    """Maps a tower's moments and cells, the first columns of (U, F), to (U, D), with weights for each cell's place."""

    def __init__(self, cells: int, channels: int, width: int):
        super().__init__(nn.LayerNorm(2 * channels), nn.Dropout(DROPPED), nn.Linear(2 * channels, width), nn.ReLU())
        self.reduce = nn.Linear(channels, REDUCED, bias=False)
        self.placed = nn.Linear(cells * REDUCED, width, bias=False)
        self.sizes = 2 * channels, cells * channels

    def forward(self, features: Tensor) -> Tensor:
        """Return encodings (U, D)."""
        norm, dropout, mapped, bend = list(self)[:4]
        moments, cells, _ = features.tensor_split((self.sizes[0], sum(self.sizes)), 1)
        reduced = self.reduce(cells.unflatten(1, (-1, self.reduce.in_features)))
        encoded: Tensor = bend(mapped(dropout(norm(moments))) + self.placed(dropout(reduced.flatten(1))))
        return encoded


def image_encoder(config: ComparatorConfig) -> nn.Module:
    """Return an untrained network from images (U, C, S, S), from 0 to 1, to encodings (U, D)."""
    if config.texture:
        return Texture(config)
    convolutions, channels = _halving(config.channels, config.width, config.layers)
    side = config.size // 2**config.layers
    return nn.Sequential(*convolutions, nn.Flatten(), nn.Linear(channels * side**2, config.width), nn.ReLU())


class Texture(nn.Module):
    """Encoder of fine detail alone, which blur, noise and compression change in any picture.

    The input is each pixel's difference from its surroundings, both as it is and as a share of the local contrast
    (Mittal et al. 2012); the encoding is made of mean and deviation of convolutions' responses over all places.
    """

    def __init__(self, config: ComparatorConfig):
        super().__init__()
        convolutions, channels = _halving(2 * config.channels, 2 * config.width, config.layers)
        self.convolutions = nn.Sequential(*convolutions)
        self.out = nn.Sequential(
            nn.LayerNorm(2 * channels), nn.Dropout(0.3), nn.Linear(2 * channels, config.width), nn.ReLU()
        )

    def forward(self, images: Tensor) -> Tensor:
        """Return encodings (U, D) of images (U, C, S, S) with values from 0 to 1."""
        detail = images - functional.avg_pool2d(functional.pad(images, (1, 1, 1, 1), mode="replicate"), 3, 1)
        contrast = (functional.avg_pool2d(detail.square(), 7, 1, 3) + 1e-4).sqrt()
        # The factor 8 brings the difference to about the size of the share.
        responses = self.convolutions(torch.cat([8 * detail, detail / contrast], 1)).flatten(2)
        deviation = (responses.var(2, unbiased=False) + 1e-4).sqrt()
        encoded: Tensor = self.out(torch.cat([responses.mean(2), deviation], 1))
        return encoded


def _halving(channels: int, width: int, layers: int) -> tuple[list[nn.Module], int]:
    """Return convolutions that halve the sides and double the channels, and the number of output channels."""
    modules: list[nn.Module] = []
    for layer in range(layers):
        out = max(4, width * 2**layer // 4 // 4 * 4)
        modules += [nn.Conv2d(channels, out, 4, stride=2, padding=1), nn.GroupNorm(4, out), nn.ReLU()]
        channels = out
    return modules, channels
