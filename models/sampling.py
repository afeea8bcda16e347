"""Choosing the next token of a language model, and ending a text."""

from collections.abc import Generator, Iterable, Sequence

import torch
from torch import Tensor

from common.plain import Plain
from common.random import derive_key, uniform


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
        given = f"(given {temperature}, {top_k} and {top_p})"
        raise ValueError(f"temperature and top_k must be 0 or more and top_p above 0 and at most 1 {given}")
    key = derive_key(seed, "sampling", number)
    numbers = torch.arange(len(logits)) if items is None else items.cpu()
    return drawn(logits, temperature, top_k, top_p, uniform(key, numbers, 1)[:, 0].tolist())


def drawn(logits: Tensor, temperature: float, top_k: int, top_p: float, draws: Sequence[float]) -> Tensor:
    """Choose as `choose` does, by random `draws` (B,) in [0, 1). A row's token depends on that row alone."""
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
        reached = probabilities.cumsum(-1)
        probabilities = probabilities.masked_fill(reached - probabilities >= top_p * reached[:, -1:], 0)
    cumulative = probabilities.cumsum(-1)
    thresholds = torch.tensor(draws, dtype=torch.float64)[:, None] * cumulative[:, -1:]
    places = (cumulative <= thresholds).sum(-1, keepdim=True)
    return ids.gather(-1, places.clamp(max=logits.shape[-1] - 1))[:, 0].to(device)


class Certain:
    """Releases a growing text up to the first of `stops`, holding back what may be the beginning of one."""

    def __init__(self, stops: Sequence[str]):
        self.stops, self.held, self.ended = stops, "", False

    def grown(self, piece: str) -> str:
        """Append a piece; return the text that is now certain, nothing after a stop."""
        if not self.stops or self.ended:
            return "" if self.ended else piece
        text, self.held = self.held + piece, ""
        if found := [text.index(stop) for stop in self.stops if stop in text]:
            self.ended = True
            return text[: min(found)]
        lengths = range(min(max(map(len, self.stops)) - 1, len(text)), 0, -1)
        kept = next((length for length in lengths if any(stop.startswith(text[-length:]) for stop in self.stops)), 0)
        self.held = text[len(text) - kept :]
        return text[: len(text) - kept]


def until(pieces: Iterable[str], stops: Sequence[str]) -> Generator[str, None, bool]:
    """Yield `pieces` up to the first of `stops`, and return whether there was one; what may begin one is held back."""
    certain = Certain(stops)
    for piece in pieces:
        yield certain.grown(piece)
        if certain.ended:
            return True
    yield certain.held
    return False


def answer(prompt: str, text: str, count: int, length: int) -> dict[str, Plain]:
    """Return a text model's answer: what follows the prompt, and whether it ended by itself or at `length`."""
    return {"prompt": prompt, "text": text, "finish": "length" if count >= length else "stop"}
