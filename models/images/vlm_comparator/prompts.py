"""The question put to a base: its text, the processor's inputs for it, and the tokens of the answers."""

import warnings
from collections.abc import Callable

import torch
from PIL import Image
from torch import Tensor

from models.images.comparator.interface import pixels
from models.images.vision_tower import quietly
from models.images.vlm_comparator.bases import LoadedBase
from models.images.vlm_comparator.built import Processor, prompt_ids
from models.images.vlm_comparator.config import ANSWERS, VlmComparatorConfig


def text_of(config: VlmComparatorConfig, base: LoadedBase) -> str:
    """Return the prompt with a mark for each image, by the config, the chat template, or the family."""
    question = f"Which of the two images ranks higher in {config.attribute}: First, Second or Similar?"
    if not config.prompt and base.processor.chat_template:
        from transformers import ProcessorMixin

        content = [{"type": "image"}, {"type": "image"}, {"type": "text", "text": question}]
        messages = [{"role": "user", "content": content}]
        # Not the processor's own method, since that of some needs a part for videos.
        ask: Callable[..., str] = ProcessorMixin.apply_chat_template
        return ask(base.processor, messages, add_generation_prompt=True, tokenize=False)
    asked = config.prompt or base.family.prompt
    if not asked:
        raise ValueError(f"base {config.base} has no chat template; give prompt, with {{question}} and <image> twice")
    return asked.replace("{question}", question)


def inputs_of(config: VlmComparatorConfig, base: LoadedBase, prompt: str) -> dict[str, Tensor]:
    """Return what the processor makes of the prompt and two grey images; ValueError where it cannot."""
    if base.ours:
        return {"input_ids": prompt_ids(base.network.config)}
    grey = torch.full((2, 1, config.size, config.size), 128, dtype=torch.uint8)
    try:
        return processed(base.processor, prompt, grey)
    except ValueError as error:
        raise ValueError(f"base {config.base}: its processor takes no two images with this prompt: {error}") from error


def answers_of(config: VlmComparatorConfig, base: LoadedBase, prompt: str) -> list[int]:
    """Return the ids of the tokens by which the answers begin after the prompt; ValueError if two are the same."""
    prompt += base.family.ending
    between = " " if prompt.endswith(":") else ""

    def ids(text: str) -> list[int]:
        return base.processor.tokenizer(text, add_special_tokens=False)["input_ids"]

    asked, found = ids(prompt), []
    for word in ANSWERS:
        answered = ids(prompt + between + word)
        found.append(next((b for a, b in zip([*asked, -1], answered, strict=False) if a != b), -1))
    if len(set(found)) != len(ANSWERS):
        raise ValueError(
            f"base {config.base}: its tokenizer does not tell {', '.join(ANSWERS)} apart by their first tokens, whose "
            f"ids are {found}"
        )
    return found


def processed(processor: Processor, prompt: str, images: Tensor) -> dict[str, Tensor]:
    """Return what a processor makes of the prompt, once for each two of images (U, C, S, S); an odd one comes twice."""
    shown = (pixels(images) * 255).round().byte().expand(-1, 3, -1, -1).movedim(1, -1).cpu().numpy()
    pictures = [Image.fromarray(each) for each in shown]
    pictures += pictures[-1:] * (len(pictures) % 2)
    pairs = [list(pair) for pair in zip(pictures[::2], pictures[1::2], strict=True)]
    # As transformers' own apply_chat_template does.
    start = processor.tokenizer.bos_token
    further = {"add_special_tokens": False} if start and prompt.startswith(start) else {}
    with quietly(), warnings.catch_warnings():
        warnings.filterwarnings(
            "ignore", message="__array__ implementation", category=DeprecationWarning
        )  # PaliGemma's
        return dict(processor(text=[prompt] * len(pairs), images=pairs, return_tensors="pt", **further))
