"""The routing kernels' places taken by native code, so that an emulated device can count what a GPU would be sent."""

from collections.abc import Callable

import torch
from torch import Tensor

from models.routing import kernels, native

PLACES: dict[str, Callable[..., None]] = {}


def install() -> None:
    """Let the emulated device use kernels; comparing them with torch is then a comparison of native code."""
    kernels.DEVICES.add("emulated")
    register(build_tours=build_tours, score_tours=score_tours)


def register(**functions: Callable[..., None]) -> None:
    """Let functions take the places of kernels on the CPU."""
    for name, function in functions.items():
        if name not in PLACES:
            kernels.LIBRARY.impl(name, lambda *arguments, name=name: PLACES[name](*arguments), "CPU")
        PLACES[name] = function


def build_tours(tensors, first, uniform, heads, precision, actions, log_prob) -> None:
    _native("build_tours", tensors, heads, actions, first, uniform, log_prob)


def score_tours(tensors, actions, ends, begin, heads, precision, upstream, found) -> None:
    if upstream is None:
        _native("score_tours", tensors, heads, actions, begin, ends, *found, *[None] * 8)
        return
    batch, width = tensors[0].shape[:2]
    slopes = [torch.empty(tensor.shape) for tensor in tensors[:4]]
    load, distance = torch.empty(batch, width), torch.empty(batch)
    _native("score_tours", tensors, heads, actions, begin, ends, None, upstream, *slopes, load, distance, None)
    query, key, value, pointer = slopes
    columns = (query.transpose(1, 2), key.transpose(1, 2).flatten(2), value.permute(0, 3, 1, 2).flatten(2), pointer)
    for into, what in zip(found, (torch.stack(columns, 1), load, distance), strict=True):
        into.view(batch, -1, *what.shape[1:])[:, 0] = what  # as if an instance's first program had done all


def _native(name: str, tensors: list[Tensor], heads: int, actions: Tensor, *others: Tensor | int | None) -> None:
    query, key, value, pointer, load, weight, distance, demand, capacity = tensors
    given = (query, key, value, pointer, load, weight), (distance, demand, capacity)
    native._decode(name, heads, *given, actions, *others)
