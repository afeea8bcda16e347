"""A tiny transformer as one program that carries its state: keys and values of the positions that can be seen.

Shapes as in models/stories/tiny_transformer.py: B sequences, S new positions, D width, V vocabulary; L layers, P
positions kept from before, M recent tokens.
"""

import json
from collections.abc import Mapping
from types import ModuleType
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor

from exporters.onnx import FRESH, Artifact, Part, Program, examples
from models.stories.config import END
from models.stories.network import Block
from models.stories.ngram_counts import ORDERS
from models.stories.ngram_embedding import contexts
from models.stories.tiny_transformer import TinyTransformer

TOKENS = 48  # of each story that is compared


class Step(Part[TinyTransformer]):
    """From new tokens and the state before them to logits and the state after them."""

    def forward(self, tokens: Tensor, keys: Tensor, values: Tensor, recent: Tensor | None = None) -> tuple[Tensor, ...]:
        """Return logits (B, S, V) after each of `tokens` (B, S), with `keys` and `values` (L, B, P + S, D).

        Of `keys` and `values`, the last C - 1 positions or more are to be given, all of a shorter past. `recent`
        (B, M) are the tokens before `tokens`, 0 before the story; it comes back with the last ones. Only a model with
        a memory or counts has it.
        """
        model = self.model
        new, past = tokens.shape[1], keys.shape[2]
        distance = past + torch.arange(new)[:, None] - torch.arange(past + new)
        seen = (distance >= 0) & (distance < model.config.context)
        mask = torch.zeros(distance.shape).masked_fill(~seen, -torch.inf)
        distance = distance.clamp(0, model.config.context - 1)
        x = model.embedding(tokens)
        if recent is not None:
            tokens = torch.cat([recent, tokens], 1)
        if recent is not None and model.memory is not None:
            remembered = torch.zeros(())
            for number, (row, fingerprint) in enumerate(contexts(tokens, None, model.memory.rows)):
                matches = model.memory.fingerprint(number)[row] == fingerprint
                remembered = remembered + model.memory.mean(number)[row] * matches[..., None]
            x = x + remembered[:, recent.shape[1] :]
        kept = []
        for number, module in enumerate(model.blocks):
            x, *found = _attended(cast(Block, module), x, keys[number], values[number], distance, mask)
            kept.append(found)
        logits = F.linear(F.layer_norm(x, x.shape[-1:]), model.embedding.weight, model.output_bias)
        if model.counts is not None:
            logits = model.counts(logits, tokens)
        state = [torch.stack(each) for each in zip(*kept, strict=True)]
        return (logits, *state) if recent is None else (logits, *state, tokens[:, -recent.shape[1] :])


def _attended(
    block: Block, x: Tensor, keys: Tensor, values: Tensor, distance: Tensor, mask: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Return what the block makes of x (B, S, D), with the keys and values (B, P + S, D) of all positions."""
    width = x.shape[-1]
    q, k, v = block.qkv(F.layer_norm(x, (width,))).chunk(3, -1)
    keys, values = torch.cat([keys, k], 1), torch.cat([values, v], 1)
    heads = [each.unflatten(-1, (block.heads, width // block.heads)).transpose(1, 2) for each in (q, keys, values)]
    bias = block.distance_bias[:, distance] + mask  # (H, S, P + S)
    scores = heads[0] @ heads[1].transpose(2, 3) * (width // block.heads) ** -0.5 + bias
    x = x + block.out((scores.softmax(-1) @ heads[2]).transpose(1, 2).flatten(2))
    return x + block.down(F.gelu(block.up(F.layer_norm(x, (width,))))), keys, values


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
        batch, before, new = 2 + number % 3, number % config.context, 1 + number * 7 % (2 * config.context)
        text = torch.randint(config.vocabulary, (batch, before + new), generator=generator)
        text[:, 0] = END
        state = empty(model, batch)
        if before:
            with torch.no_grad():
                state = step(text[:, :before], *state)[1:]
        return (text[:, before:], *state)

    settings = {"context": model.config.context, "layers": model.config.layers, "width": model.config.width}
    return Artifact(
        programs=[Program("step", step, inputs, outputs, fresh)],
        example=examples.script("tiny_transformer"),
        check=lambda example: compare_stories(model, example),
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


@torch.no_grad()
def compare_stories(model: TinyTransformer, example: ModuleType) -> Mapping[str, object]:
    """Tell stories by the example and by the model, token by token; RuntimeError unless all tokens are equal."""
    generator = torch.Generator().manual_seed(0)
    count = 0
    for number in range(FRESH):
        length = 1 + number % (model.config.context + 8)
        prompt = torch.randint(2, model.config.vocabulary, (length,), generator=generator).tolist()
        tokens = example.tell(prompt, TOKENS)
        row = torch.tensor([[END, *prompt, *tokens]])
        expected = model(row)[0].argmax(-1).tolist()[length:]
        ends = [END] if len(tokens) < TOKENS else []
        if [*tokens, *ends] != expected[: len(tokens) + len(ends)]:
            raise RuntimeError(
                f"after the tokens {prompt} the example goes on with {tokens}, the model with {expected}"
            )
        count += len(tokens)
    return {"stories": FRESH, "tokens": count, "tokens_equal": count}
