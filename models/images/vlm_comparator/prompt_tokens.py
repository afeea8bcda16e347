"""Prompts of a vision-language model as token ids, with placeholders for the images' tokens."""

import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from PIL import Image
from torch import Tensor, nn

from common.errors import as_user_error
from models.images.comparator.interface import pixels
from models.images.vision_tower import quietly
from models.images.vlm_comparator.bases import LoadedBase
from models.images.vlm_comparator.built import prompt_ids
from models.images.vlm_comparator.config import ANSWERS, ASKED, LEVELS, PAIRS, PROMPTS, VlmComparatorConfig

if TYPE_CHECKING:
    from transformers import ProcessorMixin


class Prompt(nn.Module):
    """A question about two images (PAIRS), or one (LEVELS); ValueError for a base that does not support it.

    The question about one is processed with two images, then the second is removed. So an image's tokens are the same
    in both, even where processors tile a single image.
    """

    ids: Tensor  # (1, L)
    answers: Tensor  # (A,) the first token of each answer
    positions: Tensor | None  # (3, 1, L) of models whose positions have several axes
    kinds: Tensor | None  # (1, L) of models that let some tokens see later ones

    def __init__(self, config: VlmComparatorConfig, base: LoadedBase, kind: str):
        super().__init__()
        self.images = 2 if kind == PAIRS else 1
        self.text = self.alone = text_of(config, base, kind)
        self.inputs = inputs_of(config, base, self.text)
        ids, place = self.inputs["input_ids"], base.network.config.image_token_id
        marks = (ids[0] == place).nonzero().flatten()
        if not len(marks) or len(marks) % 2:
            lacking = "its tokenizer does not know the image token, or its prompt does not have it twice"
            raise ValueError(f"base {config.base}: {lacking}, so it cannot take two images: {self.text!r}")
        self.begun = int(marks[len(marks) // 2 - 1]) + 1  # the first token after the first image
        kept = torch.ones(ids.shape[1], dtype=torch.bool)
        if kind == LEVELS:
            kept[self.begun : marks[-1] + 1] = False
            self.alone = _without_second(self.text, base.processor)
        names = ("input_ids", "token_type_ids", "mm_token_type_ids")
        tokens = {name: self.inputs[name][:, kept] for name in names if name in self.inputs}
        positions = None
        if hasattr(base.network.model, "get_rope_index"):
            grid = self.inputs["image_grid_thw"][: self.images]
            given = {"mm_token_type_ids": tokens["mm_token_type_ids"], "image_grid_thw": grid}
            positions = base.network.model.get_rope_index(tokens["input_ids"], **given)[0]
        answers, kinds = torch.tensor(answers_of(config, base, self.text, kind)), tokens.get("token_type_ids")
        found = {"ids": tokens["input_ids"], "answers": answers, "positions": positions, "kinds": kinds}
        for name, tensor in found.items():
            self.register_buffer(name, tensor, persistent=False)
        self.inputs.pop("pixel_values", None)


def _without_second(text: str, processor: "ProcessorMixin") -> str:
    marks: list[str | None] = [getattr(processor, name, None) for name in ("boi_token", "image_token")]
    for mark in marks:
        if mark and text.count(mark) == 2:
            before, _, after = text.split(mark)
            return before + mark + after
    raise ValueError(f"the image token of {type(processor).__name__} does not occur twice in its prompt {text!r}")


def text_of(config: VlmComparatorConfig, base: LoadedBase, kind: str) -> str:
    """Return the prompt with an image token for each of two images, by the config, the chat template, or the family."""
    if base.ours:
        return PROMPTS[kind]
    question = ASKED[kind].format(attribute=config.attribute)
    if not config.prompt and base.processor.chat_template:
        from transformers import ProcessorMixin

        content = [{"type": "image"}, {"type": "image"}, {"type": "text", "text": question}]
        messages = [{"role": "user", "content": content}]
        # Not the processor's own method, since that of some needs a part for videos.
        ask: Callable[..., str] = ProcessorMixin.apply_chat_template
        return ask(base.processor, messages, add_generation_prompt=True, tokenize=False)
    if not (asked := config.prompt or base.family.prompt):
        raise ValueError(f"base {config.base} has no chat template; give prompt, with {{question}} and <image> twice")
    return asked.replace("{question}", question).replace("{attribute}", config.attribute)


def inputs_of(config: VlmComparatorConfig, base: LoadedBase, prompt: str) -> dict[str, Tensor]:
    """Return the processor's tensors for the prompt and two grey images; ValueError where it fails."""
    if base.ours:
        return {"input_ids": prompt_ids(base.network.config, prompt)}
    grey = torch.full((2, 1, config.size, config.size), 128, dtype=torch.uint8)
    with as_user_error(f"base {config.base}: its processor does not take two images with this prompt: "):
        return processed(base.processor, prompt, grey)


def answers_of(config: VlmComparatorConfig, base: LoadedBase, prompt: str, kind: str) -> list[int]:
    """Return the id of each answer's first token after the prompt; ValueError if two are the same."""
    prompt += base.family.ending
    between = " " if prompt.endswith(":") else ""

    def ids(text: str) -> list[int]:
        return list(base.processor.tokenizer(text, add_special_tokens=False)["input_ids"])

    asked, found = ids(prompt), []
    for word in ANSWERS[kind]:
        answered = ids(prompt + between + word)
        found.append(next((b for a, b in zip([*asked, -1], answered, strict=False) if a != b), -1))
    if len(set(found)) != len(ANSWERS[kind]):
        alike = f"its tokenizer does not tell {', '.join(ANSWERS[kind])} apart by their first tokens"
        raise ValueError(f"base {config.base}: {alike}, whose ids are {found}")
    return found


def processed(processor: "ProcessorMixin", prompt: str, images: Tensor) -> dict[str, Tensor]:
    """Return the processor's tensors for the prompt with each two of images (U, C, S, S), an odd last one twice."""
    shown = (pixels(images) * 255).round().byte().expand(-1, 3, -1, -1).movedim(1, -1).cpu().numpy()
    pictures = [Image.fromarray(each) for each in shown]
    pictures += pictures[-1:] * (len(pictures) % 2)
    pairs = [list(pair) for pair in zip(pictures[::2], pictures[1::2], strict=True)]
    # As transformers' own apply_chat_template does.
    start = processor.tokenizer.bos_token
    further = {"add_special_tokens": False} if start and prompt.startswith(start) else {}
    with quietly(), warnings.catch_warnings():
        # PaliGemma's
        warnings.filterwarnings("ignore", message="__array__ implementation", category=DeprecationWarning)
        return dict(processor(text=[prompt] * len(pairs), images=pairs, return_tensors="pt", **further))
