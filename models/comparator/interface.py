"""The interface of comparators: encoding images once, comparing encodings, scoring and ranking images."""

import json
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from common import noise
from common.statistics import Z95
from models import io, ranking
from models.comparator.config import Question
from models.io import write_whole
from models.ranking import SWAPPED

ENDINGS = (".jpg", ".jpeg", ".png", ".gif", ".bmp", ".tif", ".tiff", ".webp", ".ppm")
DESCRIPTION = "comparator.json"
FITTED = ("discrimination", "tie", "dispersion")
MOST_PIXELS = 50_000_000  # of an image file
AT_ONCE = 256  # images or pairs in a forward pass where no batch size is given


class Ranked(NamedTuple):
    """An image's score on the user's scale, with its 95 % interval."""

    name: str
    score: float
    low: float
    high: float


class Comparator(io.Model):
    """Base class of all comparators; subclasses implement `encode` and `compare_encoded`."""

    frozen = False  # True where nothing in `encode` trains, so that encodings can be kept
    large_base = False  # True where a second copy of the model might not fit the device

    config: Question
    reference_images: Tensor
    reference_scores: Tensor
    standard_error_factor: Tensor
    fitted: Tensor

    def __init__(self, config: Question):
        super().__init__()
        self.config = config
        shape = (config.references, config.channels, config.size, config.size)
        self.register_buffer("reference_images", torch.zeros(shape, dtype=torch.uint8))
        self.register_buffer("reference_scores", torch.zeros(config.references, dtype=torch.long))  # in units
        # Standard errors are too small by this factor, because the model knows its references from training.
        self.register_buffer("standard_error_factor", torch.ones(()))
        # Discrimination, tie and dispersion of `ranking.Scale`, by `fit_scale`; zero before that.
        self.register_buffer("fitted", torch.zeros(3, dtype=torch.float64))

    def encode(self, images: Tensor) -> Tensor:
        """Return encodings (U, ...) of images (U, C, S, S), uint8 or float from 0 to 1."""
        raise NotImplementedError

    def compare_encoded(self, encoded: Tensor, first: Tensor, second: Tensor) -> Tensor:
        """Return logits (P, 3) of FIRST, SECOND, SIMILAR for pairs of rows `first` and `second` (P,) of `encoded`."""
        raise NotImplementedError

    def forward(
        self,
        images: Tensor | None,
        first: Tensor,
        second: Tensor,
        encoded: Tensor | None = None,
        numbers: Tensor | None = None,
    ) -> Tensor:
        """Return logits (P, 3) for pairs of `images` (U, C, S, S), or of encodings that `encode` made earlier.

        `numbers` (U,) int64 tell the images apart: noise in `encode` is a function of them.
        """
        if encoded is None:
            assert images is not None, "images or their encodings are needed"
            with noise.rows(numbers):
                encoded = self.encode(images)
        return self.compare_encoded(encoded, first, second)

    def both_orders(self, encoded: Tensor, first: Tensor, second: Tensor) -> Tensor:
        """Return probabilities (P, 3), the mean over the two orders of each pair."""
        return mean_of_orders(self.compare_encoded(encoded, torch.cat([first, second]), torch.cat([second, first])))

    @torch.no_grad()
    def encode_all(self, images: Tensor) -> Tensor:
        """Encode any number of images, in batches, on the model's device."""
        device = self.reference_images.device
        return torch.cat([self.encode(part.to(device)) for part in images.split(AT_ONCE)])

    @torch.no_grad()
    def compare(self, a: Tensor | str | Path, b: Tensor | str | Path) -> Tensor:
        """Return probabilities (3,) that `a` ranks higher, that `b` does, and that they are similar.

        `a` and `b` are image files or tensors (C, S, S). The result is the mean over both orders. Raises ValueError for
        a file that is not an image.
        """
        encoded = self.encode_all(torch.stack([self.read(each) for each in (a, b)]))
        first = torch.zeros(1, dtype=torch.long, device=encoded.device)
        return self.both_orders(encoded, first, first + 1)[0]

    @torch.no_grad()
    def fit_scale(self, budget: int = 32, seed: int = 0) -> None:
        """Compare the references with each other to learn how answers become scores; see `ranking.fit_scale`."""
        known = self.reference_scores * self.config.unit
        log_odds = self._log_odds(self.encode_all(self.reference_images))
        theta = self.config.theta * self.config.unit
        found = ranking.fit_scale(log_odds, torch.arange(len(known)), known, theta=theta, budget=budget, seed=seed)
        values = (found.davidson.discrimination, found.davidson.tie, found.dispersion)
        self.fitted.copy_(torch.tensor(values, dtype=torch.float64))

    @torch.no_grad()
    def score(self, images: Tensor, budget: int = 32) -> tuple[Tensor, Tensor]:
        """Return scores (U,) and standard errors (U,) of images (U, C, S, S), on the user's scale.

        Each image is compared with at most `budget` reference images of known score; see `ranking.scores`.
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
        """Return the meaning of the answers and the fit that turns them into scores, on the user's scale."""
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
        """Write the result of `describe` into `folder`; returns the names of the files."""
        write_whole(folder / DESCRIPTION, (json.dumps(self.describe(), indent=1, allow_nan=False) + "\n").encode())
        return [DESCRIPTION]

    def rank(self, folder: str | Path, budget: int = 32) -> list[Ranked]:
        """Return the images in a folder, highest score first, with 95 % intervals.

        Raises ValueError if there are no images, and for the first image that cannot be read.
        """
        paths = sorted(path for path in Path(folder).iterdir() if path.suffix.lower() in ENDINGS)
        if not paths:
            raise ValueError(f"{folder} holds no images; give a folder with {', '.join(ENDINGS)}")
        scores, errors = self.score(torch.stack([self.read(path) for path in paths]), budget)
        found = zip(paths, scores.tolist(), (Z95 * errors).tolist(), strict=True)
        rows = [Ranked(path.name, score, score - reach, score + reach) for path, score, reach in found]
        return sorted(rows, key=lambda row: -row.score)

    def read(self, image: Tensor | str | Path) -> Tensor:
        """Return an image file as (C, S, S) uint8, made as the training images were; a tensor is returned unchanged."""
        if isinstance(image, Tensor):
            return image
        from models import images

        config = self.config
        try:
            square = images.decode(Path(image), config.size, MOST_PIXELS)
        except ValueError as error:
            raise ValueError(f"{image}: {error}") from error
        found = torch.from_numpy(square.copy()).movedim(-1, 0)
        grey = torch.tensor([0.299, 0.587, 0.114])  # the weights by which PIL converts to grey
        return found if config.channels == 3 else (found * grey[:, None, None]).sum(0, keepdim=True).round().byte()

    def example(self) -> dict[str, Tensor]:
        """Return arguments of a deterministic forward pass: four images and some pairs, one of them in both orders."""
        shape = (4, self.config.channels, self.config.size, self.config.size)
        count = torch.Size(shape).numel()
        images = (torch.arange(count) * 2654435761 % 251).to(torch.uint8).view(shape)
        device = self.reference_images.device
        first, second = torch.tensor([[0, 1, 2, 3], [1, 0, 3, 0]], device=device)
        return {"images": images.to(device), "first": first, "second": second}


def mean_of_orders(logits: Tensor) -> Tensor:
    """Return probabilities (P, 3) from logits (2 P, 3) of P pairs followed by the same pairs swapped."""
    one, other = logits.float().softmax(-1).chunk(2)
    return (one + other[:, SWAPPED]) / 2


def pixels(images: Tensor) -> Tensor:
    """Return images as float from 0 to 1."""
    return images / 255 if images.dtype == torch.uint8 else images
