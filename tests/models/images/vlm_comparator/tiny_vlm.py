"""Tiny vision-language comparators and images for tests."""

import torch

from models.images.vlm_comparator import build

TINY = {"size": 16, "width": 16, "layers": 2, "heads": 2, "patch": 4}


def make(**changes):
    """A tiny vision-language comparator with random weights."""
    torch.manual_seed(0)
    return build({**TINY, **changes}).eval()


def trained(model):
    """The names of the parameters that train."""
    return {name for name, parameter in model.named_parameters() if parameter.requires_grad}


def some_images(count=3):
    """Random images (count, 1, 16, 16) uint8."""
    return torch.randint(0, 256, (count, 1, 16, 16), generator=torch.Generator().manual_seed(1)).to(torch.uint8)
