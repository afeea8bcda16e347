"""A vision-language model as a comparator: its prompt has both images and a question.

The answer is its logits of three words, First, Second and Similar, after the prompt. Asked for levels (`levels.py`), it
sees one image, and rates it by one of five words, from Bad to Excellent. With `lora` (Hu et al. 2022) the base stays
frozen except for low-rank adapters in the language model and for the projector, which continues from its trained
weights. Only these are stored; the base is named, with its revision, or built again from the config's seed.

Shapes: U images, P pairs, L tokens of the prompt, T tokens of an image, V channels of the vision tower, D of the
language model.
"""

from collections.abc import Mapping

from models import io
from models.images.vlm_comparator.config import PAIRS, VlmComparatorConfig
from models.images.vlm_comparator.levels import LevelComparator
from models.images.vlm_comparator.model import VlmComparator


def build(config: Mapping[str, object]) -> VlmComparator:
    """Build the model from the fields of VlmComparatorConfig; ValueError names what does not fit."""
    kept = {key: value for key, value in config.items() if key != "pool" or value}  # of older folders
    fields = io.config_from(VlmComparatorConfig, kept)
    return VlmComparator(fields) if fields.question == PAIRS else LevelComparator(fields)
