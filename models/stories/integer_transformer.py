"""A tiny transformer in integers: the reference for exporters/rp2040/FORMAT.md.

Weights have 8 bits and a scale per row; keys and values have 8 bits and a scale per channel (folded into the queries
and the output matrix); all other activations have 16 bits or more in fixed point. `quantization.py` makes one.

Sums of products below 2**53 are exact in float64, so products of matrices can use BLAS for speed.

Shapes: B sequences, S positions, N cached positions, D width, H heads, d = D / H, V vocabulary, C context.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from math import erf, exp, isqrt, sqrt
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from models.stories.config import TinyTransformerConfig
from models.stories.ngram_counts import ORDERS, NgramCounts, entries_of, hashes
from models.stories.ngram_embedding import contexts
from models.stories.tokens import END

Array: TypeAlias = NDArray[np.int64]
Past: TypeAlias = list[tuple[Array, Array]]  # keys and values of each layer

NAT = 64  # a score or a scaled logit of 64 is one nat
LARGEST_RESIDUAL = 2**22
EXP = np.array([round(32768 * exp(-i / NAT)) for i in range(704)])
GELU = np.array([round(1024 * x * (1 + erf(x / sqrt(2))) / 2) for x in ((i - 512) / 128 for i in range(1024))])
LARGEST_SHARPENED, LARGEST_ADDED = 2**30 - 1, 2**17


@dataclass(frozen=True)
class Matrix:
    """A linear map with a scale per row."""

    weights: Array  # (rows, columns) int64, -127 to 127
    bias: Array  # (rows,) int64, in units of the sum of products
    multiplier: Array  # (rows,) int64

    def __call__(self, x: Array) -> Array:
        """Sums of products (..., rows) of integers x (..., columns)."""
        return (x.astype(np.float64) @ self._columns).astype(np.int64) + self.bias

    @cached_property
    def _columns(self) -> Array:
        return np.ascontiguousarray(self.weights.T, np.float64)


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
class Entries:
    """The entries of the counts and where each bucket's begin, mixed into logits in 64ths of a nat."""

    starts: Array  # (buckets + 1,) int64, as all
    tokens: Array  # (E,)
    tags: Array  # (E,)
    levels: Array  # (E,)

    @classmethod
    def of(cls, counts: NgramCounts) -> "Entries":
        """Convert the counts of a model."""
        stored = (counts.starts, counts.tokens, counts.tags, counts.levels)
        return cls(*(each.cpu().numpy().astype(np.int64) for each in stored))

    def sharpened(self, logits: Array, tokens: Array, post: int) -> Array:
        """Mix counts into the network's logits (B, S, V) of the last S of `tokens` (B, N); 64 << `post` are a nat."""
        logits, last = logits.copy(), slice(tokens.shape[1] - logits.shape[1], None)
        best = logits.max(-1, keepdims=True)
        whole = log(_exp((best - logits) >> post).sum(-1, keepdims=True)) - ONE
        starts, tags = torch.from_numpy(self.starts), torch.from_numpy(self.tags)
        for code, inside in hashes(torch.from_numpy(tokens)):
            place, found = (each.numpy() for each in entries_of(starts, tags, code[:, last], inside[:, last]))
            most = int(found.sum(-1).max())
            first = np.argsort(~found, -1, kind="stable")[..., :most]  # those of the context, in their order
            place, found = (np.take_along_axis(each, first, -1) for each in (place, found))
            token, level = self.tokens[place], self.levels[place]
            for entry in range(most):  # one after the other, as on a device
                here = slice(entry, entry + 1)
                logit = np.take_along_axis(logits, token[..., here], -1)
                more = whole - level[..., here] + ((best - logit) >> post)
                change = np.maximum(more, 0) + log(32768 + _exp(abs(more))) - ONE
                raised = np.minimum(logit + (change << post), LARGEST_SHARPENED)
                np.put_along_axis(logits, token[..., here], np.where(found[..., here], raised, logit), -1)
            added = np.where(found, _exp(level), 0).sum(-1, keepdims=True)
            whole = whole + log(32768 + np.minimum(added, LARGEST_ADDED)) - ONE
        return logits


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

    def logits(self, tokens: Array, stories: Array | None = None, past: Past | None = None) -> Array:
        """Integer logits (B, S, V) of what follows each of `tokens` (B, S); arguments as for `TinyTransformer`.

        With `past`, the keys and values (1, N, D) of each layer's last C positions, only the last of `tokens` (1, S) is
        computed, and joins it; the others are context for memory and counts.
        """
        x, kept = self._embed(tokens, stories), 0
        if past is not None:
            x, kept = x[:, -1:], min(past[0][0].shape[1], self.config.context - 1)
        places = np.arange(kept + x.shape[1])
        distance = places[kept:, None] - places
        seen = (distance >= 0) & (distance < self.config.context)
        if stories is not None:
            seen = seen & (stories[:, :, None] == stories[:, None, :])
        seen = seen.reshape(-1, 1, *distance.shape)
        distance = distance.clip(0, self.config.context - 1)
        for number, layer in enumerate(self.layers):
            q, k, v = _queries_keys_values(layer, x)
            if past is not None:
                k, v = (np.concatenate(pair, 1)[:, -len(places) :] for pair in zip(past[number], (k, v), strict=True))
                past[number] = k, v
            attended = attend(_split(q, self), _split(k, self), _split(v, self), layer.distance_bias[:, distance], seen)
            x = _after_attention(layer, x, attended)
        logits = (self.embedding(norm(x)) >> self.pre_logits) * self.embedding.multiplier
        return logits if self.counts is None else self.counts.sharpened(logits, tokens, self.post_logits)

    def decode(self, prompt: list[int], max_tokens: int, choose: Callable[[Array], int] | None = None) -> Iterator[int]:
        """Yield the tokens of a story that starts with `prompt`, one at a time, without the token of its end.

        `choose` maps logits (V,) to a token; None is greedy. It works as a device does: only the keys and values of
        the last C positions are kept.
        """
        past: Past = [(np.zeros((1, 0, self.config.width), np.int64),) * 2 for _ in self.layers]
        choose = choose or (lambda logits: int(logits.argmax()))
        pending = [END, *prompt]
        recent: list[int] = []
        for _ in range(max_tokens):
            for token in pending:
                recent = [*recent, token][-max(1 + len(self.memory), ORDERS) :]
                logits = self.logits(np.array([recent]), past=past)[0, 0]
            if (token := choose(logits)) == END:
                return
            yield token
            pending = [token]

    def _embed(self, tokens: Array, stories: Array | None) -> Array:
        """The embedding (B, S, D) of tokens (B, S), with the memory's rows for them added."""
        matrix, shown = self.embedding, torch.from_numpy(tokens)
        x = rescale(matrix.weights[tokens], matrix.multiplier[tokens][..., None], self.post_embedding)
        found = contexts(shown, None if stories is None else torch.from_numpy(stories), self.config.memory)
        for table, (row, fingerprint) in zip(self.memory, found, strict=True):
            matches = table.fingerprint[row] == fingerprint.numpy()
            remembered = rescale(table.weights[row], table.multiplier[row][..., None], self.post_memory)
            x = x + np.where(matches[..., None], remembered, 0)
        return saturate(x, LARGEST_RESIDUAL)


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
        weights = _exp(place)
        rank = np.empty(len(logits), np.int64)
        rank[np.argsort(-logits, kind="stable")] = np.arange(len(logits))
        while True:
            self.state ^= self.state << 13 & 0xFFFFFFFF
            self.state ^= self.state >> 17
            self.state ^= self.state << 5 & 0xFFFFFFFF
            token = int((weights.cumsum() > ((self.state >> 8) * int(weights.sum()) >> 24)).argmax())
            if not self.top_k or rank[token] < self.top_k:
                return token
            weights[rank >= rank[token]] = 0


def _queries_keys_values(layer: Layer, x: Array) -> list[Array]:
    """Queries, keys and values, each (B, S, D); keys and values fit 8 bits."""
    sums = np.split(layer.qkv(norm(x)) >> layer.shifts["pre_qkv"], 3, -1)
    parts = zip("qkv", sums, np.split(layer.qkv.multiplier, 3), (32767, 127, 127), strict=True)
    return [saturate(rescale(part, scale, layer.shifts[f"post_{name}"]), most) for name, part, scale, most in parts]


def _after_attention(layer: Layer, x: Array, attended: Array) -> Array:
    """The residual stream x (B, S, D) with what attention (B, H, S, d) and then the feed-forward part add."""
    x = add(x, layer.out, attended.swapaxes(1, 2).reshape(x.shape), layer.shifts["pre_out"], layer.shifts["post_out"])
    gate = rescale(layer.up(norm(x)) >> layer.shifts["pre_up"], layer.up.multiplier, layer.shifts["post_up"])
    between = GELU[np.minimum(np.maximum(gate + 512, 0), 1023)]
    hidden = np.where(gate < -512, 0, np.where(gate < 512, between, np.minimum(gate, 2047) * 8))
    return add(x, layer.down, hidden, layer.shifts["pre_down"], layer.shifts["post_down"])


def _split(x: Array, model: IntegerTransformer) -> Array:
    """(B, S, D) -> (B, H, S, d)."""
    return x.reshape(*x.shape[:2], model.config.heads, -1).swapaxes(1, 2)


def norm(x: Array) -> Array:
    """Layer norm of integers x (..., D) of any scale, in Q10."""
    width = x.shape[-1]
    deviation = width * x - x.sum(-1, keepdims=True)
    bits = np.bitwise_or.reduce(deviation ^ (deviation >> 31), axis=-1, keepdims=True)
    length = np.frexp(bits.astype(np.float64))[1]  # 0 if there are none
    scaled = np.where(length >= 12, deviation >> np.maximum(length - 12, 0), deviation << np.maximum(12 - length, 0))
    root = np.sqrt((scaled * scaled).sum(-1, keepdims=True).astype(np.float64)).astype(np.int64)  # exact below 2**52
    ratio = (isqrt(width << 20) << 12) // np.maximum(root, 1)
    return np.where(bits == 0, 0, (scaled * ratio + 2048) >> 12)


def attend(q: Array, k: Array, v: Array, bias: Array, seen: NDArray[np.bool_]) -> Array:
    """Attention (B, H, S, d) of queries (B, H, S, d) over keys and values (B, H, N, d).

    `bias` (H, S, N) is added to scores; `seen` (B or 1, 1, S, N) says which positions a position sees.
    """
    scores = (product(q, k.swapaxes(-1, -2)) >> 10) + bias
    below = np.where(seen, scores, -(2**40)).max(-1, keepdims=True) - scores
    weights = np.where(seen, _exp(np.maximum(below, 0)), 0)
    reciprocal: Array = 2**31 // weights.sum(-1, keepdims=True)
    return ((product(weights, v) >> 7) * reciprocal) >> 16


def product(a: Array, b: Array) -> Array:
    """The matrix product of integers."""
    return (a.astype(np.float64) @ b.astype(np.float64)).astype(np.int64)


def add(x: Array, matrix: Matrix, y: Array, pre: int, post: int) -> Array:
    """The residual stream with matrix(y) added."""
    return saturate(x + rescale(saturate(matrix(y) >> pre, 32767), matrix.multiplier, post), LARGEST_RESIDUAL)


def rescale(value: Array, multiplier: Array, post: int) -> Array:
    """`scale` of FORMAT.md."""
    return (value * multiplier + (1 << (post - 1))) >> post


def saturate(value: Array, most: int) -> Array:
    """`sat` of FORMAT.md."""
    return np.minimum(np.maximum(value, -most), most)  # faster on few numbers than clip


def log(value: Array) -> Array:
    """64 times the natural logarithm of integers from 1 to 2^28 - 1, within one."""
    bits = np.frexp(value.astype(np.float64))[1] - 1
    part: Array = np.where(bits >= 15, value >> np.maximum(bits - 15, 0), value << np.maximum(15 - bits, 0)) - 32768
    return (((bits << 15) + part + ((part * (32768 - part) >> 15) * 11272 >> 15)) >> 4) * 2839 >> 17


def _exp(below: Array) -> Array:
    return np.where(below < len(EXP), EXP[np.minimum(below, len(EXP) - 1)], 0)


ONE = int(log(np.array(32768)))
