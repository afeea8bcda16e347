"""Which of two images ranks higher: one interface for comparators of any size, and the two small ones.

A comparator encodes every image once, however many pairs it is in, and answers pairs of encodings by three logits:

    encoded = model.encode(images)                          # (U, ...)
    logits = model.compare_encoded(encoded, first, second)  # (P, 3): FIRST ranks higher, SECOND does, they are SIMILAR

    siamese   a convolutional encoder, and a head that swaps its answer to the bit when the images are swapped
    cross     a frozen encoder, a dictionary of patches or the vision tower of a pretrained model, and cross-attention
              from one image's cells to the other's

Shapes: U images, P pairs, C channels, S pixels a side, T cells of an image, K words of the dictionary, V channels of a
tower, D width, R reference images.
"""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from common.random import derive_key
from models import ranking
from models.io import config_from, write_whole
from models.ranking import SWAPPED
from models.vision_tower import Tower, leave_out

KINDS = ("siamese", "cross")
PATCH = 6  # pixels a side of a word of the dictionary
ENDINGS = (".jpg", ".jpeg", ".png", ".gif", ".bmp", ".tif", ".tiff", ".webp", ".ppm")
DESCRIPTION = "comparator.json"
FITTED = ("discrimination", "tie", "dispersion")
MOST_PIXELS = 50_000_000  # of an image file
AT_ONCE = 256  # images or pairs in a forward pass, where there is no batch size


class Ranked(NamedTuple):
    """An image's score on the user's scale, with its 95 % interval."""

    name: str
    score: float
    low: float
    high: float


@dataclass(frozen=True, kw_only=True)
class Question:
    """What a comparator was asked, and the scale on which its answers become scores."""

    size: int = 32  # S
    channels: int = 1  # C
    attribute: str = "score"  # what ranks higher has more of it
    theta: int = 0  # SIMILAR: scores that differ by so many units or fewer
    unit: float = 1.0  # one step of the integer scores, on the scale of the user's
    references: int = 0  # R: training images with known scores, to place others by


@dataclass(frozen=True, kw_only=True)
class ComparatorConfig(Question):
    """Sizes of a small comparator."""

    kind: str = "siamese"
    width: int = 64
    layers: int = 3  # siamese: convolutions, each of which halves the sides; cross: blocks of attention
    heads: int = 4  # of cross
    words: int = 128  # K, of cross with a dictionary
    base: str = ""  # of cross: a folder or an id on the hub, whose vision tower takes the dictionary's place
    revision: str = ""  # of the base: the hub's commit, or the SHA-256 of a folder's weights
    texture: bool = False  # siamese: judge by fine detail, wherever it is, and not by shapes


class Comparator(nn.Module):
    """What all comparators share: encode once, compare, rank. Subclasses have `encode` and `compare_encoded`."""

    frozen = False  # whether nothing in `encode` trains, so that encodings can be kept

    def __init__(self, config: Question):
        super().__init__()
        self.config = config
        shape = (config.references, config.channels, config.size, config.size)
        self.register_buffer("reference_images", torch.zeros(shape, dtype=torch.uint8))
        self.register_buffer("reference_scores", torch.zeros(config.references, dtype=torch.long))  # in units
        # By how much standard errors are too small because the model knows its references from training.
        self.register_buffer("standard_error_factor", torch.ones(()))
        # Discrimination, tie and dispersion of `ranking.Scale`, by `fit_scale`; zero before that.
        self.register_buffer("fitted", torch.zeros(3, dtype=torch.float64))

    def encode(self, images: Tensor) -> Tensor:
        """(U, ...) from images (U, C, S, S), uint8 or float in 0 to 1."""
        raise NotImplementedError

    def compare_encoded(self, encoded: Tensor, first: Tensor, second: Tensor) -> Tensor:
        """Logits (P, 3) of FIRST, SECOND, SIMILAR for pairs of rows `first` and `second` (P,) int64 of `encoded`."""
        raise NotImplementedError

    def forward(self, images: Tensor | None, first: Tensor, second: Tensor, encoded: Tensor | None = None) -> Tensor:
        """Logits (P, 3) for pairs of `images` (U, C, S, S), or of what `encode` made of them before."""
        return self.compare_encoded(self.encode(images) if encoded is None else encoded, first, second)

    def both_orders(self, encoded: Tensor, first: Tensor, second: Tensor) -> Tensor:
        """Probabilities (P, 3), the mean over both orders of each pair."""
        return mean_of_orders(self.compare_encoded(encoded, torch.cat([first, second]), torch.cat([second, first])))

    @torch.no_grad()
    def encode_all(self, images: Tensor) -> Tensor:
        """`encode`, of as many images as there are, on the model's device."""
        device = self.reference_images.device
        return torch.cat([self.encode(part.to(device)) for part in images.split(AT_ONCE)])

    @torch.no_grad()
    def compare(self, a: Tensor | str | Path, b: Tensor | str | Path) -> Tensor:
        """Probabilities (3,) that `a` ranks higher, that `b` does, that they are similar; image files or (C, S, S).

        The mean over both orders. Raises ValueError for a file that is not an image.
        """
        encoded = self.encode_all(torch.stack([self.read(each) for each in (a, b)]))
        first = torch.zeros(1, dtype=torch.long, device=encoded.device)
        return self.both_orders(encoded, first, first + 1)[0]

    @torch.no_grad()
    def fit_scale(self, budget: int = 32, seed: int = 0) -> None:
        """Find by comparisons of the references how answers become scores: `ranking.fit_scale`."""
        known = self.reference_scores * self.config.unit
        log_odds = self._log_odds(self.encode_all(self.reference_images))
        theta = self.config.theta * self.config.unit
        found = ranking.fit_scale(log_odds, torch.arange(len(known)), known, theta=theta, budget=budget, seed=seed)
        values = (found.davidson.discrimination, found.davidson.tie, found.dispersion)
        self.fitted.copy_(torch.tensor(values, dtype=torch.float64))

    @torch.no_grad()
    def score(self, images: Tensor, budget: int = 32) -> tuple[Tensor, Tensor]:
        """Scores (U,) and standard errors (U,), on the user's scale, of images (U, C, S, S).

        Each image is compared with at most `budget` reference images, whose scores are known: `ranking.scores`.
        """
        unit, count = self.config.unit, len(images)
        discrimination, tie, dispersion = self.fitted.tolist()
        scale = ranking.Scale(ranking.Davidson(discrimination, tie), dispersion) if self.fitted.any() else None
        encoded = torch.cat([self.encode_all(images), self.encode_all(self.reference_images)])
        scores, errors = ranking.scores(
            self._log_odds(encoded),
            count,
            torch.arange(count, len(encoded)),
            self.reference_scores * unit,
            theta=self.config.theta * unit,
            budget=budget,
            scale=scale,
        )
        return scores, errors * float(self.standard_error_factor)

    def _log_odds(self, encoded: Tensor) -> ranking.Compare:
        def logits(first: Tensor, second: Tensor) -> Tensor:
            pairs = zip(first.to(encoded.device).split(AT_ONCE), second.to(encoded.device).split(AT_ONCE), strict=True)
            return torch.cat([self.compare_encoded(encoded, *pair).float() for pair in pairs])

        return logits

    def describe(self) -> dict[str, Any]:
        """What its answers mean and how scores are made of them, in words and numbers of the user's scale."""
        config, fitted = self.config, dict(zip(FITTED, self.fitted.tolist(), strict=True))
        return {
            "question": f"which of two images ranks higher in {config.attribute}",
            "answers": ["First", "Second", "Similar"],  # in the order of the logits
            "theta": config.theta * config.unit,
            "unit": config.unit,
            "references": (self.reference_scores * config.unit).tolist(),
            "bradley_terry_with_ties": fitted if self.fitted.any() else None,
            "standard_error_factor": float(self.standard_error_factor),
        }

    def save_beside(self, folder: Path) -> list[str]:
        """Write what `describe` says; returns the names of the files."""
        write_whole(folder / DESCRIPTION, (json.dumps(self.describe(), indent=1, allow_nan=False) + "\n").encode())
        return [DESCRIPTION]

    def rank(self, folder: str | Path, budget: int = 32) -> list[Ranked]:
        """The images in a folder by their scores, the highest first, with 95 % intervals.

        Raises ValueError, which names them, if there are none or some cannot be read.
        """
        paths = sorted(path for path in Path(folder).iterdir() if path.suffix.lower() in ENDINGS)
        if not paths:
            raise ValueError(f"{folder} holds no images; give a folder with {', '.join(ENDINGS)}")
        scores, errors = self.score(torch.stack([self.read(path) for path in paths]), budget)
        found = zip(paths, scores.tolist(), (ranking.Z95 * errors).tolist(), strict=True)
        rows = [Ranked(path.name, score, score - reach, score + reach) for path, score, reach in found]
        return sorted(rows, key=lambda row: -row.score)

    def read(self, image: Tensor | str | Path) -> Tensor:
        """(C, S, S) uint8 of an image file, as training images were made; a tensor as it is."""
        if isinstance(image, Tensor):
            return image
        from models import images

        config = self.config
        try:
            square = images.decode(Path(image), config.size, MOST_PIXELS)
        except ValueError as error:
            raise ValueError(f"{image}: {error}") from error
        found = torch.from_numpy(square.copy()).movedim(-1, 0)
        grey = torch.tensor([0.299, 0.587, 0.114])  # as PIL converts
        return found if config.channels == 3 else (found * grey[:, None, None]).sum(0, keepdim=True).round().byte()

    def example(self) -> dict[str, Tensor]:
        """Arguments of a deterministic forward pass: four images, some pairs, one of them in both orders."""
        shape = (4, self.config.channels, self.config.size, self.config.size)
        count = torch.Size(shape).numel()
        images = (torch.arange(count) * 2654435761 % 251).to(torch.uint8).view(shape)
        device = self.reference_images.device
        first, second = torch.tensor([[0, 1, 2, 3], [1, 0, 3, 0]], device=device)
        return {"images": images.to(device), "first": first, "second": second}


def mean_of_orders(logits: Tensor) -> Tensor:
    """Probabilities (P, 3) from logits (2 P, 3) of P pairs and then of the same pairs swapped."""
    one, other = logits.float().softmax(-1).chunk(2)
    return (one + other[:, SWAPPED]) / 2


def pixels(images: Tensor) -> Tensor:
    """Images as float in 0 to 1."""
    return images / 255 if images.dtype == torch.uint8 else images


class Siamese(Comparator):
    """A convolutional encoder with an antisymmetric head.

    Two projections of each encoding, as the first and as the second of a pair, meet in sums: FIRST for (a, b) is by
    the same additions SECOND for (b, a), so that swapping the images swaps the answer to the bit. Group norm, not
    batch norm: an image's encoding does not depend on what else is in the batch.
    """

    family = "comparator"

    def __init__(self, config: ComparatorConfig):
        super().__init__(config)
        width = config.width
        if config.texture:
            self.encoder = Texture(config)
        else:
            convolutions, channels = _halving(config.channels, width, config.layers)
            side = config.size // 2**config.layers
            self.encoder = nn.Sequential(*convolutions, nn.Flatten(), nn.Linear(channels * side**2, width), nn.ReLU())
        self.as_first = nn.Linear(width, width)
        self.as_second = nn.Linear(width, width, bias=False)
        self.higher = nn.Parameter(torch.randn(width) * width**-0.5)
        self.similar = nn.Parameter(torch.randn(width) * width**-0.5)
        self.similar_bias = nn.Parameter(torch.zeros(()))

    def encode(self, images: Tensor) -> Tensor:
        """(U, D) from images (U, C, S, S)."""
        return self.encoder(pixels(images))

    def compare_encoded(self, encoded: Tensor, first: Tensor, second: Tensor) -> Tensor:
        """Logits (P, 3). ReLU, sums and products row by row: no matrix product that could round by a row's place."""
        one, other = self.as_first(encoded), self.as_second(encoded)
        forwards, backwards = F.relu(one[first] + other[second]), F.relu(one[second] + other[first])
        similar = ((forwards + backwards) * self.similar).sum(-1) + self.similar_bias
        return torch.stack([(forwards * self.higher).sum(-1), (backwards * self.higher).sum(-1), similar], -1)


def _halving(channels: int, width: int, layers: int) -> tuple[list[nn.Module], int]:
    """Convolutions that halve the sides and double the channels, from a quarter of `width` on; their last channels."""
    modules: list[nn.Module] = []
    for layer in range(layers):
        out = max(4, width * 2**layer // 4 // 4 * 4)
        modules += [nn.Conv2d(channels, out, 4, stride=2, padding=1), nn.GroupNorm(4, out), nn.ReLU()]
        channels = out
    return modules, channels


class Texture(nn.Module):
    """Encodes fine detail and nothing else: what blur, noise and compression change, whatever the picture shows.

    Each pixel's difference from its surroundings, as it is and as a share of the local contrast (Mittal et al. 2012
    judge quality by the latter), goes through convolutions, of whose responses mean and deviation over all places stay.
    """

    def __init__(self, config: ComparatorConfig):
        super().__init__()
        convolutions, channels = _halving(2 * config.channels, 2 * config.width, config.layers)
        self.convolutions = nn.Sequential(*convolutions)
        self.out = nn.Sequential(
            nn.LayerNorm(2 * channels), nn.Dropout(0.3), nn.Linear(2 * channels, config.width), nn.ReLU()
        )

    def forward(self, images: Tensor) -> Tensor:
        """(U, D) from images (U, C, S, S) in 0 to 1."""
        detail = images - F.avg_pool2d(F.pad(images, (1, 1, 1, 1), mode="replicate"), 3, 1)
        contrast = (F.avg_pool2d(detail.square(), 7, 1, 3) + 1e-4).sqrt()
        # Eight times: of about the size of the share.
        responses = self.convolutions(torch.cat([8 * detail, detail / contrast], 1)).flatten(2)
        deviation = (responses.var(2, unbiased=False) + 1e-4).sqrt()
        return self.out(torch.cat([responses.mean(2), deviation], 1))


class Cross(Comparator):
    """Cross-attention over what a frozen encoder makes of the cells of a grid; subclasses have it.

    None of the encoder trains, so that each image is encoded once in a run. The head sees one image's cells attend to
    the other's. It is built for so many `features` of each of so many `cells`.
    """

    family = "comparator"
    frozen = True

    def __init__(self, config: ComparatorConfig, features: int, cells: int):
        super().__init__(config)
        width = config.width
        self.embed = nn.Linear(features, width)
        self.positions = nn.Parameter(torch.randn(cells, width) * 0.02)
        self.blocks = nn.ModuleList(CrossBlock(width, config.heads) for _ in range(config.layers))
        self.norm = nn.LayerNorm(width)
        self.answer = nn.Linear(width, 3)

    def compare_encoded(self, encoded: Tensor, first: Tensor, second: Tensor) -> Tensor:
        """Logits (P, 3) from how the first image's cells look beside the second's."""
        cells = self.embed(encoded.to(self.embed.weight.dtype)) + self.positions  # (U, T, D)
        x, other = cells[first], cells[second]
        for block in self.blocks:
            x = block(x, other)
        return self.answer(self.norm(x.mean(1)))


class DictionaryCross(Cross):
    """Encodes by a frozen dictionary of whitened patches (Coates and Ng 2011).

    Words are patches of training images, drawn at random, after whitening. An image's patch is told by how far its
    whitened pixels agree or disagree with each word beyond a threshold, averaged over the cells of a grid.
    """

    GRID, THRESHOLD, REGULARISER = 4, 0.5, 0.01

    def __init__(self, config: ComparatorConfig):
        super().__init__(config, 2 * config.words, self.GRID**2)
        length = config.channels * PATCH**2
        self.register_buffer("mean", torch.zeros(length))
        self.register_buffer("words", torch.zeros(config.words, length))  # with the whitening multiplied in
        self.register_buffer("scale", torch.ones(2 * config.words))  # of the encodings

    @torch.no_grad()
    def learn_dictionary(self, images: Sequence[Tensor] | Tensor, seed: int) -> None:
        """Fill the frozen part from training images (N, C, S, S) uint8; a function of them and the seed."""
        generator = torch.Generator().manual_seed(derive_key(seed, "dictionary"))
        chosen = images[torch.randperm(len(images), generator=generator)[:1000]]
        patches = F.unfold(pixels(chosen).cpu(), PATCH).transpose(1, 2).flatten(0, 1)  # (patches, C PATCH²)
        patches = patches[torch.randperm(len(patches), generator=generator)[:50_000]]
        mean = patches.mean(0)
        # In double, and with the sign of each axis cancelling: whitening is the same on every machine to rounding.
        values, axes = torch.linalg.eigh(torch.cov((patches - mean).T.double()))
        whiten = axes @ torch.diag((values + self.REGULARISER * values.max()).rsqrt()) @ axes.T
        white = (patches - mean) @ whiten.float()
        # A patch without contrast, paper without ink, would make no word.
        words = F.normalize(white[white.norm(dim=1) > white.norm(dim=1).median()][: len(self.words)])
        if len(words) < len(self.words):
            raise ValueError(f"{len(patches)} patches of {len(images)} images are too few for {len(self.words)} words")
        self.mean.copy_(mean)
        self.words.copy_(words @ whiten.float())
        self.scale.fill_(1.0)
        self.scale.copy_(self.encode(chosen.to(self.words.device)).std((0, 1)).clamp_min(1e-3).reciprocal())

    @torch.no_grad()
    def encode(self, images: Tensor) -> Tensor:
        """(U, T, 2 K) from images (U, C, S, S)."""
        kernel = self.words.view(-1, self.config.channels, PATCH, PATCH)
        response = F.conv2d(pixels(images).to(kernel.dtype), kernel) - (self.words @ self.mean)[:, None, None]
        beyond = torch.cat([F.relu(response - self.THRESHOLD), F.relu(-response - self.THRESHOLD)], 1)
        return F.adaptive_avg_pool2d(beyond, self.GRID).flatten(2).transpose(1, 2) * self.scale


class TowerCross(Cross):
    """Encodes by the frozen vision tower of a base, which is stored by its name and revision alone."""

    def __init__(self, config: ComparatorConfig):
        tower = Tower(config.base, config.revision)
        super().__init__(dataclasses.replace(config, revision=tower.revision), tower.channels, tower.cells)
        self.tower = tower
        leave_out(self, "tower")

    def encode(self, images: Tensor) -> Tensor:
        """(U, T, V) from images (U, C, S, S)."""
        return self.tower(pixels(images))


class CrossBlock(nn.Module):
    """Attention to the other image's cells, and a feed-forward part."""

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
        """x, other (P, T, D) -> (P, T, D)."""
        shape = (*x.shape[:2], self.heads, -1)
        query = self.query(self.norm(x)).view(shape).transpose(1, 2)
        key, value = (part.view(shape).transpose(1, 2) for part in self.key_value(self.other_norm(other)).chunk(2, -1))
        x = x + self.out(F.scaled_dot_product_attention(query, key, value).transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.up_norm(x))))


def build(config: Mapping[str, Any]) -> Comparator:
    """The model of a config as `models.io` reads it."""
    sizes = config_from(ComparatorConfig, config)
    if sizes.kind not in KINDS:
        raise ValueError(f"kind is {sizes.kind!r}; known kinds: {', '.join(KINDS)}")
    for name in ("size", "channels", "width", "layers", "heads", "words"):
        if getattr(sizes, name) < 1:
            raise ValueError(f"{name} is {getattr(sizes, name)}; it must be 1 or more")
    if sizes.kind == "siamese" and sizes.size % 2**sizes.layers:
        raise ValueError(f"size {sizes.size} cannot be halved {sizes.layers} times; choose other sizes or fewer layers")
    if sizes.texture and sizes.kind != "siamese":
        raise ValueError(f"texture is for kind 'siamese', kind is {sizes.kind!r}; give texture=false")
    if sizes.kind == "cross" and sizes.width % sizes.heads:
        raise ValueError(f"width {sizes.width} is not a multiple of heads {sizes.heads}")
    if sizes.base:
        if sizes.kind != "cross":
            raise ValueError(f"base is for kind 'cross', kind is {sizes.kind!r}; leave base out")
        if sizes.channels not in (1, 3):
            raise ValueError(f"channels is {sizes.channels}; a base takes 1 (grey) or 3 (red, green, blue)")
        return TowerCross(sizes)
    least = PATCH + DictionaryCross.GRID - 1
    if sizes.kind == "cross" and sizes.size < least:
        raise ValueError(f"size is {sizes.size}; kind 'cross' needs {least} pixels a side or more")
    return {"siamese": Siamese, "cross": DictionaryCross}[sizes.kind](sizes)
