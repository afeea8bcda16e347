"""Comparators: models that answer which of two images ranks higher.

A comparator encodes each image once, however many pairs it appears in, and maps pairs of encodings to three logits:

    encoded = model.encode(images)                          # (U, ...)
    logits = model.compare_encoded(encoded, first, second)  # (P, 3): FIRST ranks higher, SECOND does, they are SIMILAR

Shapes: U images, P pairs, C channels, S pixels a side, T cells of an image, V channels of a tower, D width, R reference
images, A attributes.
"""

from collections.abc import Mapping, Sequence

from models.images.comparator.attributes import Attributes, made
from models.images.comparator.config import ComparatorConfig
from models.images.comparator.interface import Comparator
from models.images.vision_tower import TUNES
from models.io import config_from

KINDS = ("siamese", "scorer")
FORMER = ("heads", "words", "teacher")  # keys in older folders, of features since removed


def build(config: Mapping[str, object]) -> Comparator:
    """Build an untrained comparator from the fields of ComparatorConfig; ValueError names what does not fit.

    With `attributes`, a list of such fields, the comparator has several attributes.
    """
    if isinstance(several := config.get("attributes"), Sequence):
        return Attributes([_checked(each) for each in several])
    return made([_checked(config)])[0]


def _checked(config: Mapping[str, object]) -> ComparatorConfig:
    sizes = config_from(ComparatorConfig, {key: value for key, value in config.items() if key not in FORMER})
    if sizes.kind not in KINDS:
        raise ValueError(f"kind is {sizes.kind!r}; known kinds: {', '.join(KINDS)}")
    for name, least in {"channels": 1, "width": 1, "layers": 1, "supports": 0}.items():
        if getattr(sizes, name) < least:
            raise ValueError(f"{name} is {getattr(sizes, name)}; it must be {least} or more")
    if not sizes.base and (sizes.layers > sizes.size or sizes.size % 2**sizes.layers):
        raise ValueError(f"size {sizes.size} cannot be halved {sizes.layers} times; give another size or fewer layers")
    if sizes.tune not in TUNES:
        raise ValueError(f"tune is {sizes.tune!r}; it must be {', '.join(TUNES)}")
    if sizes.base and sizes.texture:
        raise ValueError(f"texture is an encoder of its own; set texture=false, or leave base {sizes.base!r} out")
    if sizes.base and sizes.channels not in (1, 3):
        raise ValueError(f"channels is {sizes.channels}; a base takes 1 (grey) or 3 (red, green, blue)")
    return sizes
