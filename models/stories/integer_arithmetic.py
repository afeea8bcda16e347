"""The arithmetic of exporters/rp2040/FORMAT.md on numpy arrays of int64: matrices, layer norm, attention, tables.

Sums of products below 2**53 are exact in float64, so products of matrices can use BLAS for speed.

Shapes: B sequences, H heads, S positions, N cached positions, D width, d = D / H.
"""

from dataclasses import dataclass
from functools import cached_property
from math import erf, exp, isqrt, sqrt
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[np.int64]

NAT = 64  # a score or a scaled logit of 64 is one nat
RESIDUAL, NORMED, ATTENDED, GATE = 2**12, 2**10, 2**8, 2**7  # 1.0 in each kind of activation
LARGEST_RESIDUAL, LARGEST_POST = 2**22, 30
EXP = np.array([round(32768 * exp(-i / NAT)) for i in range(704)])
GELU = np.array([round(1024 * x * (1 + erf(x / sqrt(2))) / 2) for x in ((i - 512) / 128 for i in range(1024))])


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
    weights = np.where(seen & (below < len(EXP)), EXP[np.minimum(np.maximum(below, 0), len(EXP) - 1)], 0)
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
