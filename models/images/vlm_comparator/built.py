"""A small LLaVA (Liu et al. 2023) that is built from the config, or one of a published size, and its processor."""

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional

from models.images.vlm_comparator.config import IMAGE, MORE_WORDS, PAIRS, PRESETS, PROMPTS, WORDS, VlmComparatorConfig

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, ProcessorMixin


def built(config: VlmComparatorConfig) -> nn.Module:
    """Return a LLaVA with random weights, which depend on the config alone."""
    from transformers import AutoModelForImageTextToText, LlavaConfig

    shape = {"hidden_size": config.width, "intermediate_size": 2 * config.width}
    shape |= {"num_hidden_layers": config.layers, "num_attention_heads": config.heads}
    preset = PRESETS.get(config.preset)
    vision = preset["vision"] if preset else {**shape, "image_size": config.size, "patch_size": config.patch}
    words = WORDS if config.question == PAIRS else MORE_WORDS
    text = preset["text"] if preset else {**shape, "vocab_size": len(words)}
    ids = {"pad_token_id": 0, "bos_token_id": WORDS.index("<s>"), "eos_token_id": 1}
    settings = LlavaConfig(
        vision_config={"model_type": "clip_vision_model", **vision},
        text_config={"model_type": "llama", **text, **ids, "max_position_embeddings": 4096},
        image_token_index=WORDS.index(IMAGE),
        image_seq_length=(vision["image_size"] // vision["patch_size"]) ** 2,
        vision_feature_layer=-2 if preset else -1,  # the usual -2 would leave the last of few layers idle
    )
    given = {"dtype": torch.bfloat16 if preset else torch.float32, "attn_implementation": "sdpa"}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        model: nn.Module = AutoModelForImageTextToText.from_config(settings, **given)
    return model


def processor_for(settings: "PreTrainedConfig") -> "ProcessorMixin":
    """Return the processor of a model built here, with a token for each of MORE_WORDS in its vocabulary."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import CLIPImageProcessorPil, LlavaProcessor, PreTrainedTokenizerFast

    known = MORE_WORDS[: settings.text_config.vocab_size]
    words = Tokenizer(models.WordLevel({word: i for i, word in enumerate(known)}, unk_token="<pad>"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    marks = {"pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>"}
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, **marks, extra_special_tokens={"image_token": IMAGE})
    side = settings.vision_config.image_size
    return LlavaProcessor(
        image_processor=CLIPImageProcessorPil(
            size={"shortest_edge": side},
            crop_size={"height": side, "width": side},
            image_mean=[0.5] * 3,
            image_std=[0.5] * 3,
        ),
        tokenizer=tokenizer,
        patch_size=settings.vision_config.patch_size,
        vision_feature_select_strategy=settings.vision_feature_select_strategy,
        num_additional_image_tokens=1,
        chat_template=PROMPTS[PAIRS],  # it has one question about two images
    )


def prompt_ids(settings: "PreTrainedConfig", prompt: str) -> Tensor:
    """Return the ids (1, L) that `processor_for` makes of a prompt, without writing out its image tokens."""
    marks = {IMAGE: settings.image_seq_length}
    return torch.tensor([[MORE_WORDS.index(word) for word in prompt.split() for _ in range(marks.get(word, 1))]])


def pixel_values(images: Tensor, settings: "PreTrainedConfig", dtype: torch.dtype) -> dict[str, Tensor]:
    """Return the pixel values of `processor_for` for images (U, C, S, S) from 0 to 1, computed on their device."""
    side = settings.vision_config.image_size
    images = images.expand(-1, 3, -1, -1)
    if images.shape[-1] != side:
        images = functional.interpolate(images, size=(side, side), mode="bicubic", antialias=True).clamp(0, 1)
    return {"pixel_values": ((images - 0.5) / 0.5).to(dtype)}
