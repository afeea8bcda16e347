"""The comparator of a config, built for prepared images."""

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch

from common.errors import UserError
from models.comparator import build
from models.comparator.interface import Comparator
from pipelines.workloads.lmol import data

if TYPE_CHECKING:
    from pipelines.workloads.lmol import Config


def make_model(config: "Config", comparisons: data.Comparisons) -> Comparator:
    """Return the config's comparator for these images, holding the references by which it will score others."""
    model = config.model
    size, channels = comparisons.images.shape[1], comparisons.images.shape[3]
    references = torch.from_numpy(comparisons.references)
    question = {
        "size": size,
        "channels": channels,
        "attribute": comparisons.attribute,
        "theta": comparisons.theta,
        "unit": float(comparisons.unit),
        "references": len(references),
    }
    sizes = {name: value for name in ("width", "layers", "heads") if (value := getattr(model, name))}
    with explained():
        if model.kind == "vlm":
            from models import vlm_comparator
            from models.vlm_comparator.bases import pools

            pool = pools(model.base or "") if model.pool is None else model.pool
            names = ("preset", "lora", "lora_targets", "lora_rank", "lora_alpha", "lora_dropout", "prompt", "four_bit")
            choices = {name: value for name in names if (value := getattr(model, name)) is not None}
            choices |= {"base": model.base or "", "pool": pool}
            built: Comparator = vlm_comparator.build({**question, **choices, **sizes, "seed": config.seed})
        else:
            # A siamese encoder that judges by shapes halves the sides down to about four pixels.
            layers = max(1, (size // 4).bit_length() - 1) if model.kind == "siamese" and not config.texture else 2
            chosen = {"kind": model.kind, "layers": layers, "texture": config.texture, "base": model.base or ""}
            if config.texture:
                chosen["width"] = 24
            built = build({**chosen, **question, **sizes})
    built.reference_images.copy_(data.Images(comparisons.images, references.numpy())[torch.arange(len(references))])
    built.reference_scores.copy_(torch.from_numpy(comparisons.scores)[references])
    return built


@contextlib.contextmanager
def explained() -> Iterator[None]:
    """Turn a model's ValueError into a UserError, since it states what the user can change."""
    try:
        yield
    except ValueError as error:
        raise UserError(f"model: {error}") from error
