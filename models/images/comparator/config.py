"""The configs of comparators: the question that all of them answer, and the sizes of the small ones."""

import math
from dataclasses import dataclass

LONGEST_SIDE = 4096  # pixels


@dataclass(frozen=True, kw_only=True)
class Question:
    """The question put to a comparator, and the scale on which its answers become scores."""

    size: int = 32  # S
    channels: int = 1  # C
    attribute: str = "score"  # the image that ranks higher has more of it
    theta: int = 0  # images whose scores differ by this many units or fewer are SIMILAR
    unit: float = 1.0  # one step of the integer scores, on the user's scale
    fit: str = "crop"  # how images become squares: the middle one, padded with white, or stretched
    references: int = 0  # R: training images with known scores, against which other images are placed

    def __post_init__(self) -> None:
        if not 1 <= self.size <= LONGEST_SIDE:
            raise ValueError(f"size is {self.size}; it must be 1 to {LONGEST_SIDE} pixels a side")
        if self.fit not in ("crop", "pad", "stretch"):
            raise ValueError(f"fit is {self.fit!r}; it must be crop, pad or stretch")
        if self.theta < 0 or self.references < 0 or not 0 < self.unit < math.inf:
            given = f"theta is {self.theta}, references {self.references}, unit {self.unit}"
            raise ValueError(f"{given}; the first two must not be negative, and the unit must be above 0")


@dataclass(frozen=True, kw_only=True)
class ComparatorConfig(Question):
    """Sizes of a small comparator."""

    kind: str = "siamese"
    width: int = 64
    layers: int = 3  # convolutions, each of which halves the sides
    base: str = ""  # a folder or a hub id, whose vision tower replaces convolutions
    revision: str = ""  # of the base: the hub's commit, or the SHA-256 of a folder's weights
    tune: str = "head"  # trained parts over a base: none and head: the head alone; last: also the last blocks; all
    supports: int = 0  # over a base: training images stored for the regressions' kernels
    levels: int = 0  # L, over a base: levels of the score that the regressions also predict
    texture: bool = False  # judge by fine detail wherever it is, not by shapes
