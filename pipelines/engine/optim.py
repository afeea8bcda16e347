"""Optimizers and schedules of the learning rate; a new one is one table entry.

Configs offer the tables' names and are read before torch is imported, so only the functions import it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from common.errors import UserError

if TYPE_CHECKING:
    from torch import nn
    from torch.optim import Optimizer

    from pipelines.engine.config import Training

RATE_FACTOR = "rate_factor"  # of a group of parameters: what the learning rate is multiplied by
DECAY_SHARE = 0.2  # of the updates after warm-up in which wsd falls (Haegele et al. 2024)


def _adamw(model: nn.Module, training: Training) -> list[Optimizer]:
    """AdamW (Loshchilov and Hutter 2019); weight decay on matrices, not on biases, gains and scalars."""
    return [_adamw_over(model, [p for p in model.parameters() if p.requires_grad], training)]


def _adamw_over(model: nn.Module, parameters: Sequence[nn.Parameter], training: Training) -> Optimizer:
    import torch

    groups = _groups(model, parameters, training.weight_decay)
    return torch.optim.AdamW(groups, lr=training.learning_rate, betas=training.betas, fused=True)


def _sgd(model: nn.Module, training: Training) -> list[Optimizer]:
    """Stochastic gradient descent with momentum `training.betas[0]`; the decay is not decoupled."""
    import torch

    groups = _groups(model, [p for p in model.parameters() if p.requires_grad], training.weight_decay)
    return [torch.optim.SGD(groups, lr=training.learning_rate, momentum=training.betas[0])]


def _muon(model: nn.Module, training: Training) -> list[Optimizer]:
    """Muon (Jordan et al. 2024) for matrices other than embeddings, AdamW for the rest.

    Muon's updates are scaled to the size of AdamW's (Liu et al. 2025), so one learning rate suits both.
    """
    import torch
    from torch import nn

    embeddings = {id(module.weight) for module in model.modules() if isinstance(module, nn.Embedding)}
    parameters = [p for p in model.parameters() if p.requires_grad]
    matrices = [p for p in parameters if p.ndim == 2 and id(p) not in embeddings]
    chosen = {id(p) for p in matrices}
    others = [p for p in parameters if id(p) not in chosen]
    optimizers: list[Optimizer] = []
    if matrices:
        optimizers.append(
            torch.optim.Muon(
                _groups(model, matrices, training.weight_decay),
                lr=training.learning_rate,
                momentum=training.betas[0],
                adjust_lr_fn="match_rms_adamw",
            )
        )
    return optimizers + ([_adamw_over(model, others, training)] if others else [])


def _groups(model: nn.Module, parameters: Sequence[nn.Parameter], weight_decay: float) -> list[dict[str, Any]]:
    """Return the parameters in groups of one weight decay and one factor on the learning rate.

    A model may name parts of its parameters' names with such factors, as `rate_factors`.
    """
    factors = {
        id(parameter): factor
        for part, factor in getattr(model, "rate_factors", {}).items()
        for name, parameter in model.named_parameters()
        if part in name
    }
    found: dict[tuple[float, bool], list[nn.Parameter]] = {(1.0, False): [], (1.0, True): []}
    for parameter in parameters:
        found.setdefault((factors.get(id(parameter), 1.0), parameter.ndim < 2), []).append(parameter)
    groups: list[dict[str, Any]] = []
    for (factor, short), members in found.items():
        group = {"params": members, "weight_decay": 0.0 if short else weight_decay}
        groups += [group if factor == 1 else {**group, RATE_FACTOR: factor}] if members else []
    return groups


# (model, training) -> the optimizers that together hold every parameter that trains.
OPTIMIZERS: dict[str, Callable[[nn.Module, Training], list[Optimizer]]] = {
    "adamw": _adamw,
    "sgd": _sgd,
    "muon": _muon,
}

# Share of updates after warm-up that are done -> height of the rate between its final value (0) and its peak (1).
SCHEDULES: dict[str, Callable[[float], float]] = {
    "cosine": lambda done: (1 + math.cos(math.pi * done)) / 2,
    "constant": lambda done: 1.0,
    "linear": lambda done: 1 - done,
    "wsd": lambda done: min(1.0, (1 - done) / DECAY_SHARE),  # warm-up, stable, decay (Hu et al. 2024)
}


def learning_rate(training: Training, step: int, steps: int) -> float:
    """Return the rate of update `step`, counted from 0, of `steps`."""
    if step < training.warmup_steps:
        return training.learning_rate * (step + 1) / training.warmup_steps
    done = (step - training.warmup_steps) / max(1, steps - training.warmup_steps)
    height, floor = SCHEDULES[training.schedule](done), training.final_learning_rate
    return training.learning_rate * (floor + (1 - floor) * height)


def set_rates(optimizers: Sequence[Optimizer], rate: float) -> None:
    """Set the learning rate of the next update."""
    for group in (group for optimizer in optimizers for group in optimizer.param_groups):
        group["lr"] = rate * group.get(RATE_FACTOR, 1.0)


def total_steps(training: Training, size: int | None) -> int:
    """Return the number of updates. Raises UserError for epochs over endless data, whose `size` is None."""
    if training.steps is not None:
        return training.steps
    if size is None or training.epochs is None:
        raise UserError("training.epochs: this workload's data are endless; give training.steps instead")
    return math.ceil(training.epochs * size / training.batch_size)
