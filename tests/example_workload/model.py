"""A network with one hidden layer. This file is all that an exporter needs: it imports nothing of its package."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from models import io


@dataclass(frozen=True)
class WavesConfig:
    """Sizes of a Waves."""

    window: int
    width: int


class Waves(io.Model):
    """Predicts the next value of a wave."""

    family = "waves"

    def __init__(self, config: WavesConfig):
        super().__init__()
        self.config = config
        self.layers = nn.Sequential(nn.Linear(config.window, config.width), nn.Tanh(), nn.Linear(config.width, 1))

    def forward(self, past: Tensor) -> Tensor:
        """Past values (b, window) -> the value after them (b,)."""
        return self.layers(past)[:, 0]

    def example(self) -> dict[str, Any]:
        """Arguments of a call, by which an export is compared with its original."""
        return {"past": torch.linspace(-1, 1, self.config.window)[None]}


def build(config: dict[str, Any]) -> Waves:
    """The model of a saved config. Raises ValueError for unknown keys and wrong values."""
    return Waves(io.config_from(WavesConfig, config))
