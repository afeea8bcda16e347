"""The cross comparators: frozen features of each image's cells, and attention from one image's cells to the other's."""

import dataclasses
from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional

from common.random import derive_key
from models.images.comparator.config import ComparatorConfig
from models.images.comparator.interface import Comparator, pixels
from models.images.vision_tower import Tower, layers_of, leave_out

PATCH = 6  # pixels a side of a word of the dictionary


class ImagesByNumber(Protocol):
    """Images read by number: a tensor, or a file of them."""

    def __len__(self) -> int: ...

    def __getitem__(self, items: Tensor, /) -> Tensor:
        """Return images (b, C, S, S) uint8 for `items` (b,) int64."""


class Cross(Comparator):
    """Cross-attention over features of the cells of a grid, which the frozen encoder of a subclass makes.

    Nothing in the encoder trains, so each image is encoded once in a run. The head takes `features` numbers for each of
    `cells` cells and lets one image's cells attend to the other's.
    """

    family = "comparator"
    _no_split_modules: Sequence[str] = ("CrossBlock",)
    frozen = True
    config: ComparatorConfig

    def __init__(self, config: ComparatorConfig, features: int, cells: int):
        super().__init__(config)
        width = config.width
        self.embed = nn.Linear(features, width)
        self.positions = nn.Parameter(torch.randn(cells, width) * 0.02)
        self.blocks = nn.ModuleList(CrossBlock(width, config.heads) for _ in range(config.layers))
        self.norm = nn.LayerNorm(width)
        self.answer = nn.Linear(width, 3)

    def compare_encoded(self, encoded: Tensor, first: Tensor, second: Tensor) -> Tensor:
        """Return logits (P, 3) from the first image's cells after they have attended to the second's."""
        cells = self.embed(encoded.to(self.embed.weight.dtype)) + self.positions  # (U, T, D)
        x, other = cells[first], cells[second]
        for block in self.blocks:
            x = block(x, other)
        logits: Tensor = self.answer(self.norm(x.mean(1)))
        return logits


class DictionaryCross(Cross):
    """Cross-attention over a frozen dictionary of whitened patches (Coates and Ng 2011).

    The words are patches of training images, drawn at random and whitened. A patch of an image is described by how far
    its whitened pixels agree or disagree with each word beyond a threshold, averaged over the cells of a grid.
    """

    GRID, THRESHOLD, REGULARISER = 4, 0.5, 0.01

    mean: Tensor
    words: Tensor
    scale: Tensor

    def __init__(self, config: ComparatorConfig):
        super().__init__(config, 2 * config.words, self.GRID**2)
        length = config.channels * PATCH**2
        self.register_buffer("mean", torch.zeros(length))
        self.register_buffer("words", torch.zeros(config.words, length))  # with the whitening multiplied in
        self.register_buffer("scale", torch.ones(2 * config.words))  # of the encodings

    @torch.no_grad()
    def learn_dictionary(self, images: ImagesByNumber, seed: int) -> None:
        """Fill the frozen part from training images (N, C, S, S) uint8; the result depends on them and the seed only.

        Raises ValueError if the images have fewer usable patches than the dictionary has words.
        """
        generator = torch.Generator().manual_seed(derive_key(seed, "dictionary"))
        chosen = images[torch.randperm(len(images), generator=generator)[:1000]]
        patches = functional.unfold(pixels(chosen).cpu(), PATCH).transpose(1, 2).flatten(0, 1)  # (patches, C PATCH²)
        patches = patches[torch.randperm(len(patches), generator=generator)[:50_000]]
        mean = patches.mean(0)
        # Double precision, and a product in which each axis's sign cancels: whitening is the same on every machine up
        # to rounding.
        values, axes = torch.linalg.eigh(torch.cov((patches - mean).T.double()))
        whiten = axes @ torch.diag((values + self.REGULARISER * values.max()).rsqrt()) @ axes.T
        white = (patches - mean) @ whiten.float()
        # A patch without contrast, such as paper without ink, is no use as a word.
        words = functional.normalize(white[white.norm(dim=1) > white.norm(dim=1).median()][: len(self.words)])
        if len(words) < len(self.words):
            raise ValueError(f"{len(patches)} patches of {len(images)} images are too few for {len(self.words)} words")
        self.mean.copy_(mean)
        self.words.copy_(words @ whiten.float())
        self.scale.fill_(1.0)
        self.scale.copy_(self.encode(chosen.to(self.words.device)).std((0, 1)).clamp_min(1e-3).reciprocal())

    @torch.no_grad()
    def encode(self, images: Tensor) -> Tensor:
        """Return features (U, T, 2 K) of images (U, C, S, S)."""
        kernel = self.words.view(-1, self.config.channels, PATCH, PATCH)
        response = functional.conv2d(pixels(images).to(kernel.dtype), kernel) - (self.words @ self.mean)[:, None, None]
        beyond = torch.cat([functional.relu(response - self.THRESHOLD), functional.relu(-response - self.THRESHOLD)], 1)
        return functional.adaptive_avg_pool2d(beyond, self.GRID).flatten(2).transpose(1, 2) * self.scale


class TowerCross(Cross):
    """Cross-attention over the frozen vision tower of a base; only the base's name and revision are stored."""

    fixed = True

    def __init__(self, config: ComparatorConfig):
        tower = Tower(config.base, config.revision)
        super().__init__(dataclasses.replace(config, revision=tower.revision), tower.channels, tower.cells)
        self.tower = tower
        self._no_split_modules = (*self._no_split_modules, *layers_of(tower.network))
        leave_out(self, "tower")

    def encode(self, images: Tensor) -> Tensor:
        """Return features (U, T, V) of images (U, C, S, S)."""
        features: Tensor = self.tower(pixels(images))
        return features


class CrossBlock(nn.Module):
    """Attention to the other image's cells, followed by a feed-forward layer."""

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.norm, self.other_norm, self.up_norm = nn.LayerNorm(width), nn.LayerNorm(width), nn.LayerNorm(width)
        self.query = nn.Linear(width, width)
        self.key_value = nn.Linear(width, 2 * width)
        self.out = nn.Linear(width, width)
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)

    def forward(self, x: Tensor, other: Tensor) -> Tensor:
        """Map x, other (P, T, D) to (P, T, D)."""
        shape = (*x.shape[:2], self.heads, -1)
        query = self.query(self.norm(x)).view(shape).transpose(1, 2)
        key, value = (part.view(shape).transpose(1, 2) for part in self.key_value(self.other_norm(other)).chunk(2, -1))
        x = x + self.out(functional.scaled_dot_product_attention(query, key, value).transpose(1, 2).flatten(2))
        further: Tensor = self.down(functional.gelu(self.up(self.up_norm(x))))
        return x + further
