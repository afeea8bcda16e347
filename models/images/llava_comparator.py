"""The family of comparators that asked a LLaVA only; their folders are read as those of `vlm_comparator`."""

from collections.abc import Mapping
from typing import Any

from models.images import vlm_comparator

PROMPT = "USER: <image>\n<image>\n{question} ASSISTANT:"  # whatever chat template the base came with


def build(config: Mapping[str, Any]) -> vlm_comparator.VlmComparator:
    """Build the model from the fields that these comparators had; ValueError names what does not fit."""
    of_hub = config.get("base") and not vlm_comparator.bases.is_ours(str(config["base"]))
    return vlm_comparator.build({**({"prompt": PROMPT} if of_hub else {}), **config})
