"""The quantisation of a tiny transformer to the integers of exporters/rp2040/FORMAT.md.

It needs only the weights: ranges follow from the norms of rows, not from data. Shapes as in integer_transformer.py.
"""

from math import frexp, sqrt
from typing import TypeAlias, cast

import numpy as np
import torch
from numpy.typing import NDArray

from models.stories.config import TinyTransformerConfig
from models.stories.integer_transformer import NAT, Array, Entries, IntegerTransformer, Layer, Matrix, Table
from models.stories.network import Block, Network
from models.stories.ngram_embedding import NgramMemory

Floats: TypeAlias = NDArray[np.float64]

RESIDUAL, NORMED, ATTENDED, GATE = 2**12, 2**10, 2**8, 2**7  # 1.0 in each kind of activation
LARGEST_MULTIPLIER, LARGEST_BIAS = 2**15 - 1, 2**24 - 1
LARGEST_POST, LARGEST_POST_COUNTED = 30, 20  # the second one of logits that counts are mixed into
CLIP = 4.0  # standard deviations at which keys and values saturate
SCALE = ".scale"  # suffix of rows' scales: shipped models have matrices in 8 bits and the rest in 16


def quantize(model: Network) -> IntegerTransformer:
    """The model in integers; ValueError for weights not finite, scales beyond the format's multipliers and shifts."""
    config = model.config
    for name, parameter in (*model.named_parameters(), *model.named_buffers()):
        if not parameter.isfinite().all():
            raise ValueError(f"{name} has values that are not finite; train the model again")
    layers = tuple(_quantize_block(cast(Block, block), config) for block in model.blocks)
    weights, bias, scale = _rows(floats(model.embedding.weight), floats(model.output_bias), NORMED)
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
    tables = [_rows(floats(memory.mean(number)), np.zeros(size), 1) for number, size in enumerate(memory.rows)]
    multiplier, post = _multipliers(np.concatenate([scale for *_, scale in tables]) * RESIDUAL, 0, "the memory")
    parts = np.split(multiplier, np.cumsum(memory.rows)[:-1])
    fingerprints = (memory.fingerprint(number).cpu().numpy().astype(np.int64) for number in range(len(tables)))
    found = zip(tables, parts, fingerprints, strict=True)
    return tuple(Table(weights, part, fingerprint) for (weights, *_), part, fingerprint in found), post


def _quantize_block(block: Block, config: TinyTransformerConfig) -> Layer:
    """The block in integers, with each output's units per 1.0 folded into its multipliers."""
    width, head = config.width, config.width // config.heads
    weight, bias = floats(block.qkv.weight), floats(block.qkv.bias)
    _, k_scale, v_scale = map(_channel_scale, np.split(weight, 3), np.split(bias, 3))
    # Queries absorb the scales of keys.
    units = {"q": k_scale * (NAT * 1024) / sqrt(head), "k": 1 / k_scale, "v": 1 / v_scale}
    weights, integer_bias, scale = _rows(weight, bias, NORMED)
    shifts = {"pre_qkv": _pre_of_normed(width, integer_bias)}
    multipliers = []
    for (name, unit), part in zip(units.items(), np.split(scale, 3), strict=True):
        found, shifts[f"post_{name}"] = _multipliers(part * unit / NORMED, shifts["pre_qkv"], name)
        multipliers.append(found)
    qkv = Matrix(weights, integer_bias, np.concatenate(multipliers))

    weights, integer_bias, scale = _rows(floats(block.up.weight), floats(block.up.bias), NORMED)
    shifts["pre_up"] = _pre_of_normed(width, integer_bias)
    multiplier, shifts["post_up"] = _multipliers(scale * GATE / NORMED, shifts["pre_up"], "up")
    up = Matrix(weights, integer_bias, multiplier)

    out_weight = floats(block.out.weight) * v_scale  # the values' scales, by column
    out, shifts["pre_out"], shifts["post_out"] = _to_residual(
        out_weight, floats(block.out.bias), ATTENDED, 127 / CLIP * ATTENDED * 1.5, "out"
    )
    down, shifts["pre_down"], shifts["post_down"] = _to_residual(
        floats(block.down.weight), floats(block.down.bias), NORMED, 2.0 * NORMED, "down"
    )
    distance_bias = np.round(floats(block.distance_bias) * NAT).clip(-32768, 32767).astype(np.int64)
    return Layer(qkv, out, up, down, distance_bias, shifts)


def _to_residual(weight: Floats, bias: Floats, unit: int, typical: float, what: str) -> tuple[Matrix, int, int]:
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


def _rows(weight: Floats, bias: Floats, unit: int) -> tuple[Array, Array, Floats]:
    """(weights in -127 to 127, biases, scale of each row); a scale is large enough to keep the bias in its limits."""
    scale = np.maximum(abs(weight).max(1) / 127, abs(bias) * unit / LARGEST_BIAS)
    divisor = np.where(scale == 0, 1, scale)  # a row of zeros stays one
    weights, biases = np.round(weight / divisor[:, None]), np.round(bias * unit / divisor)
    return weights.astype(np.int64), biases.astype(np.int64), scale


def _channel_scale(weight: Floats, bias: Floats) -> Floats:
    """The size of one unit of each 8-bit channel, for outputs of rows `weight` on normed input."""
    reach = abs(bias) + min(CLIP, sqrt(weight.shape[1])) * np.linalg.norm(weight, axis=1)
    return np.where(reach == 0, 1.0, reach / 127)


def _multipliers(factor: Floats, pre: int, what: str) -> tuple[Array, int]:
    """Integers m and a shift `post` with factor = m 2**-(pre + post), where m uses as many of 15 bits as possible."""
    post = min(_largest_shift(factor) - pre, LARGEST_POST) if factor.any() else 1
    if post < 1:
        large = f"larger than 16-bit scales reach (shift {post}, allowed 1 to {LARGEST_POST})"
        raise ValueError(f"the weights of {what} are {large}; train with more weight decay or a lower learning rate")
    return np.round(factor * 2.0 ** (post + pre)).astype(np.int64), post


def _largest_shift(factor: Floats) -> int:
    """The largest n for which factor 2**n is at most the largest multiplier, rounded."""
    largest = float(factor.max())
    shift = 15 - frexp(largest)[1]
    return shift if round(largest * 2.0**shift) <= LARGEST_MULTIPLIER else shift - 1


def _pre_of_normed(width: int, bias: Array) -> int:
    """The least shift after which any sum over a normed vector, whose length is known, fits 16 bits."""
    return max(0, ((width << 17) + int(abs(bias).max())).bit_length() - 15)


def floats(tensor: torch.Tensor) -> Floats:
    """A tensor as an array."""
    return np.asarray(tensor.detach().cpu().double().numpy())


def unpacked(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Dequantise a shipped model's tensors, leaving others unchanged. Raises ValueError for rows without scales."""
    if not any(name.endswith(SCALE) for name in tensors):
        return tensors
    found = {}
    for name, tensor in tensors.items():
        if tensor.dtype == torch.int8:
            scale = tensors.get(name + SCALE)
            if scale is None or tensor.dim() != 2 or scale.shape != tensor.shape[:1]:
                raise ValueError(f"{name} of the weights lacks a scale for each row; copy the model again")
            found[name] = tensor * scale.clamp(-1e30, 1e30)[:, None]
        elif not name.endswith(SCALE):
            found[name] = tensor.float() if tensor.is_floating_point() else tensor
    return found
