"""A tiny transformer as one program that carries its state: keys and values of the positions in its context.

Shapes as in models/stories/tiny_transformer.py: B sequences, S new positions, D width, V vocabulary; L layers, P
positions kept from before, M recent tokens.
"""

import json
from types import SimpleNamespace
from typing import cast

import torch
from torch import Tensor

from exporters.onnx import Artifact, Part, Program, examples
from models.stories.network import Kept, Past, reach
from models.stories.tiny_transformer import TinyTransformer
from models.stories.tokens import END


class Step(Part[TinyTransformer]):
    """From new tokens and the state before them to logits and the state after them."""

    def forward(self, tokens: Tensor, keys: Tensor, values: Tensor, recent: Tensor) -> tuple[Tensor, ...]:
        """Return logits (B, S, V) after each of `tokens` (B, S), with `keys` and `values` (L, B, P + S, D).

        Give the last C - 1 positions or more of `keys` and `values`, or all of a shorter past. `recent` (B, M) are the
        tokens before `tokens`, 0 before the story; it is returned with the last ones.
        """
        heads = (self.model.config.heads, -1)
        before = torch.zeros(keys.shape[1:3], dtype=torch.long)  # further back than `recent` no token matters
        before = torch.cat([before, recent], 1)[:, recent.shape[1] :]
        split = (each.unflatten(-1, heads).transpose(2, 3) for each in (keys, values))  # (L, B, H, P, D / H)
        layers = [Kept(None, 2, *pair) for pair in zip(*split, strict=True)]
        past = SimpleNamespace(text=Kept(None, 1, before, torch.zeros_like(before)), layers=layers)
        logits = self.model(tokens, torch.zeros_like(tokens), past=cast(Past, past))
        kept = zip(*(layer.tensors for layer in layers), strict=True)
        state = [torch.stack([each.transpose(1, 2).flatten(2) for each in whole]) for whole in kept]
        return (logits, *state, torch.cat([recent, tokens], 1)[:, -recent.shape[1] :])


def describe(model: TinyTransformer) -> Artifact:
    """Return the program with the tokenizer."""
    step, past = Step(model), {1: "stories", 2: "past"}
    inputs = {"tokens": {0: "stories", 1: "new"}, "keys": past, "values": past, "recent": {0: "stories"}}
    outputs = ["logits", "next_keys", "next_values", "next_recent"]

    def fresh(number: int) -> tuple[Tensor, ...]:
        config = model.config
        generator = torch.Generator().manual_seed(number)
        batch, before, new = 2 + number % 3, (number + 1) % config.context, 1 + number * 7 % (2 * config.context)
        text = torch.randint(config.vocabulary, (batch, before + new), generator=generator)
        text[:, 0] = END
        none = torch.zeros(config.layers, batch, 0, config.width)
        state: tuple[Tensor, ...] = (none, none, torch.zeros(batch, reach(config), dtype=torch.long))
        if before:
            with torch.no_grad():
                state = step(text[:, :before], *state)[1:]
        return (text[:, before:].clone(), *state)  # an export would keep the stride of a view

    settings = {"context": model.config.context, "layers": model.config.layers, "width": model.config.width}
    lowered = {"normalizer": {"type": "Lowercase"}} if model.lower_case else {}
    return Artifact(
        programs=[Program("step", step, inputs, outputs, fresh)],
        example=examples.script("tiny_transformer"),
        files={
            "tokenizer.json": json.dumps({**model.config.tokenizer, **lowered}).encode(),
            "settings.json": json.dumps({**settings, "recent": reach(model.config)}).encode(),
        },
    )
