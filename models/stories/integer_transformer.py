"""A tiny transformer in integers: the reference for exporters/rp2040/FORMAT.md, and the quantisation of a model to it.

`quantize` needs only the weights: ranges follow from the norms of rows, not from data. Weights have 8 bits and a scale
per row; keys and values have 8 bits and a scale per channel (folded into the queries and the output matrix); all other
activations have 16 bits or more in fixed point.

Shapes: B sequences, S positions, N cached positions, D width, H heads, d = D / H, V vocabulary, C context.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import frexp, sqrt
from typing import cast

import numpy as np
import torch

from models.stories.integer_arithmetic import (
    ATTENDED,
    EXP,
    GATE,
    GELU,
    LARGEST_BIAS,
    LARGEST_MULTIPLIER,
    LARGEST_POST,
    LARGEST_RESIDUAL,
    NAT,
    NORMED,
    RESIDUAL,
    Array,
    Matrix,
    add,
    attend,
    norm,
    rescale,
    saturate,
)
from models.stories.integer_counts import LARGEST_POST_COUNTED, Entries
from models.stories.ngram_counts import ORDERS
from models.stories.ngram_memory import NgramMemory, contexts
from models.stories.tiny_transformer import END, Block, TinyTransformer, TinyTransformerConfig

CLIP = 4.0  # standard deviations at which keys and values saturate


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
            x = _feed_forward(
                layer, add(x, layer.out, _joined(attended), layer.shifts["pre_out"], layer.shifts["post_out"])
            )
        return self._output(x, tokens)

    def decode(self, prompt: list[int], max_tokens: int, choose: Callable[[Array], int] | None = None) -> Iterator[int]:
        """Yield the tokens of a story that starts with `prompt`, one at a time; the token of its end is left out.

        `choose` maps logits (V,) to a token; None is greedy. It works as a device does: only the keys and values of
        the last C positions are kept.
        """
        cache: list[tuple[Array, Array]] = [(np.zeros((0, self.config.width), np.int64),) * 2 for _ in self.layers]
        choose = choose or _greedy
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
            x = _feed_forward(
                layer, add(x, layer.out, _joined(attended), layer.shifts["pre_out"], layer.shifts["post_out"])
            )
        return self._output(x, np.array([recent]))[0, 0]

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
        difference = ((logits.max() - logits) >> self.post).clip(max=65535)
        place = difference * (65536 // self.temperature) >> 8
        weights = np.where(place < len(EXP), EXP[place.clip(max=len(EXP) - 1)], 0)
        if self.top_k:
            weights[np.argsort(-logits, kind="stable")[self.top_k :]] = 0
        state = self.state
        state ^= state << 13 & 0xFFFFFFFF
        state ^= state >> 17
        state ^= state << 5 & 0xFFFFFFFF
        self.state = state
        return int((weights.cumsum() > ((state >> 8) * int(weights.sum()) >> 24)).argmax())


def _greedy(logits: Array) -> int:
    return int(logits.argmax())


def quantize(model: TinyTransformer) -> IntegerTransformer:
    """The model in integers.

    Raises ValueError for weights that are not finite and for scales outside the format's multipliers and shifts.
    """
    config = model.config
    for name, parameter in (*model.named_parameters(), *model.named_buffers()):
        if not parameter.isfinite().all():
            raise ValueError(f"{name} has values that are not finite; train the model again")
    layers = tuple(_quantize_block(cast(Block, block), config) for block in model.blocks)
    weights, bias, scale = _rows(_numpy(model.embedding.weight), _numpy(model.output_bias), NORMED)
    pre = _pre_of_normed(config.width, bias)
    # A row has one multiplier for two uses: as input, in units of the residual stream, and as output, where 64 is one
    # nat after the shift by `post_logits`. So the two shifts differ by a constant.
    multiplier, post_embedding = _multipliers(scale * RESIDUAL, 0, "the embedding")
    post_logits = post_embedding - pre + 12 + 10 - 6
    if not 1 <= post_logits <= (LARGEST_POST if model.counts is None else LARGEST_POST_COUNTED):
        wrong = "the weights of the embedding are too small or too large for 16-bit scales"
        raise ValueError(f"{wrong}; train longer or at another learning rate")
    embedding = Matrix(weights, bias, multiplier)
    memory = _quantize_memory(model.memory)
    counts = Entries.of(model.counts) if model.counts else None
    return IntegerTransformer(config, layers, embedding, pre, post_logits, post_embedding, *memory, counts)


def _quantize_memory(memory: NgramMemory | None) -> tuple[tuple[Table, ...], int]:
    """The tables in integers, and the shift that is common to all their multipliers."""
    if memory is None:
        return (), 0
    tables = [_numpy(memory.mean(number)) for number in range(len(memory.rows))]
    scales = [abs(table).max(1) / 127 for table in tables]
    multiplier, post = _multipliers(np.concatenate(scales) * RESIDUAL, 0, "the memory")
    parts = np.split(multiplier, np.cumsum(memory.rows)[:-1])
    return tuple(
        Table(
            np.round(table / np.where(scale == 0, 1, scale)[:, None]).astype(np.int64),
            part,
            memory.fingerprint(number).cpu().numpy().astype(np.int64),
        )
        for number, (table, scale, part) in enumerate(zip(tables, scales, parts, strict=True))
    ), post


def _quantize_block(block: Block, config: TinyTransformerConfig) -> Layer:
    """The block in integers, with units of each output per 1.0 put into its multipliers."""
    width, head = config.width, config.width // config.heads
    wq, wk, wv = np.split(_numpy(block.qkv.weight), 3)
    bq, bk, bv = np.split(_numpy(block.qkv.bias), 3)
    k_scale, v_scale = _channel_scale(wk, bk), _channel_scale(wv, bv)
    # Queries absorb the scales of keys.
    units = {"q": k_scale * (NAT * 1024) / sqrt(head), "k": 1 / k_scale, "v": 1 / v_scale}
    weight, bias = np.concatenate([wq, wk, wv]), np.concatenate([bq, bk, bv])
    weights, integer_bias, scale = _rows(weight, bias, NORMED)
    shifts = {"pre_qkv": _pre_of_normed(width, integer_bias)}
    multipliers = []
    for (name, unit), part in zip(units.items(), np.split(scale, 3), strict=True):
        found, shifts[f"post_{name}"] = _multipliers(part * unit / NORMED, shifts["pre_qkv"], name)
        multipliers.append(found)
    qkv = Matrix(weights, integer_bias, np.concatenate(multipliers))

    weights, integer_bias, scale = _rows(_numpy(block.up.weight), _numpy(block.up.bias), NORMED)
    shifts["pre_up"] = _pre_of_normed(width, integer_bias)
    multiplier, shifts["post_up"] = _multipliers(scale * GATE / NORMED, shifts["pre_up"], "up")
    up = Matrix(weights, integer_bias, multiplier)

    out_weight = _numpy(block.out.weight) * v_scale  # the values' scales, by column
    out, shifts["pre_out"], shifts["post_out"] = _to_residual(
        out_weight, _numpy(block.out.bias), ATTENDED, 127 / CLIP * ATTENDED * 1.5, "out"
    )
    down, shifts["pre_down"], shifts["post_down"] = _to_residual(
        _numpy(block.down.weight), _numpy(block.down.bias), NORMED, 2.0 * NORMED, "down"
    )
    distance_bias = np.round(_numpy(block.distance_bias) * NAT).clip(-32768, 32767).astype(np.int64)
    return Layer(qkv, out, up, down, distance_bias, shifts)


def _to_residual(weight: Array, bias: Array, unit: int, typical: float, what: str) -> tuple[Matrix, int, int]:
    """(matrix, pre, post) of a map into the residual stream.

    Sums saturate at what a vector with a root mean square of `typical` can reach. Large scales leave fewer bits to
    `pre`; then sums saturate earlier, which in rows of such a scale is still far above what the residual stream holds.
    """
    weights, integer_bias, scale = _rows(weight, bias, unit)
    factor = scale * RESIDUAL / unit
    reach = np.linalg.norm(weights, axis=1) * typical * sqrt(weights.shape[1]) + abs(integer_bias)
    pre = max(0, min(int(reach.max()).bit_length() - 15, _largest_shift(factor) - 1))
    multiplier, post = _multipliers(factor, pre, what)
    return Matrix(weights, integer_bias, multiplier), pre, post


def _rows(weight: Array, bias: Array, unit: int) -> tuple[Array, Array, Array]:
    """(weights in -127 to 127, biases, scale of each row); a scale is large enough to keep the bias in its limits."""
    scale = np.maximum(abs(weight).max(1) / 127, abs(bias) * unit / LARGEST_BIAS)
    divisor = np.where(scale == 0, 1, scale)  # a row of zeros stays one
    return (
        np.round(weight / divisor[:, None]).astype(np.int64),
        np.round(bias * unit / divisor).astype(np.int64),
        scale,
    )


def _channel_scale(weight: Array, bias: Array) -> Array:
    """The size of one unit of each 8-bit channel, for outputs of rows `weight` on normed input."""
    deviation = np.linalg.norm(weight, axis=1)
    reach = abs(bias) + min(CLIP, sqrt(weight.shape[1])) * deviation
    return np.where(reach == 0, 1.0, reach / 127)


def _multipliers(factor: Array, pre: int, what: str) -> tuple[Array, int]:
    """Integers m and a shift `post` with factor = m 2**-(pre + post), where m uses as many of 15 bits as possible."""
    post = min(_largest_shift(factor) - pre, LARGEST_POST) if factor.any() else 1
    if post < 1:
        raise ValueError(
            f"the weights of {what} are larger than 16-bit scales reach (shift {post}, allowed 1 to {LARGEST_POST}); "
            "train with more weight decay or a lower learning rate"
        )
    return np.round(factor * 2.0 ** (post + pre)).astype(np.int64), post


def _largest_shift(factor: Array) -> int:
    """The largest n for which factor 2**n is at most the largest multiplier, rounded."""
    largest = float(factor.max())
    shift = 15 - frexp(largest)[1]
    return shift if round(largest * 2.0**shift) <= LARGEST_MULTIPLIER else shift - 1


def _pre_of_normed(width: int, bias: Array) -> int:
    """The least shift after which any sum over a normed vector, whose length is known, fits 16 bits."""
    bound = (width << 17) + int(abs(bias).max())
    return max(0, bound.bit_length() - 15)


def _feed_forward(layer: Layer, x: Array) -> Array:
    """The residual stream with the output of the feed-forward part added."""
    gate = rescale(layer.up(norm(x)) >> layer.shifts["pre_up"], layer.up.multiplier, layer.shifts["post_up"])
    between = GELU[np.minimum(np.maximum(gate + 512, 0), 1023)]
    hidden = np.where(gate < -512, 0, np.where(gate < 512, between, np.minimum(gate, 2047) * 8))
    return add(x, layer.down, hidden, layer.shifts["pre_down"], layer.shifts["post_down"])


def _split(x: Array, model: IntegerTransformer) -> Array:
    """(B, S, D) -> (B, H, S, d)."""
    return x.reshape(*x.shape[:2], model.config.heads, -1).swapaxes(1, 2)


def _joined(x: Array) -> Array:
    """(B, H, S, d) -> (B, S, D)."""
    return x.swapaxes(1, 2).reshape(x.shape[0], x.shape[2], -1)


def _numpy(tensor: torch.Tensor) -> Array:
    return tensor.detach().cpu().double().numpy()
