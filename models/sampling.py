"""Choosing the next token of a language model, and ending a text."""

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor

from common.random import derive_key, first_uniform, uniform
from models.inputs import StorySettings, TextSettings


def choose(
    logits: Tensor,
    temperature: float = 1.0,
    top_k: int = 0,
    top_p: float = 1.0,
    seed: int = 0,
    number: int = 0,
    items: Tensor | None = None,
) -> Tensor:
    """Return next tokens (B,) int64 from `logits` (B, V): the likeliest at temperature 0, else drawn at random.

    `top_k` keeps only that many of the likeliest tokens (0: all); `top_p` keeps the smallest set of the likeliest that
    has this share of the probability (Holtzman et al. 2020). The draw of a row is a pure function of (seed, number, its
    item); the `items` (B,) int64 are 0 to B - 1 if not given. Raises ValueError for settings out of range.
    """
    if temperature < 0 or top_k < 0 or not 0 < top_p <= 1:
        raise ValueError(
            f"temperature and top_k must be 0 or more and top_p above 0 and at most 1 "
            f"(given {temperature}, {top_k} and {top_p})"
        )
    if temperature == 0:
        return logits.argmax(-1)
    # On the CPU: a GPU adds numbers up in varying order, and refuses to where results have to repeat.
    device, logits = logits.device, logits.cpu()
    ordered, ids = (logits.double() / temperature).sort(dim=-1, descending=True, stable=True)
    probabilities = ordered.softmax(-1)
    if top_k:
        probabilities[:, top_k:] = 0
    if top_p < 1:
        # A token stays if those before it have not reached the share yet, so at least one stays.
        before = probabilities.cumsum(-1) - probabilities
        probabilities = probabilities.masked_fill(before >= top_p * probabilities.sum(-1, keepdim=True), 0)
    cumulative = probabilities.cumsum(-1)
    key = derive_key(seed, "sampling", number)
    if items is None and len(logits) == 1:
        draw = torch.tensor([[first_uniform(key, 0)]], dtype=torch.float64)  # (B, 1)
    else:
        draw = uniform(key, torch.arange(len(logits)) if items is None else items.cpu(), 1).double()
    place = (cumulative <= draw * cumulative[:, -1:]).sum(-1, keepdim=True)
    return ids.gather(-1, place.clamp(max=logits.shape[-1] - 1))[:, 0].to(device)


def until(pieces: Iterable[str], stop: str) -> Iterator[str]:
    """Yield `pieces` up to `stop`; text that may be the beginning of `stop` is held back until that is decided."""
    held = ""
    for piece in pieces:
        held += piece
        if stop in held:
            yield held[: held.index(stop)]
            return
        lengths = range(min(len(stop) - 1, len(held)), 0, -1)
        kept = next((length for length in lengths if stop.startswith(held[-length:])), 0)
        yield held[: len(held) - kept]
        held = held[len(held) - kept :]
    yield held


def answer(prompt: str, text: str, count: int, settings: StorySettings | TextSettings) -> dict[str, Any]:
    """Return the answer of a model of text: what follows the prompt, and whether it ended by itself or by its length.

    `count` is the length of the text in the unit of the setting `length`.
    """
    return {"prompt": prompt, "text": text, "finish": "length" if count >= settings.length else "stop"}
