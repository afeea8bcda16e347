"""Tensors of a model that ships, in a third of the space: rows of matrices in 8 bits, as on the chip, with scales.

Entries of the counts are packed into 32 bits each, and everything else is stored in half precision.
"""

import torch
from torch import Tensor

SCALE, ENTRIES = ".scale", "counts.entries"
FIELDS = {"counts.tokens": (0, 12), "counts.tags": (12, 10), "counts.levels": (22, 10)}  # first bit and number of bits


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
        elif tensor.dtype == torch.int8:
            scale = tensors.get(name + SCALE)
            if scale is None or tensor.dim() != 2 or scale.shape != tensor.shape[:1]:
                raise ValueError(f"{name} of the weights lacks a scale for each row; copy the model again")
            found[name] = tensor * scale.clamp(-1e30, 1e30)[:, None]
        elif not name.endswith(SCALE):
            found[name] = tensor.float() if tensor.is_floating_point() else tensor
    return found
