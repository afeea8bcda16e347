"""Averages of weights over training."""

import contextlib
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn


class Average:
    """Exponential moving average of parameters, kept on their device and in their type (Polyak and Juditsky 1992).

    The decay of update k is at most (1 + k) / (10 + k), so that the initial weights are soon forgotten. Buffers are
    not averaged.
    """

    def __init__(self, parameters: Sequence[nn.Parameter], decay: float):
        self.parameters, self.decay = list(parameters), decay
        self.values: list[Tensor] = [p.detach().clone() for p in self.parameters]

    def update(self, step: int) -> None:
        """Move towards the parameters after update `step`, counted from 1."""
        decay = min(self.decay, (1 + step) / (10 + step))
        torch._foreach_lerp_(self.values, [p.detach() for p in self.parameters], 1 - decay)

    @contextlib.contextmanager
    def in_place(self) -> Iterator[None]:
        """Give the model the averaged weights within the block."""
        self._swap()
        try:
            yield
        finally:
            self._swap()

    def _swap(self) -> None:
        for parameter, value in zip(self.parameters, self.values, strict=True):
            kept = parameter.detach().clone()
            parameter.detach().copy_(value)
            value.copy_(kept)
