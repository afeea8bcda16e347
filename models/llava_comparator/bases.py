"""Bases of LLaVA comparators: built from a config, taken from a model folder of ours, or loaded in the hub's layout."""

import contextlib
import json
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from models import io, limits
from models.llava_comparator.config import ANSWERS, IMAGE, PRESETS, PROMPT, WORDS, LlavaComparatorConfig
from models.vision_tower import Base, normalisation, unchanged

ADAPTED = r".*language_model.*\.(q_proj|k_proj|v_proj|o_proj)"  # never the vision tower, whose features are kept
PROJECTOR = "multi_modal_projector"


@dataclass
class LoadedBase:
    """A `LlavaForConditionalGeneration` and the way to ask it."""

    network: Any
    ours: bool  # its vocabulary is WORDS
    revision: str
    prompt: str
    prompt_ids: list[int]
    answer_ids: list[int]  # of ANSWERS
    mean: Sequence[float] | None  # of pixels, by which the vision tower's input is normalised
    std: Sequence[float] | None


def load_base(config: LlavaComparatorConfig) -> LoadedBase:
    """Return the base that the config names, or build it; ValueError for one that is missing or does not fit."""
    with limits.paused() if config.base else limits.for_built_base() if config.lora else contextlib.nullcontext():
        if config.base and not _is_ours(config.base):
            return _from_hub(config)
        network, revision = _from_ours(config) if config.base else (_built(config), config.revision)
    prompt_ids, answer_ids = [WORDS.index(word) for word in PROMPT.split()], [WORDS.index(word) for word in ANSWERS]
    return LoadedBase(network, True, revision, PROMPT, prompt_ids, answer_ids, (0.5,) * 3, (0.5,) * 3)


def pools(base: str) -> bool:
    """Return True for a base that averages tokens; only bases that were trained here may."""
    return _is_ours(base) and bool(io.described(Path(base))["config"].get("pool"))


def _is_ours(base: str) -> bool:
    """Return True for a model folder that `models.io` wrote."""
    path = Path(base) / io.CONFIG
    found = json.loads(path.read_bytes()) if path.is_file() else None
    return isinstance(found, dict) and "family" in found


def _built(config: LlavaComparatorConfig) -> nn.Module:
    """Return a LLaVA with random weights, which depend on the config alone."""
    from transformers import AutoModelForImageTextToText, CLIPVisionConfig, LlamaConfig, LlavaConfig

    vision: dict[str, Any]
    text: dict[str, Any]
    preset = PRESETS.get(config.preset)
    if preset is None:
        shape = {
            "hidden_size": config.width,
            "intermediate_size": 2 * config.width,
            "num_hidden_layers": config.layers,
            "num_attention_heads": config.heads,
        }
        vision = {**shape, "image_size": config.size, "patch_size": config.patch}
        text = {**shape, "vocab_size": len(WORDS)}
    else:
        vision, text = preset["vision"], preset["text"]
    ids: dict[str, Any] = {"pad_token_id": 0, "bos_token_id": WORDS.index("<s>"), "eos_token_id": 1}
    settings = LlavaConfig(
        vision_config=CLIPVisionConfig(**vision),
        text_config=LlamaConfig(**text, **ids, max_position_embeddings=4096),
        image_token_index=WORDS.index(IMAGE),
        image_seq_length=(vision["image_size"] // vision["patch_size"]) ** 2,
        vision_feature_layer=-2 if preset else -1,  # the usual -2 would leave the last of few layers idle
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        dtype = torch.bfloat16 if preset else torch.float32
        return AutoModelForImageTextToText.from_config(settings, dtype=dtype, attn_implementation="sdpa")


def _from_ours(config: LlavaComparatorConfig) -> tuple[Any, str]:
    """Return the network of a model that was built and trained here, and its revision."""
    if io.described(Path(config.base))["config"].get("base"):  # which might be itself
        raise ValueError(f"base {config.base} has a base of its own; give a llava that was trained whole")
    revision = unchanged(config.base, config.revision, [Path(config.base) / io.WEIGHTS])
    model = io.load(config.base)
    trained = model.config
    if not isinstance(trained, LlavaComparatorConfig) or trained.lora or trained.size != config.size:
        raise ValueError(
            f"base {config.base} must be a llava that was trained whole on images of size {config.size}; "
            f"it is {trained}"
        )
    return model.network, revision


def _from_hub(config: LlavaComparatorConfig) -> LoadedBase:
    """Load a base from a folder in Hugging Face's layout or from the hub."""
    from transformers import AutoImageProcessor, AutoTokenizer, LlavaForConditionalGeneration

    base = Base(config.base, config.revision)
    if base.settings.model_type != "llava":
        raise ValueError(f"base {config.base} is a model of type {base.settings.model_type}; give one of type llava")
    revision = base.revision()
    tokenizer, processor = base.load(AutoTokenizer), base.load(AutoImageProcessor)
    network = base.load(
        LlavaForConditionalGeneration, dtype=base.dtype, attn_implementation="sdpa", **_quantized(config)
    )
    question = f"Which of the two images ranks higher in {config.attribute}: First, Second or Similar?"
    prompt = f"USER: {IMAGE}\n{IMAGE}\n{question} ASSISTANT:"
    answer_ids = [tokenizer.encode(word, add_special_tokens=False)[0] for word in ANSWERS]
    if len(set(answer_ids)) != 3:
        raise ValueError(
            f"base {config.base}: its tokenizer does not tell {', '.join(ANSWERS)} apart by their first tokens, whose "
            f"ids are {answer_ids}"
        )
    mean, std = normalisation(processor)
    return LoadedBase(network, False, revision, prompt, tokenizer.encode(prompt), answer_ids, mean, std)


def _quantized(config: LlavaComparatorConfig) -> dict[str, Any]:
    """Return arguments of from_pretrained for weights in 4 bits."""
    if not config.four_bit:
        return {}
    from transformers import BitsAndBytesConfig

    if not torch.cuda.is_available():
        raise ValueError("four_bit needs a CUDA device; set four_bit=false")
    return {
        "device_map": {"": torch.cuda.current_device()},
        "quantization_config": BitsAndBytesConfig(
            load_in_4bit=True,
            bnb_4bit_quant_type="nf4",
            bnb_4bit_use_double_quant=True,
            bnb_4bit_compute_dtype=torch.bfloat16,
            llm_int8_skip_modules=["vision_tower", PROJECTOR, "lm_head"],
        ),
    }


def adapted(network: Any) -> Any:
    """Return the network with adapters and a copy of its projector, both trainable in float32; all else is frozen."""
    from peft import LoraConfig, get_peft_model

    settings = LoraConfig(
        r=8,
        lora_alpha=32,
        lora_dropout=0.05,
        target_modules=ADAPTED,
        modules_to_save=[PROJECTOR],
        task_type="CAUSAL_LM",
    )
    with warnings.catch_warnings():
        # peft reads an attribute of transformers that is deprecated.
        warnings.filterwarnings("ignore", message="`is_gradient_checkpointing` is deprecated", category=FutureWarning)
        adapted = get_peft_model(network, settings)
    for parameter in adapted.parameters():
        if parameter.requires_grad:
            parameter.data = parameter.data.float()
    return adapted
