"""Simple features of images: statistics of their texture, and the images averaged to a few pixels a side.

Shapes: U images, C channels, S pixels a side; levels are from 0 to 255.
"""

import math

import torch
from torch import Tensor
from torch.nn import functional

SCALES = 2  # at which texture is described, each half as fine as the one before
BANDS = 6  # of spatial frequency
SIDE = 8  # pixels: the largest side of averaged images
WINDOW = 7 / 6, 5  # deviation and radius in pixels of the window of local means
FEATURES = 2 + BANDS + 18 * SCALES


def texture(images: Tensor) -> Tensor:
    """Return features (U, FEATURES) of images (U, C, S, S), by which quality can be judged without a reference.

    They are moments of the locally normalised brightness and of the products of its neighbours (after Mittal et al.
    2012), at two scales; the energy of bands of spatial frequency; and how much the edges of 8 x 8 blocks stand out.
    """
    grey = images.float().mean(1)
    found = [_block_edges(grey.diff(dim=1).abs().mean(2)), _block_edges(grey.diff(dim=2).abs().mean(1)), *_energy(grey)]
    for _ in range(SCALES):
        mean = _local(grey)
        deviation = (_local(grey.square()) - mean.square()).clamp_min(0).sqrt()
        normal = (grey - mean) / (deviation + 1)
        straight = normal[:, :, 1:] * normal[:, :, :-1], normal[:, 1:] * normal[:, :-1]
        diagonal = normal[:, 1:, 1:] * normal[:, :-1, :-1]
        level = deviation.mean((1, 2))
        found += [level.log1p(), deviation.flatten(1).std(1, correction=0) / (level + 1)]
        found += [moment for each in (normal, *straight, diagonal) for moment in _moments(each.flatten(1))]
        grey = functional.avg_pool2d(grey[:, None], 2)[:, 0]
    return torch.stack(found, 1)


def coarse(images: Tensor) -> Tensor:
    """Return levels (U, C * s * s) of images (U, C, S, S), averaged over blocks to s pixels a side, SIDE at most."""
    return functional.avg_pool2d(images.float(), math.ceil(images.shape[-1] / SIDE)).flatten(1)


def _block_edges(steps: Tensor) -> Tensor:
    """Return by how much steps (U, S - 1) between lines are larger at the edges of blocks of 8 than elsewhere (U,)."""
    at_edges = steps[:, 7::8] if steps.shape[1] > 7 else steps
    return ((at_edges.mean(1) + 0.1) / (steps.mean(1) + 0.1)).log()


def _energy(grey: Tensor) -> list[Tensor]:
    """Return logarithms (U,) of the mean power in each band; by matrix products, which export to ONNX."""
    side = grey.shape[-1]
    place = torch.arange(side, device=grey.device)
    angle = 2 * math.pi / side * (place[:, None] * place % side)
    one, other = angle.cos(), angle.sin()
    centred = grey - grey.mean((1, 2), keepdim=True)
    down, across = one @ centred, other @ centred
    power = ((down @ one - across @ other).square() + (down @ other + across @ one).square()) / side**2
    frequency = torch.minimum(place, side - place) / side
    radius = (frequency[:, None].square() + frequency.square()).sqrt()
    band = (radius * (2 * BANDS)).long().clamp_max(BANDS - 1)
    inside = [(band == each).float() for each in range(BANDS)]
    return [((power * each).sum((1, 2)) / each.sum().clamp_min(1)).log1p() for each in inside]


def _local(grey: Tensor) -> Tensor:
    """Return means (U, S, S) over a Gaussian window about each pixel; the edge is repeated."""
    deviation, radius = WINDOW
    weights = (-(torch.arange(-radius, radius + 1, device=grey.device) / deviation).square() / 2).exp()
    weights = weights / weights.sum()
    wide = functional.pad(grey[:, None], (radius,) * 4, mode="replicate")
    down = functional.conv2d(wide, weights[None, None, :, None])
    return functional.conv2d(down, weights[None, None, None])[:, 0]


def _moments(values: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return (U,) of values (U, n): mean, deviation, mean absolute value over deviation, and the upper half's share."""
    deviation = values.std(1, correction=0) + 1e-9
    above = values.clamp_min(0).square().sum(1) / (values.square().sum(1) + 1e-9)
    return values.mean(1), deviation, values.abs().mean(1) / deviation, above
