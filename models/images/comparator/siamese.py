"""The siamese comparators: a convolutional encoder, or a frozen vision tower, and an antisymmetric head."""

import dataclasses

import torch
from torch import Tensor, nn
from torch.nn import functional

from common import noise
from models.images.comparator.config import ComparatorConfig
from models.images.comparator.interface import Comparator, pixels
from models.images.vision_tower import Tower, layers_of, leave_out


class Siamese(Comparator):
    """A convolutional encoder with an antisymmetric head.

    Each encoding is projected twice, as the first and as the second image of a pair, and the projections meet in sums:
    FIRST for (a, b) takes the same additions as SECOND for (b, a), so swapping the images swaps the answer bit for bit.
    Group norm instead of batch norm keeps an image's encoding independent of the rest of the batch.
    """

    family = "comparator"
    config: ComparatorConfig

    def __init__(self, config: ComparatorConfig, encoder: nn.Module | None = None):
        super().__init__(config)
        width = config.width
        self.encoder = encoder or image_encoder(config)
        self.as_first = nn.Linear(width, width)
        self.as_second = nn.Linear(width, width, bias=False)
        self.higher = nn.Parameter(torch.randn(width) * width**-0.5)
        self.similar = nn.Parameter(torch.randn(width) * width**-0.5)
        self.similar_bias = nn.Parameter(torch.zeros(()))

    def encode(self, images: Tensor) -> Tensor:
        """Return encodings (U, D) of images (U, C, S, S)."""
        encoded: Tensor = self.encoder(pixels(images))
        return encoded

    def compare_encoded(self, encoded: Tensor, first: Tensor, second: Tensor) -> Tensor:
        """Return logits (P, 3), by ReLU, sums and products of single rows only.

        A matrix product over pairs could round a row differently depending on its place in the batch.
        """
        one, other = self.as_first(encoded), self.as_second(encoded)
        forwards, backwards = functional.relu(one[first] + other[second]), functional.relu(one[second] + other[first])
        similar = ((forwards + backwards) * self.similar).sum(-1) + self.similar_bias
        return torch.stack([(forwards * self.higher).sum(-1), (backwards * self.higher).sum(-1), similar], -1)


class TowerSiamese(Siamese):
    """A siamese over a base's frozen vision tower, of whose features it encodes the mean and the deviation."""

    frozen = True

    def __init__(self, config: ComparatorConfig):
        tower = Tower(config.base, config.revision)
        mapped = nn.Linear(2 * tower.channels, config.width)
        encoder = nn.Sequential(nn.LayerNorm(2 * tower.channels), nn.Dropout(0.3), mapped, nn.ReLU())
        super().__init__(dataclasses.replace(config, revision=tower.revision), encoder)
        self.tower = tower
        self._no_split_modules = layers_of(tower.network)
        leave_out(self, "tower")

    def forward(
        self,
        images: Tensor | None,
        first: Tensor,
        second: Tensor,
        encoded: Tensor | None = None,
        numbers: Tensor | None = None,
        with_encodings: bool = False,
    ) -> Tensor | tuple[Tensor, Tensor]:
        """Return logits as any comparator does; the encoder's dropout acts on moments that were computed before too."""
        with noise.rows(numbers):
            return super().forward(images, first, second, encoded, numbers, with_encodings)

    def encode(self, images: Tensor) -> Tensor:
        """Return moments (U, 2 V) of the features of images (U, C, S, S)."""
        features = self.tower(pixels(images)).float()
        return torch.cat([features.mean(1), features.var(1, unbiased=False).sqrt()], 1)

    def compare_encoded(self, encoded: Tensor, first: Tensor, second: Tensor) -> Tensor:
        """Return logits (P, 3) from moments (U, 2 V)."""
        return super().compare_encoded(self.encoder(encoded), first, second)


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
    (Mittal et al. 2012 judge quality by the latter). Convolutions follow; the encoding is made of the mean and the
    deviation of their responses over all places.
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
    """Return convolutions that halve the sides and double the channels, and the number of channels that come out."""
    modules: list[nn.Module] = []
    for layer in range(layers):
        out = max(4, width * 2**layer // 4 // 4 * 4)
        modules += [nn.Conv2d(channels, out, 4, stride=2, padding=1), nn.GroupNorm(4, out), nn.ReLU()]
        channels = out
    return modules, channels
