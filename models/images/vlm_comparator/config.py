"""The config of a vision-language comparator, its questions, sizes of published models, words of models built here."""

import importlib.util
import re
from dataclasses import dataclass

from models.images.comparator.config import Question

ATTENTION = ("q_proj", "k_proj", "v_proj", "o_proj")  # that Hu et al. adapt, by transformers' names
PAIRS, LEVELS, BOTH = "pairs", "levels", "both"  # questions put to a model
ANSWERS = {PAIRS: ("First", "Second", "Similar"), LEVELS: ("Bad", "Poor", "Fair", "Good", "Excellent")}
ASKED = {
    PAIRS: "Which of the two images ranks higher in {attribute}: First, Second or Similar?",
    LEVELS: "How would you rate the {attribute} of the image: Excellent, Good, Fair, Poor or Bad?",
}
IMAGE = "<image>"
# The vocabulary of a model that is built from its config is made of the words of these prompts and the answers.
PROMPTS = {
    PAIRS: f"<s> USER: {IMAGE} {IMAGE} which image ranks higher ? ASSISTANT:",
    LEVELS: f"<s> USER: {IMAGE} {IMAGE} rate the image ? ASSISTANT:",
}
WORDS = ("<pad>", "</s>", *dict.fromkeys(PROMPTS[PAIRS].split()), *ANSWERS[PAIRS])
MORE_WORDS = tuple(dict.fromkeys([*WORDS, *PROMPTS[LEVELS].split(), *ANSWERS[LEVELS]]))  # with those of levels
# Sizes of published models. Their weights are random here: they serve to measure speed and memory without a download.
PRESETS: dict[str, dict[str, dict[str, int]]] = {
    "llava-1.5-7b": {
        "vision": {"hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24, "num_attention_heads": 16}
        | {"image_size": 336, "patch_size": 14},
        "text": {"hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32, "num_attention_heads": 32}
        | {"vocab_size": 32064},
    }
}
# Sizes of a base that is built here; a model with adapters stores only these, so its weights say nothing of its layers.
LARGEST = {"width": 8192, "layers": 256, "heads": 256, "patch": 256, "lora_rank": 1024}


@dataclass(frozen=True, kw_only=True)
class VlmComparatorConfig(Question):
    """The base and the part of it that trains; the sizes apply to a base that is built here."""

    base: str = ""  # a folder or a hub id; "": built from the sizes below and the seed
    revision: str = ""  # of the base: the hub's commit, or the SHA-256 of a folder's weights
    lora: bool = False  # train adapters and the projector only; without it a base that is built here trains whole
    lora_targets: tuple[str, ...] = ()  # layers of the language model that get adapters, by name; (): ATTENTION
    lora_rank: int = 8
    lora_alpha: float = 32.0  # the adapters' output is multiplied by lora_alpha / lora_rank
    lora_dropout: float = 0.05
    question: str = PAIRS  # which of two images ranks higher; LEVELS: the level of one; BOTH
    prompt: str = ""  # with {question}, perhaps {attribute}, and <image> twice; "": the base's chat template
    four_bit: bool = False  # keep the base's weights in 4 bits (Dettmers et al. 2023); needs bitsandbytes and CUDA
    preset: str = "small"  # of a base that is built here: small has the sizes below, one of PRESETS is in bfloat16
    width: int = 96
    layers: int = 3
    heads: int = 4
    patch: int = 8  # pixels a side
    seed: int = 0


def check(config: VlmComparatorConfig) -> None:
    """Raise ValueError for settings that contradict each other."""
    if config.base and not config.lora:
        raise ValueError(f"base {config.base!r} is given, so set lora=true too: on a base only adapters are trained")
    if config.question not in (PAIRS, LEVELS, BOTH):
        raise ValueError(f"question is {config.question!r}; known questions: {PAIRS}, {LEVELS}, {BOTH}")
    if config.four_bit and not config.base:
        raise ValueError("four_bit is for the weights of a base; give base, or set four_bit=false")
    if config.four_bit and importlib.util.find_spec("bitsandbytes") is None:
        raise ValueError("four_bit needs the package bitsandbytes, which is not installed: pip install bitsandbytes")
    if config.channels not in (1, 3):
        raise ValueError(f"channels is {config.channels}; the vision tower takes 1 (grey) or 3 (red, green, blue)")
    for name, most in LARGEST.items():
        if not 1 <= getattr(config, name) <= most:
            raise ValueError(f"{name} is {getattr(config, name)}; it must be from 1 to {most}")
    if not 0 <= config.lora_dropout < 1 or not config.lora_alpha > 0:
        given = f"lora_dropout is {config.lora_dropout}, lora_alpha {config.lora_alpha}"
        raise ValueError(f"{given}; the first must be from 0 to below 1, the second above 0")
    if unsuited := [name for name in config.lora_targets if not re.fullmatch(r"\w+", name)]:
        raise ValueError(f"lora_targets has {unsuited[0]!r}; give names of layers, such as {ATTENTION[0]}")
    if config.preset != "small":
        if config.preset not in PRESETS:
            raise ValueError(f"preset is {config.preset!r}; known presets: small, {', '.join(PRESETS)}")
        if config.base or not config.lora:
            raise ValueError(f"preset {config.preset!r} is itself a base for adapters: set lora=true, leave base out")
    built = not config.base and config.preset == "small"
    if built and config.width % (2 * config.heads):
        raise ValueError(f"width {config.width} is not an even multiple of heads {config.heads}")
    if built and config.size % config.patch:
        raise ValueError(f"size {config.size} is not a multiple of patch {config.patch}")
