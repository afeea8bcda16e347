"""Compressors as predictors of text: the bits that they need for it after having read other text."""

import lzma
from collections.abc import Sequence

import numpy as np

PPMD_ORDERS = (4, 5, 6, 8, 12, 16)
PPMD_MEMORY = 1 << 28  # bytes; it forgets everything when they are full
MOST_FOR_ORDER = 300_000  # characters of the training text, its end, that an order is chosen on


def ppmd_baseline(training: str, pieces: Sequence[str]) -> tuple[str, np.ndarray]:
    """Return a row's name and the bits (n,) of held-out pieces, by the order that predicts the end of training best."""
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


def xz_bits_per_character(training: str, held_out: str) -> dict[str, float]:
    """Return bits of xz -9e per character of `held_out`, alone and after training text; ValueError if it is empty."""
    if not held_out:
        raise ValueError("bits per character need at least one character (held_out is empty)")
    alone, before, both = (_xz_bytes(text) for text in (held_out, training, training + held_out))
    return {"alone": 8 * alone / len(held_out), "after training": 8 * (both - before) / len(held_out)}


def xz_rows(training: str, held_out: str, most_characters: int) -> list[dict[str, str | float]]:
    """Return table rows for xz as a predictor, which reads at most the last `most_characters` of the training text."""
    cut = f" on its last {most_characters:,} characters" if len(training) > most_characters else ""
    bits = xz_bits_per_character(training[-most_characters:], held_out)
    return [
        {"predictor": f"xz -9e, {how}{cut if how != 'alone' else ''}", "bits/character": value}
        for how, value in bits.items()
    ]


def _xz_bytes(text: str) -> int:
    data = text.encode()
    # The dictionary covers the whole text, so that its end can be copied from its beginning.
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME, "dict_size": max(1 << 16, len(data))}]
    return len(lzma.compress(data, lzma.FORMAT_XZ, filters=filters))
