"""A comparator of several attributes: one encoder of images, and a head for each attribute."""

import dataclasses
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from common.plain import Plain
from models.images.comparator.config import ComparatorConfig, Question
from models.images.comparator.interface import Comparator
from models.images.comparator.scorer import Scorer
from models.images.comparator.siamese import Siamese, TowerSiamese


@dataclasses.dataclass(frozen=True, kw_only=True)
class AttributesConfig(Question):
    """The fields that all attributes share, and each attribute's own config."""

    attributes: Sequence[ComparatorConfig]


def made(configs: Sequence[ComparatorConfig]) -> Sequence[Siamese | Scorer]:
    """Return a comparator for each config, all of one kind, with a shared encoder."""
    if configs[0].kind == "scorer":
        whole = Scorer(configs[0], attributes=len(configs))
        return [whole, *(Scorer(own, whole, place) for place, own in enumerate(configs[1:], 1))]
    trunk = TowerSiamese(configs[0]) if configs[0].base else Siamese(configs[0])
    return [trunk, *(type(trunk)(own, trunk) for own in configs[1:])]


class Attributes(Comparator):
    """One siamese comparator or scorer per attribute; images are encoded once for all of them.

    Each is a comparator of its own (`of`), with its head, references, scale and regressions; they share the encoder.
    `compare` and `score` use the first attribute, as `rank` does by default.
    """

    family = "comparator"
    config: AttributesConfig

    def __init__(self, configs: Sequence[ComparatorConfig]):
        names = [each.attribute for each in configs]
        alike = len({(each.kind, each.base) for each in configs}) == 1
        if len(configs) < 2 or len(set(names)) < len(names) or not alike:
            raise ValueError(f"attributes are {names}; give two or more, each once, of one kind and base")
        first, *_ = heads = made(configs)
        about = {name: getattr(first.config, name) for name in ("size", "channels", "fit")}
        own = [each.config for each in heads]
        super().__init__(AttributesConfig(**about, attribute=", ".join(names), attributes=own))
        self.heads = nn.ModuleList(heads)
        self.frozen, self.fixed, self.head_noise = first.frozen, first.fixed, first.head_noise
        self._no_split_modules = first._no_split_modules
        self.rate_factors = {f"heads.0.{name}": rate for name, rate in getattr(first, "rate_factors", {}).items()}
        self.card = {"Attributes": "".join(f"- {name}\n" for name in names)}

    @property
    def views(self) -> Mapping[str, Comparator]:
        """Each attribute's comparator, by name."""
        return {each.config.attribute: each for each in self.heads if isinstance(each, Comparator)}

    def encode(self, images: Tensor) -> Tensor:
        """Return encodings (U, ...) of images (U, C, S, S), the same for all attributes."""
        return self.of(None).encode(images)

    def compare_encoded(self, encoded: Tensor, first: Tensor, second: Tensor) -> Tensor:
        """Return logits (A P, 3), attribute by attribute."""
        return torch.cat([each.compare_encoded(encoded, first, second) for each in self.views.values()])

    def describe(self) -> dict[str, Plain]:
        """Return the first attribute's description, with every attribute's by name under `attributes`."""
        return {**self.of(None).describe(), "attributes": {name: each.describe() for name, each in self.views.items()}}
