"""The common form of all sources' images: written to a file in pieces, as they are made."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import BinaryIO

import numpy as np

from common.plain import Plain
from models.images import image_files


@dataclass(frozen=True)
class Squares:
    """Images of one size, with thumbnails to find near duplicates by."""

    images: np.ndarray  # (n, S, S, C) uint8
    thumbnails: np.ndarray  # (n, 16, 16) uint8


@dataclass(frozen=True)
class ImageSet:
    """N images of one size with their scores."""

    squares: Squares  # whose images are mapped from a file
    scores: np.ndarray  # (N,) int64, in units
    unit: Fraction
    theta: int  # the source's own or the config's, in units
    attribute: str  # "which ranks higher in ..."
    groups: list[str]  # images of a group stay together
    names: list[str]
    families: list[str]
    facts: Mapping[str, Plain]
    labels: np.ndarray | None = None  # (P, 3) int64 first, second, label: pairs that people labelled
    errors: np.ndarray | None = None  # (N,) standard errors of the scores, on the user's scale, where they are known
    raters: np.ndarray | None = None  # (P,) names of those who labelled the pairs
    trust: np.ndarray | None = None  # (P,) of the training answers, from 0 to 1, by who gave them
    scored: bool = True  # False if only labels are known, and scores are yet to be fitted

    @property
    def images(self) -> np.ndarray:
        """The images (N, S, S, C) uint8."""
        return self.squares.images


def as_squares(images: Sequence[np.ndarray]) -> Squares:
    """Return images (S, S, C) uint8 with their thumbnails."""
    return Squares(np.array(images), np.array([image_files.thumbnail(image) for image in images]))


def write(path: Path, parts: Iterable[Squares]) -> Squares:
    """Write all parts, which may be empty, to a .npy file one by one; return them with images mapped from it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    shape, thumbnails = (0,), [np.empty((0, 16, 16), np.uint8)]
    with path.open("wb") as file:
        _write_header(file, shape)
        for part in parts:
            if len(part.images):
                shape = (shape[0] + len(part.images), *part.images.shape[1:])
                if len(thumbnails) == 1:
                    _write_header(file, shape)
                file.write(part.images.data)
                thumbnails.append(part.thumbnails)
        _write_header(file, shape)
    return Squares(np.load(path, mmap_mode="r"), np.concatenate(thumbnails))


def _write_header(file: BinaryIO, shape: tuple[int, ...]) -> None:
    """Write the file's header at its beginning; it is padded so that the number of images does not change its size."""
    file.seek(0)
    np.lib.format.write_array_header_1_0(file, {"descr": "|u1", "fortran_order": False, "shape": shape})
