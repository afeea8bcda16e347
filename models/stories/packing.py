"""Tensors of a model that ships, in a third of the space: rows of the memory in 8 bits, as on the chip, with scales.

Entries of the counts are packed into 32 bits each, and everything else is stored in half precision.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

SCALE, ENTRIES = ".scale", "counts.entries"
FIELDS = {"counts.tokens": (0, 12), "counts.tags": (12, 10), "counts.levels": (22, 10)}  # first bit and number of bits


def packed(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return a state dict as it is stored; for `models.io.save(model, folder, state=packed(model.state_dict()))`."""
    found, entries = {}, torch.zeros((), dtype=torch.int64)
    for name, tensor in tensors.items():
        if name.startswith("memory.mean_"):
            scale = tensor.abs().amax(1) / 127
            found[name] = (tensor / torch.where(scale == 0, 1, scale)[:, None]).round().to(torch.int8)
            found[name + SCALE] = scale
        elif name in FIELDS:
            entries = entries | tensor.long() << FIELDS[name][0]
        elif name == "counts.starts":
            found[name] = tensor.diff().to(torch.uint8)  # sizes of the buckets
        else:
            found[name] = tensor.half() if tensor.is_floating_point() else tensor
    return found | ({ENTRIES: entries.to(torch.int32)} if entries.dim() else {})


def unpacked(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return stored tensors as a model has them; those of a model that is stored as it is stay unchanged.

    Raises ValueError for rows without scales and for what is no list.
    """
    if not any(name == ENTRIES or name.endswith(SCALE) for name in tensors):
        return tensors
    found = {}
    for name, tensor in tensors.items():
        if name in (ENTRIES, "counts.starts") and tensor.dim() != 1:
            raise ValueError(f"{name} of the weights has {tensor.dim()} dimensions; copy the model again")
        if name == ENTRIES:
            for field, (first, bits) in FIELDS.items():
                found[field] = ((tensor.long() >> first) & (1 << bits) - 1).to(torch.int16)
        elif name == "counts.starts":
            found[name] = torch.cat([torch.zeros(1), tensor.cumsum(0)]).to(torch.int32)
        elif name.startswith("memory.mean_") and not name.endswith(SCALE):
            scale = tensors.get(name + SCALE)
            if scale is None or tensor.dim() != 2 or scale.shape != tensor.shape[:1]:
                raise ValueError(f"{name} of the weights lacks a scale for each row; copy the model again")
            found[name] = tensor * scale.clamp(-1e30, 1e30)[:, None]
        elif not name.endswith(SCALE):
            found[name] = tensor.float() if tensor.is_floating_point() else tensor
    return found
