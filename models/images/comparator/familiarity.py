"""Detects images unlike a comparator's training images, whose scores and intervals mean little."""

import torch
from torch import Tensor
from torch.nn import functional

NOTE = "unlike the images that the model was trained on: this answer means little"
FEWEST = 40  # references for a note: an image like them then gets one only once in 41 times
CELLS = 8  # a side; their mean levels are compared


def notes(images: Tensor, references: Tensor) -> list[dict[str, str]]:
    """Return {"note": NOTE} for each image (U, C, S, S) farther from all references than any of these is, or {}."""
    if len(references) < FEWEST:
        return [{} for _ in images]
    known, shown = levels(references), levels(images).to(references.device)
    return [{"note": NOTE} if far else {} for far in (torch.cdist(shown, known).min(1).values > reach(known)).tolist()]


def reach(known: Tensor) -> float:
    """Return the largest nearest-neighbour distance among the references' levels (R, ...)."""
    return float(torch.cdist(known, known).fill_diagonal_(torch.inf).min(1).values.max())


def levels(images: Tensor) -> Tensor:
    """Return mean levels (U, C * CELLS ** 2) of images (U, C, S, S), 256 images at a time."""
    return torch.cat([functional.adaptive_avg_pool2d(each.float(), CELLS).flatten(1) for each in images.split(256)])
