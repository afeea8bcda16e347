"""The common form of all sources' images: written to a file in pieces, as they are made."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from models.images import image_files


@dataclass(frozen=True, kw_only=True)
class Scored:
    """N images of one size, S pixels a side with C channels, with their scores."""

    images: np.ndarray  # (N, S, S, C) uint8, mapped from a file, so that a row is read when it is used
    scores: np.ndarray  # (N,) int64, in units
    theta: int  # images whose scores differ by at most this are similar
    attribute: str  # the image that ranks higher has more of it
    groups: list[str]  # of each image; images of a group stay together
    names: list[str]
    families: list[str]
    facts: Mapping[str, Any]
    errors: np.ndarray | None = None  # (N,) standard errors of the scores, on the user's scale, where they are known
    trust: np.ndarray | None = None  # (P,) of the training answers, from 0 to 1, where who gave them is known
    scored: bool = True  # False if only people's answers about pairs are known, to which scores are fitted


@dataclass(frozen=True, kw_only=True)
class ImageSet(Scored):
    """The images of a source."""

    thumbnails: np.ndarray  # (N, 32, 32) uint8, by which near duplicates are found
    unit: Fraction
    labels: np.ndarray | None = None  # (P, 3) int64 first, second, label: pairs that people labelled
    raters: np.ndarray | None = None  # (P,) names of those who labelled the pairs
    known: np.ndarray | None = None  # (N,) True if an image is scored or compared; None if all are
    others: "tuple[ImageSet, ...]" = ()  # the same images by further attributes


def write(path: Path, parts: Iterable[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Write all parts (n, S, S, C), which may be empty, to a .npy file one by one; return images and thumbnails."""
    path.parent.mkdir(parents=True, exist_ok=True)
    shape, thumbnails = (0,), [np.empty((0, image_files.FINE, image_files.FINE), np.uint8)]
    with path.open("wb") as file:
        _write_header(file, shape)
        for part in (part for part in parts if len(part)):
            shape = (shape[0] + len(part), *part.shape[1:])
            if len(thumbnails) == 1:
                _write_header(file, shape)
            file.write(part.data)
            thumbnails.append(np.array([image_files.thumbnail(image) for image in part]))
        _write_header(file, shape)
    return np.load(path, mmap_mode="r"), np.concatenate(thumbnails)


def _write_header(file: BinaryIO, shape: tuple[int, ...]) -> None:
    """Write the file's header at its beginning; it is padded so that the number of images does not change its size."""
    file.seek(0)
    np.lib.format.write_array_header_1_0(file, {"descr": "|u1", "fortran_order": False, "shape": shape})
