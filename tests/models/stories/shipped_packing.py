"""How the models that ship are packed: for `models.io.save(model, folder, state=packed(model.state_dict()))`."""

from collections.abc import Mapping

import torch
from torch import Tensor

from models.stories.quantization import SCALE


def packed(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return a state dict as it is stored."""
    found = {}
    for name, tensor in tensors.items():
        if name.startswith("memory.mean_") or name.endswith(".weight"):
            scale = tensor.abs().amax(1) / 127
            found[name] = (tensor / torch.where(scale == 0, 1, scale)[:, None]).round().to(torch.int8)
            found[name + SCALE] = scale
        else:
            found[name] = tensor.half() if tensor.is_floating_point() else tensor
    return found
