"""A vision-language model (LLaVA: Liu et al. 2023) as a comparator: it is shown both images and asked in words.

The answer is its logits of three words, First, Second and Similar, after the prompt. With `lora` (Hu et al. 2022) the
base stays frozen except for low-rank adapters in the language model and for the projector, which continues from its
trained weights. Only these are stored; the base is named, with its revision, or built again from the config's seed.

Shapes: U images, P pairs, T tokens of an image, V channels of the vision tower, D of the language model.
"""

from collections.abc import Mapping
from typing import Any

from models import io
from models.llava_comparator.config import LlavaComparatorConfig
from models.llava_comparator.model import LlavaComparator


def build(config: Mapping[str, Any]) -> LlavaComparator:
    """Build the model from the fields of LlavaComparatorConfig; ValueError names what does not fit."""
    return LlavaComparator(io.config_from(LlavaComparatorConfig, config))
