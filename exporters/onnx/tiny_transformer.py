"""A tiny transformer as one program that carries its state: keys and values of the positions that can be seen.

Shapes as in models/stories/tiny_transformer.py: B sequences, S new positions, D width, V vocabulary; L layers, P
positions kept from before, M recent tokens.
"""

import json
from types import SimpleNamespace
from typing import cast

import torch
from torch import Tensor

from exporters.onnx import Artifact, Part, Program, examples
from models.stories.config import END
from models.stories.network import Past
from models.stories.ngram_counts import ORDERS
from models.stories.tiny_transformer import TinyTransformer


class Given:
    """Tensors of the past in the place of `network.Kept`, none of which is forgotten."""

    def __init__(self, axis: int, *tensors: Tensor):
        self.axis, self.tensors = axis, tensors

    def extended(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        """Return those of the past and then those given."""
        self.tensors = tuple(torch.cat(pair, self.axis) for pair in zip(self.tensors, tensors, strict=True))
        return self.tensors


class Step(Part[TinyTransformer]):
    """From new tokens and the state before them to logits and the state after them."""

    def forward(self, tokens: Tensor, keys: Tensor, values: Tensor, recent: Tensor | None = None) -> tuple[Tensor, ...]:
        """Return logits (B, S, V) after each of `tokens` (B, S), with `keys` and `values` (L, B, P + S, D).

        Of `keys` and `values`, the last C - 1 positions or more are to be given, all of a shorter past. `recent`
        (B, M) are the tokens before `tokens`, 0 before the story; it comes back with the last ones. Only a model with
        a memory or counts has it.
        """
        heads = (self.model.config.heads, -1)
        before = torch.zeros(keys.shape[1:3], dtype=torch.long)  # further back than `recent` no token matters
        if recent is not None:
            before = torch.cat([before, recent], 1)[:, recent.shape[1] :]
        split = (each.unflatten(-1, heads).transpose(2, 3) for each in (keys, values))  # (L, B, H, P, D / H)
        layers = [Given(2, *pair) for pair in zip(*split, strict=True)]
        past = SimpleNamespace(text=Given(1, before, torch.zeros_like(before)), layers=layers)
        logits = self.model(tokens, torch.zeros_like(tokens), past=cast(Past, past))
        kept = zip(*(layer.tensors for layer in layers), strict=True)
        state = [torch.stack([each.transpose(1, 2).flatten(2) for each in whole]) for whole in kept]
        if recent is None:
            return (logits, *state)
        return (logits, *state, torch.cat([recent, tokens], 1)[:, -recent.shape[1] :])


def describe(model: TinyTransformer) -> Artifact:
    """Return the program, with the tokenizer beside it."""
    step, recent = Step(model), reach(model)
    past = {1: "stories", 2: "past"}
    inputs: dict[str, dict[int, str]] = {"tokens": {0: "stories", 1: "new"}, "keys": past, "values": past}
    outputs = ["logits", "next_keys", "next_values"]
    if recent:
        inputs, outputs = {**inputs, "recent": {0: "stories"}}, [*outputs, "next_recent"]

    def fresh(number: int) -> tuple[Tensor, ...]:
        config = model.config
        generator = torch.Generator().manual_seed(number)
        batch, before, new = 2 + number % 3, (number + 1) % config.context, 1 + number * 7 % (2 * config.context)
        text = torch.randint(config.vocabulary, (batch, before + new), generator=generator)
        text[:, 0] = END
        state = empty(model, batch)
        if before:
            with torch.no_grad():
                state = step(text[:, :before], *state)[1:]
        return (text[:, before:].clone(), *state)  # an export would keep the stride of a view

    settings = {"context": model.config.context, "layers": model.config.layers, "width": model.config.width}
    return Artifact(
        programs=[Program("step", step, inputs, outputs, fresh)],
        example=examples.script("tiny_transformer"),
        files={
            "tokenizer.json": json.dumps(model.config.tokenizer).encode(),
            "settings.json": json.dumps({**settings, "recent": recent}).encode(),
        },
    )


def empty(model: TinyTransformer, batch: int) -> tuple[Tensor, ...]:
    """Return the state before a story: no keys, no values, and no recent tokens."""
    none = torch.zeros(model.config.layers, batch, 0, model.config.width)
    recent = reach(model)
    return (none, none) + ((torch.zeros(batch, recent, dtype=torch.long),) if recent else ())


def reach(model: TinyTransformer) -> int:
    """Return how many tokens before the new ones the memory and the counts look at."""
    return max(len(model.config.memory), ORDERS - 1 if model.counts is not None else 0)
