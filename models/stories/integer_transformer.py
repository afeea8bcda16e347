"""A tiny transformer in integers: the reference for exporters/rp2040/FORMAT.md.

Weights have 8 bits and a scale per row; keys and values have 8 bits and a scale per channel (folded into the queries
and the output matrix); all other activations have 16 bits or more in fixed point. `quantization.py` makes one.

Shapes: B sequences, S positions, N cached positions, D width, H heads, d = D / H, V vocabulary, C context.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch

from models.stories.config import END, TinyTransformerConfig
from models.stories.integer_arithmetic import (
    EXP,
    GELU,
    LARGEST_RESIDUAL,
    NAT,
    Array,
    Matrix,
    add,
    attend,
    norm,
    rescale,
    saturate,
)
from models.stories.integer_counts import Entries
from models.stories.ngram_counts import ORDERS
from models.stories.ngram_embedding import contexts


@dataclass(frozen=True)
class Layer:
    """One block."""

    qkv: Matrix
    out: Matrix
    up: Matrix
    down: Matrix
    distance_bias: Array  # (H, C) int64 by distance
    shifts: dict[str, int]  # pre_qkv, post_q, post_k, post_v, pre_out, post_out, pre_up, post_up, pre_down, post_down


@dataclass(frozen=True)
class Table:
    """Rows of the memory, each with a scale and the fingerprint of the context that it belongs to."""

    weights: Array  # (R, D) int64, -127 to 127
    multiplier: Array  # (R,) int64
    fingerprint: Array  # (R,) int64, 0 to 255


@dataclass(frozen=True)
class IntegerTransformer:
    """All that inference on the chip needs, and the inference itself."""

    config: TinyTransformerConfig
    layers: tuple[Layer, ...]
    embedding: Matrix  # also the output matrix
    pre_logits: int
    post_logits: int
    post_embedding: int
    memory: tuple[Table, ...] = ()
    post_memory: int = 0
    counts: Entries | None = None

    @property
    def nats(self) -> float:
        """The size of one unit of a logit, in nats."""
        return 2.0**-self.post_logits / NAT

    def logits(self, tokens: Array, stories: Array | None = None) -> Array:
        """Integer logits (B, S, V) of what follows each of `tokens` (B, S); arguments as for `TinyTransformer`."""
        length = tokens.shape[1]
        places = np.arange(length)
        distance = places[:, None] - places
        seen = (distance >= 0) & (distance < self.config.context)
        if stories is not None:
            seen = seen & (stories[:, :, None] == stories[:, None, :])
        seen = seen.reshape(-1, 1, length, length)
        distance = distance.clip(0, self.config.context - 1)
        x = self._embed(tokens, stories)
        for layer in self.layers:
            q, k, v = self._queries_keys_values(layer, x)
            attended = attend(_split(q, self), _split(k, self), _split(v, self), layer.distance_bias[:, distance], seen)
            x = _after_attention(layer, x, attended)
        return self._output(x, tokens)

    def decode(self, prompt: list[int], max_tokens: int, choose: Callable[[Array], int] | None = None) -> Iterator[int]:
        """Yield the tokens of a story that starts with `prompt`, one at a time; the token of its end is left out.

        `choose` maps logits (V,) to a token; None is greedy. It works as a device does: only the keys and values of
        the last C positions are kept.
        """
        cache: list[tuple[Array, Array]] = [(np.zeros((0, self.config.width), np.int64),) * 2 for _ in self.layers]
        choose = choose or (lambda logits: int(logits.argmax()))
        pending = [END, *prompt]
        recent: list[int] = []
        for _ in range(max_tokens):
            for token in pending:
                recent = [*recent, token][-max(1 + len(self.memory), ORDERS) :]
                logits = self._step(recent, cache)
            token = choose(logits)
            if token == END:
                return
            yield token
            pending = [token]

    def _step(self, recent: list[int], cache: list[tuple[Array, Array]]) -> Array:
        """Logits (V,) after one more token, the last of the `recent` ones."""
        x = self._embed(np.array([recent]), None)[:, -1:]
        for number, layer in enumerate(self.layers):
            q, k, v = self._queries_keys_values(layer, x)
            keys, values = (
                np.concatenate([old, new[0]])[-self.config.context :]
                for old, new in zip(cache[number], (k, v), strict=True)
            )
            cache[number] = keys, values
            distance = np.arange(len(keys))[::-1]
            bias = layer.distance_bias[:, None, distance]
            seen = np.ones((1, 1, 1, len(keys)), bool)
            attended = attend(_split(q, self), _split(keys[None], self), _split(values[None], self), bias, seen)
            x = _after_attention(layer, x, attended)
        return np.asarray(self._output(x, np.array([recent]))[0, 0])

    def _embed(self, tokens: Array, stories: Array | None) -> Array:
        """The embedding (B, S, D) of tokens (B, S), with what the memory holds about them."""
        matrix, shown = self.embedding, torch.from_numpy(tokens)
        x = rescale(matrix.weights[tokens], matrix.multiplier[tokens][..., None], self.post_embedding)
        found = contexts(shown, None if stories is None else torch.from_numpy(stories), self.config.memory)
        for table, (row, fingerprint) in zip(self.memory, found, strict=True):
            matches = table.fingerprint[row] == fingerprint.numpy()
            remembered = rescale(table.weights[row], table.multiplier[row][..., None], self.post_memory)
            x = x + np.where(matches[..., None], remembered, 0)
        return saturate(x, LARGEST_RESIDUAL)

    def _queries_keys_values(self, layer: Layer, x: Array) -> list[Array]:
        """Queries, keys and values, each (B, S, D); keys and values fit 8 bits."""
        sums = layer.qkv(norm(x)) >> layer.shifts["pre_qkv"]
        width = self.config.width
        parts = []
        for i, (name, most) in enumerate((("q", 32767), ("k", 127), ("v", 127))):
            rows = slice(i * width, (i + 1) * width)
            scaled = rescale(sums[..., rows], layer.qkv.multiplier[rows], layer.shifts[f"post_{name}"])
            parts.append(saturate(scaled, most))
        return parts

    def _output(self, x: Array, tokens: Array) -> Array:
        logits = (self.embedding(norm(x)) >> self.pre_logits) * self.embedding.multiplier
        return logits if self.counts is None else self.counts.sharpened(logits, tokens, self.post_logits)


class Sampler:
    """Draws tokens as a device does, in its units: temperature in 256ths, top_k (0: all), a seed of 32 bits."""

    def __init__(self, model: IntegerTransformer, temperature: int, top_k: int = 0, seed: int = 1):
        if not 13 <= temperature <= 2560:
            raise ValueError(f"temperature must be 13 to 2560 in 256ths, or 0.05 to 10 (given {temperature})")
        self.post, self.temperature, self.top_k = model.post_logits, temperature, top_k
        # Without the multiplication, the first draws of a small seed would all be near 0.
        self.state = seed * 0x9E3779B1 & 0xFFFFFFFF or 1

    def __call__(self, logits: Array) -> int:
        """Draw the next token for logits (V,)."""
        difference = ((logits.max() - logits) >> self.post).clip(max=65535)
        place = difference * (65536 // self.temperature) >> 8
        weights = np.where(place < len(EXP), EXP[place.clip(max=len(EXP) - 1)], 0)
        rank = np.empty(len(logits), np.int64)
        rank[np.argsort(-logits, kind="stable")] = np.arange(len(logits))
        while True:
            state = self.state
            state ^= state << 13 & 0xFFFFFFFF
            state ^= state >> 17
            state ^= state << 5 & 0xFFFFFFFF
            self.state = state
            token = int((weights.cumsum() > ((state >> 8) * int(weights.sum()) >> 24)).argmax())
            if not self.top_k or rank[token] < self.top_k:
                return token
            weights[rank >= rank[token]] = 0


def _after_attention(layer: Layer, x: Array, attended: Array) -> Array:
    """The residual stream x (B, S, D) with what attention (B, H, S, d) and then the feed-forward part add."""
    joined = attended.swapaxes(1, 2).reshape(x.shape)
    x = add(x, layer.out, joined, layer.shifts["pre_out"], layer.shifts["post_out"])
    gate = rescale(layer.up(norm(x)) >> layer.shifts["pre_up"], layer.up.multiplier, layer.shifts["post_up"])
    between = GELU[np.minimum(np.maximum(gate + 512, 0), 1023)]
    hidden = np.where(gate < -512, 0, np.where(gate < 512, between, np.minimum(gate, 2047) * 8))
    return add(x, layer.down, hidden, layer.shifts["pre_down"], layer.shifts["post_down"])


def _split(x: Array, model: IntegerTransformer) -> Array:
    """(B, S, D) -> (B, H, S, d)."""
    return x.reshape(*x.shape[:2], model.config.heads, -1).swapaxes(1, 2)
