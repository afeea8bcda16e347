"""A network with one hidden layer. This file is all that loading a model needs: it imports nothing of its package."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from pydantic import Field
from torch import Tensor, nn

from common.config import Section
from models import io
from models.inputs import Input


class WavesInput(Input):
    """The beginning of a wave."""

    past: tuple[float, ...] = Field(max_length=10_000, description="values so far, at least a window of them")


class WavesSettings(Section):
    """How far to look ahead."""

    steps: int = Field(1, ge=1, le=1000, description="number of values to predict")


@dataclass(frozen=True)
class WavesConfig:
    """Sizes of a Waves."""

    window: int
    width: int


class Waves(io.Model):
    """Predicts the next value of a wave."""

    family = "waves"
    input_type, settings_type = WavesInput, WavesSettings

    def __init__(self, config: WavesConfig):
        super().__init__()
        self.config = config
        self.layers = nn.Sequential(nn.Linear(config.window, config.width), nn.Tanh(), nn.Linear(config.width, 1))

    def forward(self, past: Tensor) -> Tensor:
        """Past values (b, window) -> the value after them (b,)."""
        return self.layers(past)[:, 0]

    def prepared(self, given: WavesInput, settings: WavesSettings) -> Tensor:
        """Return the last window (window,). Raises ValueError for too few values."""
        if len(given.past) < self.config.window:
            raise ValueError(f"past has {len(given.past)} values; give {self.config.window} or more")
        return torch.tensor(given.past[-self.config.window :])

    def answers(self, prepared: Sequence[Tensor], settings: WavesSettings) -> Iterator[dict[str, Any]]:
        """Yield the next values of each wave, each predicted from those before it."""
        known = torch.stack(list(prepared))
        for _ in range(settings.steps):
            known = torch.cat([known, self(known[:, -self.config.window :])[:, None]], 1)
        yield from ({"next": row} for row in known[:, self.config.window :].tolist())

    def example(self) -> dict[str, Any]:
        """Arguments of a call, by which an export is compared with its original."""
        return {"past": torch.linspace(-1, 1, self.config.window)[None]}


def build(config: dict[str, Any]) -> Waves:
    """The model of a saved config. Raises ValueError for unknown keys and wrong values."""
    return Waves(io.config_from(WavesConfig, config))
