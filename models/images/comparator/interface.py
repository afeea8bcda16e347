"""The interface of comparators: encoding images once, comparing encodings, scoring and ranking images."""

import contextlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import astuple, replace
from pathlib import Path
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor

from common import noise
from common.disk.files import write_whole
from common.errors import as_user_error
from common.input_files import files_in
from common.plain import Plain
from models import io
from models.images import ranking, reliability
from models.images.comparator.config import Question
from models.images.comparator.familiarity import notes
from models.images.inputs import ENDINGS, MOST_PIXELS, ComparisonSettings, ImagesInput, folded
from models.images.reliability import QUANTILES, Reliability, with_ends

DESCRIPTION = "comparator.json"
FITTED = ("discrimination", "tie", "offset", "slope", "floor", "dispersion", "factor")
NOTHING_TOLD = "this model has learnt too little to tell images apart, and the order means nothing; more answers help"
AT_ONCE = 256  # images or pairs in a forward pass where no batch size is given


class Picture(NamedTuple):
    """An image of an input."""

    name: str | int  # of its file, or its number in the input
    pixels: Tensor | None  # (C, S, S) uint8; None if it cannot be used
    error: str = ""


class Comparator(io.Model):
    """Base class of all comparators; subclasses implement `encode` and `compare_encoded`."""

    pipeline_tag = "image-classification"
    input_type, settings_type = ImagesInput, ComparisonSettings
    frozen = False  # True where nothing in `encode` trains, so that encodings can be kept
    fixed = False  # True where `encode` uses no tensor that training or fitting changes
    head_noise = False  # True where there is noise in `compare_encoded`, image by image
    large_base = False  # True where a second copy of the model might not fit the device

    config: Question
    reference_images: Tensor
    reference_scores: Tensor
    prior: Tensor
    fitted: Tensor

    def __init__(self, config: Question):
        super().__init__()
        self.config = config
        shape = (config.references, config.channels, config.size, config.size)
        self.register_buffer("reference_images", torch.zeros(shape, dtype=torch.uint8))
        self.register_buffer("reference_scores", torch.zeros(config.references, dtype=torch.long))  # in units
        # Quantiles of the training images' scores, on the user's scale; all equal if unknown.
        self.register_buffer("prior", torch.zeros(QUANTILES, dtype=torch.float64))
        # The numbers of `ranking.Scale`: Davidson's model, then its reliability; zero before `fit_scale`.
        self.register_buffer("fitted", torch.zeros(len(FITTED), dtype=torch.float64))
        self.compared = 0  # comparisons for scores, two for each pair, since a scale was fitted
        self._kept: tuple[list[tuple[int, torch.dtype, torch.device]], Tensor] | None = None  # see `encoded_references`

    @property
    def views(self) -> "Mapping[str, Comparator]":
        """Each attribute's comparator, by name."""
        return {self.config.attribute: self}

    def of(self, attribute: str | None) -> "Comparator":
        """Return an attribute's comparator, by its `folded` name; None: the first one. ValueError if unknown."""
        views = {folded(name): view for name, view in self.views.items()}
        if attribute is not None and folded(attribute) not in views:
            raise ValueError(f"attribute is {attribute!r}; the model ranks by {', '.join(self.views)}")
        return views[next(iter(views)) if attribute is None else folded(attribute)]

    def encode(self, images: Tensor) -> Tensor:
        """Return encodings (U, ...) of images (U, C, S, S), uint8 or float from 0 to 1."""
        raise NotImplementedError

    def compare_encoded(self, encoded: Tensor, first: Tensor, second: Tensor) -> Tensor:
        """Return logits (P, 3) of FIRST, SECOND, SIMILAR for pairs of rows `first` and `second` (P,) of `encoded`."""
        raise NotImplementedError

    def estimates(self, encoded: Tensor) -> tuple[Tensor, Tensor] | None:
        """Return scores (U,) and their Fisher information (U,) read from encodings (U, ...); None: compare instead."""
        return None

    def forward(
        self,
        images: Tensor | None,
        first: Tensor,
        second: Tensor,
        encoded: Tensor | None = None,
        numbers: Tensor | None = None,
        with_encodings: bool = False,
        attribute: Tensor | None = None,
    ) -> Tensor | tuple[Tensor, Tensor]:
        """Return logits (P, 3) for pairs of `images` (U, C, S, S), or of encodings (U, ...), with these if wanted.

        `numbers` (U,) int64 identify the images: noise in `encode` is a function of them. With several attributes,
        `attribute` (P,) is the index of each pair's; without it all attributes answer, (A P, 3).
        """
        if encoded is None:
            assert images is not None, "images or their encodings are needed"
            with noise.rows(numbers):
                encoded = self.encode(images)
        logits, beside = self.answered(encoded, first, second, numbers, with_encodings)
        if attribute is not None:
            logits = logits[attribute * len(first) + torch.arange(len(first), device=first.device)]
        return (logits, beside) if with_encodings else logits

    def answered(
        self, encoded: Tensor, first: Tensor, second: Tensor, numbers: Tensor | None, beside: bool
    ) -> tuple[Tensor, Tensor]:
        """Return logits (P, 3) and, if `beside`, the second result of `forward`: here the encodings."""
        with noise.rows(numbers) if self.head_noise else contextlib.nullcontext():
            return self.compare_encoded(encoded, first, second), encoded

    def both_orders(self, encoded: Tensor, first: Tensor, second: Tensor) -> Tensor:
        """Return probabilities (P, 3), the mean over the two orders of each pair."""
        logits = self.compare_encoded(encoded, torch.cat([first, second]), torch.cat([second, first]))
        one, other = logits.float().softmax(-1).chunk(2)
        return (one + other[:, ranking.SWAPPED]) / 2

    @torch.no_grad()
    def encode_all(self, images: Tensor) -> Tensor:
        """Encode any number of images, in batches, on the model's device."""
        return torch.cat([self.encode(part.to(self.reference_images.device)) for part in images.split(AT_ONCE)])

    @torch.no_grad()
    def compare(self, a: Tensor | str | Path, b: Tensor | str | Path) -> Tensor:
        """Return probabilities (3,) that `a`, a file or tensor, ranks higher, that `b` does, that they are similar."""
        encoded = self.encode_all(torch.stack([self.read(each) for each in (a, b)]))
        first = torch.zeros(1, dtype=torch.long, device=encoded.device)
        return self.of(None).both_orders(encoded, first, first + 1)[0]

    @torch.no_grad()
    def fit_scale(self, budget: int = 32, seed: int = 0) -> None:
        """Compare the references with each other to learn how answers become scores; see `ranking.fit_scale`."""
        self._keep(self._scale_of_references(budget, seed))

    @torch.no_grad()
    def rely(
        self, encoded: Tensor, known: Tensor, budget: int = 32, groups: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Measure the scale's reliability on encodings (M, ...) of unseen images; return scores and errors (M,)."""
        placed, known = self._placed(self.scoring, encoded, budget), known.double()
        self.weigh(encoded, *placed, known)
        placed = self.joined(encoded, placed[0]), placed[1]
        self._keep(replace(self.scoring, reliability=reliability.fit(self.scoring.prior, *placed, known, groups)))
        return self.scoring.scores(*placed)

    def joined(self, encoded: Tensor, estimates: Tensor) -> Tensor:
        """Combine estimates (U,) from comparisons with a model's other predictions from encodings (U, ...), if any."""
        return estimates

    def weigh(self, encoded: Tensor, estimates: Tensor, information: Tensor, known: Tensor) -> None:
        """Fit the weights of `joined` to images (M,) of known score."""

    @property
    def scoring(self) -> ranking.Scale:
        """The scale stored with the model; ValueError if there is none."""
        if not self.fitted.any():
            raise ValueError("the model has no scale; call fit_scale")
        discrimination, tie, *rest = self.fitted.tolist()
        return ranking.Scale(ranking.Davidson(discrimination, tie), self.prior.cpu(), Reliability(*rest))

    def _keep(self, scale: ranking.Scale) -> None:
        self.fitted.copy_(torch.tensor([*astuple(scale.davidson), *astuple(scale.reliability)], dtype=torch.float64))
        self.prior.copy_(scale.prior)

    def _scale_of_references(self, budget: int, seed: int) -> ranking.Scale:
        prior = self.prior.cpu() if self.prior.unique().numel() > 1 else None
        found = ranking.fit_scale(self._references(None, budget), seed=seed, prior=prior)
        self.compared = 0
        return found

    @torch.no_grad()
    def score(self, images: Tensor, budget: int = 32) -> tuple[Tensor, Tensor]:
        """Return scores and standard errors (U,) of images (U, C, S, S) from comparisons, on the user's scale."""
        return self.of(None).score_encoded(self.encode_all(images), budget)

    @torch.no_grad()
    def score_encoded(self, encoded: Tensor, budget: int = 32, compared: bool = False) -> tuple[Tensor, Tensor]:
        """Return `score` of encodings (U, ...); if `compared`, from comparisons with the references alone."""
        scale = self._scale_of_references(budget, 0) if compared or not self.fitted.any() else self.scoring
        if compared:
            return scale.scores(*self._references(encoded, budget).placed(scale.davidson, torch.arange(len(encoded))))
        estimates, information = self._placed(scale, encoded, budget)
        return scale.scores(self.joined(encoded, estimates), information)

    def _placed(self, scale: ranking.Scale, encoded: Tensor, budget: int) -> tuple[Tensor, Tensor]:
        images = torch.arange(len(encoded))
        return self.estimates(encoded) or self._references(encoded, budget).placed(scale.davidson, images)

    def _references(self, images: Tensor | None, budget: int) -> ranking.References:
        """Return the references, numbered after the encoded images (U, ...) that they will be compared with."""
        unit, known = self.config.unit, self.encoded_references()
        encoded = known if images is None else torch.cat([images, known])
        numbers = torch.arange(len(encoded) - len(known), len(encoded))
        scores, theta = self.reference_scores * unit, self.config.theta * unit

        def log_odds(first: Tensor, second: Tensor) -> Tensor:
            self.compared += len(first)
            pairs = zip(first.to(encoded.device).split(AT_ONCE), second.to(encoded.device).split(AT_ONCE), strict=True)
            return torch.cat([self.compare_encoded(encoded, *pair).float() for pair in pairs])

        return ranking.References(log_odds, numbers, scores, theta, budget)

    def encoded_references(self, known: Tensor | None = None) -> Tensor:
        """Return the references' encodings (R, ...), computed or `known`; cached until the mode or a tensor changes."""
        tensors = [self.reference_images] if self.fixed else [*self.parameters(), *self.buffers()]
        state = [(each._version, each.dtype, each.device) for each in tensors]
        if known is not None or self._kept is None or self._kept[0] != state:
            self._kept = state, self.encode_all(self.reference_images) if known is None else known.to(state[0][2])
        return self._kept[1]

    def train(self, mode: bool = True) -> Self:
        """Set the mode, and forget the encodings of the references that depend on it."""
        self._kept = self._kept if self.fixed else None
        return super().train(mode)

    def describe(self) -> dict[str, Plain]:
        """Return the meaning of the answers and the fit that turns them into scores, on the user's scale."""
        config, fitted = self.config, dict(zip(FITTED, self.fitted.tolist(), strict=True))
        return {
            "question": f"which of two images ranks higher in {config.attribute}",
            "answers": ["First", "Second", "Similar"],  # in the order of the logits
            "theta": config.theta * config.unit,
            "unit": config.unit,
            "fit": config.fit,
            "references": (self.reference_scores * config.unit).tolist(),
            "bradley_terry_with_ties": fitted if self.fitted.any() else None,
            "prior": self.prior.tolist() if self.fitted.any() else None,
        }

    def save_beside(self, folder: Path) -> list[str]:
        """Write the result of `describe` into `folder`; returns the names of the files."""
        write_whole(folder / DESCRIPTION, (json.dumps(self.describe(), indent=1, allow_nan=False) + "\n").encode())
        return [DESCRIPTION]

    def prepared(self, given: ImagesInput, settings: ComparisonSettings) -> tuple[ImagesInput, list[Picture]]:
        """Return the input and its pictures; ValueError if one of two, or all to rank, are unusable."""
        self.of(settings.attribute)
        images = given.images or (given.first, given.second)  # neither where people vote
        pictures = [self._picture(number, image) for number, image in enumerate(images) if image is not None]
        wrong = [each.error for each in pictures if each.pixels is None]
        if wrong and (given.images is None or len(wrong) == len(pictures)):
            raise ValueError("; ".join([*wrong[:3], *(["..."] if len(wrong) > 3 else [])]))
        return given, pictures

    def _picture(self, number: int, image: Path | bytes) -> Picture:
        name = str(image) if isinstance(image, Path) else number
        try:
            return Picture(name, self.read(image))
        except ValueError as error:
            return Picture(name, None, str(error))

    def answers(
        self, prepared: Sequence[tuple[ImagesInput, list[Picture]]], settings: ComparisonSettings
    ) -> list[dict[str, Plain]]:
        """Return a ranking for each input, highest score first, by model or votes, or a pair's answer probabilities."""
        from models.images.people.raters import by_votes  # scipy takes a second

        pairs = [pictures for given, pictures in prepared if given.first is not None]
        chosen = self.of(settings.attribute)
        named = {"attribute": chosen.config.attribute} if len(self.views) > 1 else {}
        found = iter(chosen._compared(pairs)) if pairs else iter(())
        return [
            next(found) | named
            if given.first is not None
            else self._ranked(pictures, settings.comparisons, chosen)
            if given.images is not None
            else by_votes(given)
            for given, pictures in prepared
        ]

    def _compared(self, pairs: Sequence[Sequence[Picture]]) -> list[dict[str, Plain]]:
        images = torch.stack([each.pixels for pair in pairs for each in pair if each.pixels is not None])
        encoded, noted = self.encode_all(images), notes(images, self.reference_images)
        first = torch.arange(0, len(encoded), 2, device=encoded.device)
        return [
            {"first_is_higher": one, "second_is_higher": other, "tie": tie, **noted[2 * pair], **noted[2 * pair + 1]}
            for pair, (one, other, tie) in enumerate(self.both_orders(encoded, first, first + 1).tolist())
        ]

    def _ranked(self, pictures: Sequence[Picture], budget: int, chosen: "Comparator") -> dict[str, Plain]:
        usable = {each.name: each.pixels for each in pictures if each.pixels is not None}
        images = torch.stack(list(usable.values()))
        encoded = self.encode_all(images)
        ends = {name: with_ends(*each.score_encoded(encoded, budget)) for name, each in self.views.items()}
        own = ends[chosen.config.attribute]
        ranking: list[dict[str, Any]] = []
        for i, (name, note) in enumerate(zip(usable, notes(images, chosen.reference_images), strict=True)):
            each = {f"{end}s": {by: rows[i][end] for by, rows in ends.items()} for end in own[i]}  # scores, lows, highs
            row = {**own[i], "attribute": chosen.config.attribute, **each} if len(ends) > 1 else own[i]
            ranking.append({"image": name, **row, **note})
        ranking.sort(key=lambda row: -row["score"])
        wrong = [{"image": each.name, "error": each.error} for each in pictures if each.pixels is None]
        known = {row["score"] for row in ranking} != {ranking[0]["score"]} or len(ranking) == 1
        return {"ranking": ranking, **({"errors": wrong} if wrong else {}), **({} if known else {"note": NOTHING_TOLD})}

    def rank(self, folder: str | Path, budget: int = 32, attribute: str | None = None) -> dict[str, Plain]:
        """Rank a folder's images as `predict` does; ValueError if none of them can be read."""
        paths = files_in(Path(folder), ENDINGS)
        (found,) = self.predict([{"images": list(map(str, paths))}], comparisons=budget, attribute=attribute)
        if "error" in found:
            raise ValueError(f"none of the {len(paths)} images in {folder} can be read: {found['error']}")
        return found

    def read(self, image: Tensor | str | Path | bytes) -> Tensor:
        """Return an image file, or its bytes, as (C, S, S) uint8, prepared like training images; a tensor as it is."""
        if isinstance(image, Tensor):
            return image
        from models.images import image_files

        config = self.config
        with as_user_error(f"{'image' if isinstance(image, bytes) else image}: "):
            source = image if isinstance(image, bytes) else Path(image)
            square = image_files.decode(source, config.size, MOST_PIXELS, config.fit)
        found = torch.from_numpy(square.copy()).movedim(-1, 0)
        grey = torch.tensor([0.299, 0.587, 0.114])  # the weights by which PIL converts to grey
        return found if config.channels == 3 else (found * grey[:, None, None]).sum(0, keepdim=True).round().byte()

    def example(self) -> dict[str, Tensor]:
        """Return arguments of a deterministic forward pass: four images and some pairs, one of them in both orders."""
        shape = (4, self.config.channels, self.config.size, self.config.size)
        images = (torch.arange(torch.Size(shape).numel()) * 2654435761 % 251).to(torch.uint8).view(shape)
        device = self.reference_images.device
        first, second = torch.tensor([[0, 1, 2, 3], [1, 0, 3, 0]], device=device)
        return {"images": images.to(device), "first": first, "second": second}


def pixels(images: Tensor) -> Tensor:
    """Return images as float from 0 to 1."""
    return images / 255 if images.dtype == torch.uint8 else images
