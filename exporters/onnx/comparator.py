"""A comparator as two programs: one that encodes images, and one that compares encodings.

Shapes as in models/images/comparator: U images, C channels, S pixels a side, P pairs.
"""

import json

import torch
from torch import Tensor

from exporters.onnx import Artifact, Part, Program, examples
from models.images.comparator.interface import Comparator
from models.images.comparator.siamese import TowerSiamese


class Encoder(Part[Comparator]):
    """From images (U, C, S, S) uint8 to encodings (U, ...)."""

    def forward(self, images: Tensor) -> Tensor:
        """Encode images."""
        return self.model.encode(images)


class Comparison(Part[Comparator]):
    """From encodings and pairs of their rows (P,) to logits (P, 3) of First, Second and Similar, by attribute."""

    def forward(self, encoded: Tensor, first: Tensor, second: Tensor) -> tuple[Tensor, ...]:
        """Compare pairs of encodings."""
        return tuple(each.compare_encoded(encoded, first, second) for each in self.model.views.values())


def describe(model: Comparator) -> Artifact:
    """Return the programs of a comparator; a vision tower becomes part of the first."""
    config = model.config
    if isinstance(first := model.of(None), TowerSiamese):
        first.tower.sight.fix(config.size)
    logits = ["logits", *(f"logits of {name}" for name in list(model.views)[1:])]  # those of the first attribute first

    def images(number: int) -> tuple[Tensor]:
        generator = torch.Generator().manual_seed(number)
        shape = (2 + number % 6, config.channels, config.size, config.size)
        return (torch.randint(256, shape, generator=generator, dtype=torch.uint8),)

    def pairs(number: int) -> tuple[Tensor, ...]:
        with torch.no_grad():
            encoded = model.encode(*images(number))
        generator = torch.Generator().manual_seed(number)
        return encoded, *torch.randint(len(encoded), (2, 1 + number % 9), generator=generator)

    compared = {"encoded": {0: "images"}, "first": {0: "pairs"}, "second": {0: "pairs"}}
    settings = {**model.describe(), "size": config.size, "channels": config.channels}
    return Artifact(
        programs=[
            Program("encoder", Encoder(model), {"images": {0: "images"}}, ["encoded"], images),
            Program("comparison", Comparison(model), compared, logits, pairs),
        ],
        example=examples.script("comparator"),
        files={"settings.json": json.dumps(settings, indent=1).encode()},
    )
