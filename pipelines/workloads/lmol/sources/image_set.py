"""The form in which every source hands over its images."""

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np


@dataclass(frozen=True)
class ImageSet:
    """N images of one size with their scores."""

    images: np.ndarray  # (N, S, S, C) uint8
    scores: np.ndarray  # (N,) int64, in units
    unit: Fraction
    theta: int  # the source's own or the config's, in units
    attribute: str  # "which ranks higher in ..."
    groups: list[str]  # images of a group stay together
    names: list[str]
    families: list[str]
    facts: Mapping[str, Any]
