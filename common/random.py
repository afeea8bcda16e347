"""Random numbers as pure functions of a key and an item: no generator, no state, the same bits on every device.

A stream of numbers has a key, made by `derive_key` from the run's seed and the names of what the stream is for. Row i
of `uniform(derive_key(seed, "instances"), items, 150)` depends on the key and item i alone. The hash is SplitMix64
(Steele, Lea and Flood 2014, Fast Splittable Pseudorandom Number Generators) in wrapping int64.
"""

import hashlib
import json

import torch
from torch import Tensor

GAMMA = 0x9E3779B97F4A7C15 - 2**64  # SplitMix64's increment, as a signed number
MASK = 2**64 - 1
BITS = 23  # of a float32's mantissa: every multiple of 2**-23 below 1 is exact, and none rounds up to 1


def derive_key(seed: int, *parts: int | str) -> int:
    """Return the key of a stream, an int64, from a seed and what it is for: `derive_key(seed, "noise", step)`."""
    for part in (seed, *parts):
        if type(part) not in (int, str):
            raise TypeError(f"derive_key takes int and str, got {part!r} of type {type(part).__name__}")
    digest = hashlib.blake2b(json.dumps([seed, *parts]).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little", signed=True)


def first_uniform(key: int, item: int) -> float:
    """Return the first number of an item's row, as `uniform` does; for one number, tensors take 30 times as long."""
    return (_mixed(_mixed(_mixed(item) + key) + GAMMA) >> 64 - BITS) * 2.0**-BITS


def uniform(key: int, items: Tensor, count: int) -> Tensor:
    """Return (B, count) float32 in [0, 1 - 2**-23], on the items' device: row i depends on (key, items[i]) alone."""
    return _logical_shift(random_bits(key, items, count), 64 - BITS).to(torch.float32).mul_(2.0**-BITS)


def random_bits(key: int | Tensor, items: Tensor, count: int) -> Tensor:
    """Return (B, count) int64 of random bits for items (B,) int64, as `uniform` does numbers."""
    rows = _mix(_mix(items.long().clone()).add_(key))
    # 1 to count, times GAMMA. Of arange(1, ...) inductor (torch 2.13) makes an index, which wraps at 32 bits on a CPU.
    columns = torch.arange(-2, -2 - count, -1, device=items.device).bitwise_not_().mul_(GAMMA)
    return _mix(rows[:, None] + columns)


def _mixed(bits: int) -> int:
    bits &= MASK
    bits = ((bits ^ (bits >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    bits = ((bits ^ (bits >> 27)) * 0x94D049BB133111EB) & MASK
    return bits ^ (bits >> 31)


def _mix(bits: Tensor) -> Tensor:
    bits.bitwise_xor_(_logical_shift(bits, 30)).mul_(0xBF58476D1CE4E5B9 - 2**64)
    bits.bitwise_xor_(_logical_shift(bits, 27)).mul_(0x94D049BB133111EB - 2**64)
    return bits.bitwise_xor_(_logical_shift(bits, 31))


def _logical_shift(bits: Tensor, places: int) -> Tensor:
    """Shift right and fill with zeros; `>>` on int64 fills with the sign."""
    return (bits >> places).bitwise_and_(2 ** (64 - places) - 1)
