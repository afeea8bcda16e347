"""Measures of text and of language models: nats and bits, words, copied spans, and compressors as predictors."""

import lzma
import math
import re
from bisect import bisect_left
from collections.abc import Sequence

import numpy as np
from torch import Tensor
from torch.nn import functional

from common.kneser_ney import lookup

BITS_PER_NAT = 1 / math.log(2)
WORD = re.compile(r"[^\W\d_]+(?:['\u2019][^\W\d_]+)*")
BASE = 0x9E3779B97F4A7C15  # of hashes; odd, so that its powers can be inverted modulo 2^64
BUCKET = np.uint64(48)  # shift that leaves the first 16 bits of a hash
PPMD_ORDERS = (4, 5, 6, 8, 12, 16)
PPMD_MEMORY = 1 << 28  # bytes; the model restarts when they are full
MOST_CHARACTERS = 20_000_000  # last ones of the training text that xz, known words and copy searches use
MOST_FOR_ORDER = 300_000  # last characters of the training text, on which an order is chosen


def token_nats(logits: Tensor, targets: Tensor, ignored: int = -100) -> Tensor:
    """Return the cross-entropy (B, S) of each target under `logits` (B, S, V); 0 where the target is `ignored`."""
    flat = logits.float().flatten(0, 1)
    return functional.cross_entropy(flat, targets.flatten(), ignore_index=ignored, reduction="none").view(targets.shape)


def words(text: str) -> list[str]:
    """Return the lower-case words of a text: runs of letters, with apostrophes inside."""
    return [word.lower() for word in WORD.findall(text)]


def longest_copied_span(text: str, training: str) -> str:
    """Return the longest piece of `text` that occurs in `training`, the first if several are equally long; else ""."""
    lengths = range(1, min(len(text), len(training)) + 1)
    length = bisect_left(lengths, True, key=lambda length: not copied_characters(text, training, length).any())
    start = int(copied_characters(text, training, length).argmax()) if length else 0
    return text[start : start + length]


def copied_characters(text: str, training: str, span: int = 50) -> np.ndarray:
    """Mark (len(text),) bool the characters in pieces of `span` characters copied from `training`, by 64-bit hashes."""
    if span < 1:
        raise ValueError(f"span must be 1 or more (given {span})")
    pieces, known = hashes(text, span), hashes(training, span)
    known = known[np.isin(known >> BUCKET, pieces >> BUCKET)]  # the few of a long text that may be among the pieces
    starts = np.flatnonzero(lookup(np.sort(known), pieces) >= 0)
    # +1 where a piece begins, -1 just past its end: the running sum is the number of pieces that cover a character.
    steps = np.bincount(starts, minlength=len(text) + 1) - np.bincount(starts + span, minlength=len(text) + 1)
    return np.cumsum(steps)[: len(text)] > 0


def hashes(text: str, length: int) -> np.ndarray:
    """Return the rolling hash of each piece of `length` >= 1 characters, (characters - length + 1,) uint64 or (0,)."""
    codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32).astype(np.uint64)
    prefixes = np.cumsum(np.append(np.uint64(0), codes * powers(BASE, len(codes))), dtype=np.uint64)
    sums = prefixes[length:] - prefixes[:-length]
    return np.asarray(sums * powers(pow(BASE, -1, 1 << 64), len(sums)))


def powers(base: int, count: int) -> np.ndarray:
    """Return the first powers (count,) of `base` modulo 2^64."""
    return np.cumprod(np.append(np.uint64(1), np.full(count, base, np.uint64)), dtype=np.uint64)[:count]


def ppmd_baseline(training: str, pieces: Sequence[str]) -> tuple[str, np.ndarray]:
    """Return a row's name and the bits (n,) of held-out pieces, with the order best at the end of the training text."""
    searched = training[-MOST_FOR_ORDER:]
    cut = len(searched) - len(searched) // 10
    order = min(PPMD_ORDERS, key=lambda order: ppmd_bits(searched[:cut], [searched[cut:]], order).sum())
    return f"PPMd, order {order}, adapting", ppmd_bits(training, pieces, order)


def ppmd_bits(training: str, pieces: Sequence[str], order: int) -> np.ndarray:
    """Return the bits (n,), in whole bytes, of successive pieces under PPMd variant I, which adapts to all it reads."""
    import pyppmd

    encoder = pyppmd.Ppmd8Encoder(order, PPMD_MEMORY)
    encoder.encode(training.encode())
    return np.array([8 * len(encoder.encode(piece.encode())) for piece in pieces])


def xz_rows(training: str, held_out: str, most_characters: int) -> list[dict[str, str | float]]:
    """Return table rows for xz as a predictor, which reads at most the last `most_characters` of the training text."""
    cut = f" on its last {most_characters:,} characters" if len(training) > most_characters else ""
    training = training[-most_characters:]
    alone, before, both = (_xz_bytes(text) for text in (held_out, training, training + held_out))
    return [
        {"predictor": f"xz -9e, {how}", "bits/character": 8 * size / len(held_out)}
        for how, size in (("alone", alone), (f"after training{cut}", both - before))
    ]


def _xz_bytes(text: str) -> int:
    data = text.encode()
    # The dictionary covers the whole text, so that its end can be copied from its beginning.
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME, "dict_size": max(1 << 16, len(data))}]
    return len(lzma.compress(data, lzma.FORMAT_XZ, filters=filters))
