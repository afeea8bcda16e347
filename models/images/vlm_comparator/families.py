"""Types of vision-language models: where they differ beyond transformers' common interface.

Features of an image are kept as they enter the projector, the part between vision tower and language model that trains
with adapters. So each type names the modules of its projector, and says how their outputs become the tokens that its
own `get_image_features` returns.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

Arrange = Callable[[nn.Module, Tensor, Mapping[str, Tensor]], Tensor]


def _and_newline(model: nn.Module, tokens: Tensor, inputs: Mapping[str, Tensor]) -> Tensor:
    """Return tokens (U, T + 1, D): an image that is one of several is not cut up, and ends with a learnt token."""
    newline = model.get_parameter("image_newline").to(tokens.dtype)
    return torch.cat([tokens, newline.expand(len(tokens), 1, -1)], 1)


def _row_by_row(model: nn.Module, tokens: Tensor, inputs: Mapping[str, Tensor]) -> Tensor:
    """Return tokens (U, T, D) row by row; the tower sees them window by window."""
    from transformers.vision_utils import get_vision_window_index

    sizes = {name: getattr(model.visual, name) for name in ("spatial_merge_size", "window_size", "patch_size")}
    order, _ = get_vision_window_index(inputs["image_grid_thw"][:1], **sizes)
    return tokens[:, order.argsort().to(tokens.device)]


@dataclass(frozen=True)
class Family:
    """One type of vision-language model."""

    projectors: tuple[str, ...] = ("multi_modal_projector",)  # in the order of their calls; a list of modules as NAME.*
    # (model, the last projector's tokens (U, T, D), inputs) -> the model's own
    arrange: Arrange = lambda model, tokens, inputs: tokens
    listed: bool = False  # its features come as a list of an image's each
    prompt: str = ""  # of a processor without chat template, with {question}
    ending: str = ""  # what the processor puts after the prompt


# By `model_type` of transformers' config. Features of projectors before the last go into layers of the language model
# (Meng et al. 2024, DeepStack).
FAMILIES = {
    "llava": Family(listed=True),
    "llava_onevision": Family(arrange=_and_newline, listed=True),
    "qwen2_5_vl": Family(("visual.merger",), _row_by_row, listed=True),
    "qwen3_vl": Family(("visual.deepstack_merger_list.*", "visual.merger"), listed=True),
    "idefics3": Family(("connector",), listed=True),
    "smolvlm": Family(("connector",), listed=True),
    "internvl": Family(),
    "paligemma": Family(prompt="<image><image>answer en {question}", ending="\n"),
    "gemma3": Family(),
}


def family_of(name: str, settings: object) -> Family:
    """Return the family of base `name` by its config; ValueError names those that are known."""
    kind = getattr(settings, "model_type", type(settings).__name__)
    if kind not in FAMILIES:
        raise ValueError(f"base {name} is a model of type {kind}; give one of type {', '.join(FAMILIES)}")
    return FAMILIES[kind]


def projectors_of(model: nn.Module, family: Family) -> list[str]:
    """Return the names in `model` of the modules that are the family's projector, in the order of their calls."""
    names = []
    for name in family.projectors:
        parent, star, _ = name.partition(".*")
        names += [f"{parent}.{i}" for i, _ in enumerate(model.get_submodule(parent).children())] if star else [name]
    return names
