"""The memory that training a comparator on a large base will need, told before it is asked for."""

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from pipelines.workloads.lmol.task import ComparisonTask

TOLD_FROM = 2**30  # bytes of weights; less fits anywhere, and finding out takes a second or two
MOMENTS = {"adamw": 2, "sgd": 1, "muon": 1}  # numbers that an optimizer keeps for each that trains
GB = 1e9


def note(task: "ComparisonTask", device: torch.device) -> list[str]:
    """Return a line about the memory of a training step on one process, for a large base; else none.

    What a pass takes is found out with shapes alone, for one pair and for two, and grows by as much with each further
    pair. Kernels' own work space and the driver's share, about 1 GB on a GPU, come on top.
    """
    model, training, encoded = task.model, task.config.training, task.train.encoded
    weights = sum(tensor.nbytes for tensor in [*model.parameters(), *model.buffers()])
    if not model.large_base or encoded is None or weights < TOLD_FROM:
        return []
    trained = sum(parameter.nbytes for parameter in model.parameters() if parameter.requires_grad)
    states = trained * (MOMENTS.get(training.optimizer, 2) + (training.ema is not None))
    parts = {"weights": weights, "optimizer": states, "features": encoded.nbytes if encoded.device == device else 0}
    fixed, total = sum(parts.values()), total_bytes(device)
    if task.config.model.four_bit:  # whose layers have no shapes without values
        return [f"memory: needs at least {fixed / GB:.1f} of {total / GB:.0f} GB, before any pass ({_told(parts)})"]
    one, two = (model.training_bytes(pairs, encoded.shape[1:]) for pairs in (1, 2))
    asked = training.micro_batch_size
    pairs = asked if isinstance(asked, int) else training.batch_size
    parts["a pass"] = one + (pairs - 1) * (two - one)
    most = max(0, 1 + (total - fixed - one) // (two - one))
    return [
        f"memory: needs {sum(parts.values()) / GB:.1f} of {total / GB:.0f} GB with {pairs} pairs at once "
        f"({_told(parts)}); {most} would fit"
    ]


def total_bytes(device: torch.device) -> int:
    """Return the device's memory."""
    if device.type == "cuda":
        return torch.cuda.get_device_properties(device).total_memory
    import psutil

    return psutil.virtual_memory().total


def _told(parts: dict[str, int]) -> str:
    return ", ".join(f"{name} {size / GB:.1f}" for name, size in parts.items())
