"""Optimizers and schedules of the learning rate, a table entry each; torch is imported late, configs need the names."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import nn
    from torch.optim import Optimizer

RATE_FACTOR = "rate_factor"  # of a group of parameters: its learning rate is this share of the others'
DECAY_SHARE = 0.2  # of the updates after warm-up in which wsd falls (Haegele et al. 2024)


def _adamw(model: nn.Module, learning_rate: float, weight_decay: float, betas: tuple[float, float]) -> list[Optimizer]:
    """AdamW (Loshchilov and Hutter 2019); weight decay on matrices, not on biases, gains and scalars."""
    import torch

    return [torch.optim.AdamW(_groups(model, _trained(model), weight_decay), learning_rate, betas, fused=True)]


def _sgd(model: nn.Module, learning_rate: float, weight_decay: float, betas: tuple[float, float]) -> list[Optimizer]:
    """Stochastic gradient descent with momentum `betas[0]`; the decay is not decoupled."""
    import torch

    return [torch.optim.SGD(_groups(model, _trained(model), weight_decay), lr=learning_rate, momentum=betas[0])]


def _muon(model: nn.Module, learning_rate: float, weight_decay: float, betas: tuple[float, float]) -> list[Optimizer]:
    """Muon (Jordan et al. 2024) for matrices but embeddings, AdamW for the rest, at one rate (Liu et al. 2025)."""
    import torch

    embeddings = {id(module.weight) for module in model.modules() if isinstance(module, torch.nn.Embedding)}
    matrices = [p for p in _trained(model) if p.ndim == 2 and id(p) not in embeddings]
    others = [p for p in _trained(model) if p.ndim != 2 or id(p) in embeddings]
    optimizers: list[Optimizer] = []
    if groups := _groups(model, matrices, weight_decay):
        optimizers.append(torch.optim.Muon(groups, learning_rate, momentum=betas[0], adjust_lr_fn="match_rms_adamw"))
    if groups := _groups(model, others, weight_decay):
        optimizers.append(torch.optim.AdamW(groups, learning_rate, betas, fused=True))
    return optimizers


def _trained(model: nn.Module) -> list[nn.Parameter]:
    return [parameter for parameter in model.parameters() if parameter.requires_grad]


def _groups(model: nn.Module, parameters: Sequence[nn.Parameter], weight_decay: float) -> list[dict[str, object]]:
    """Return groups of equal weight decay and share of the rate, set by parts of names: the model's `rate_factors`."""
    factors = {
        id(parameter): factor
        for part, factor in getattr(model, "rate_factors", {}).items()
        for name, parameter in model.named_parameters()
        if part in name
    }
    found: dict[tuple[float, bool], list[nn.Parameter]] = {(1.0, False): [], (1.0, True): []}
    for parameter in parameters:
        found.setdefault((factors.get(id(parameter), 1.0), parameter.ndim < 2), []).append(parameter)
    groups: list[dict[str, object]] = []
    for (factor, short), members in found.items():
        group: dict[str, object] = {"params": members, "weight_decay": 0.0 if short else weight_decay}
        groups += [group if factor == 1 else {**group, RATE_FACTOR: factor}] if members else []
    return groups


# (model, learning rate, weight decay, betas) -> the optimizers that together hold every parameter that trains.
OPTIMIZERS: dict[str, Callable[[nn.Module, float, float, tuple[float, float]], list[Optimizer]]] = {
    "adamw": _adamw,
    "sgd": _sgd,
    "muon": _muon,
}

# Share of the updates after warm-up that are done -> the rate between its final value (0) and its peak (1).
SCHEDULES: dict[str, Callable[[float], float]] = {
    "cosine": lambda done: (1 + math.cos(math.pi * done)) / 2,
    "constant": lambda done: 1.0,
    "linear": lambda done: 1 - done,
    "wsd": lambda done: min(1.0, (1 - done) / DECAY_SHARE),  # warm-up, stable, decay (Hu et al. 2024)
}


def set_rates(optimizers: Sequence[Optimizer], rate: float) -> None:
    """Set the learning rate of the next update."""
    for group in (group for optimizer in optimizers for group in optimizer.param_groups):
        group["lr"] = rate * group.get(RATE_FACTOR, 1.0)
