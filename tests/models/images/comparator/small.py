"""Small comparators, pictures and pairs for tests."""

import torch

from models.images.comparator import build

SMALL = {"size": 16, "width": 16, "layers": 2}


def make(kind="siamese", **changes):
    """A comparator with random weights."""
    torch.manual_seed(0)
    return build({"kind": kind, **SMALL, **changes}).eval()


def pictures(count, channels=1, size=16):
    """Random images (count, channels, size, size) uint8."""
    generator = torch.Generator().manual_seed(1)
    return torch.randint(0, 256, (count, channels, size, size), generator=generator).to(torch.uint8)


def some_pairs(count, images):
    """Random pairs (2, count) of the numbers of `images` images."""
    generator = torch.Generator().manual_seed(2)
    return torch.randint(images, (2, count), generator=generator)
