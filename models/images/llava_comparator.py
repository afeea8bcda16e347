"""The family of comparators that asked a LLaVA only; their folders are read as those of `vlm_comparator`."""

from collections.abc import Mapping

from models.images import vlm_comparator
from models.images.vlm_comparator.bases import is_ours
from models.images.vlm_comparator.model import VlmComparator

PROMPT = "USER: <image>\n<image>\n{question} ASSISTANT:"  # whatever chat template the base came with


def build(config: Mapping[str, object]) -> VlmComparator:
    """Build the model from the fields that these comparators had; ValueError names what does not fit."""
    of_hub = config.get("base") and not is_ours(str(config["base"]))
    return vlm_comparator.build({**({"prompt": PROMPT} if of_hub else {}), **config})
