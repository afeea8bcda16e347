"""What language workloads share to judge themselves by: n-gram baselines, compression, words, copied spans."""

import bisect
import lzma
import math
import re
from collections.abc import Iterable, Sequence

import numpy as np

WORD = re.compile(r"[^\W\d_]+(?:['\u2019][^\W\d_]+)*")


class NGram:
    """Interpolated Witten-Bell model over integer ids (Witten and Bell 1991; the form is Chen and Goodman's, 1999).

    p(w | h) = (c(h w) + T(h) p(w | h')) / (c(h) + T(h)), with T(h) the number of distinct ids seen after h, and h'
    without its first id; where nothing was seen after h, p(w | h'); below order 1, 1 / vocabulary.

    Raises ValueError for an order or a vocabulary below 1 and, in both methods, for ids outside of the vocabulary.
    """

    def __init__(self, order: int, vocabulary: int):
        if order < 1 or vocabulary < 1:
            raise ValueError(f"order and vocabulary must be 1 or more (given {order} and {vocabulary})")
        self.order, self.vocabulary = order, vocabulary

    def fit(self, sequences: Iterable[np.ndarray]) -> "NGram":
        """Count in 1-D sequences of ids; the first id of each, a start marker, is context and never predicted."""
        ids, ages = self._flat(sequences)
        # A context is numbered by its place among the pairs (shorter context, id) of the level below: keys stay below
        # len(ids) * vocabulary at any order. A level is (pairs, their counts, total and distinct ids per context); a
        # last 0 in the three answers for place -1, which is "never seen".
        self.levels = []
        contexts, num_contexts = np.zeros(len(ids), np.int64), 1
        for _ in range(self.order):
            raw, valid = contexts * self.vocabulary + ids, contexts >= 0
            pairs = np.sort(raw[valid])  # on text, faster than np.unique with its inverse
            pairs = pairs[np.diff(pairs, prepend=-1) > 0]
            places = _places(pairs, raw)
            counts = np.bincount(places[valid & (ages >= 1)], minlength=len(pairs) + 1)
            owners, seen = pairs // self.vocabulary, counts[:-1]
            totals = np.bincount(owners, seen, num_contexts + 1)
            distinct = np.bincount(owners, seen > 0, num_contexts + 1)
            self.levels.append((pairs, counts, totals, distinct))
            contexts, num_contexts = _before(places, ages), len(pairs)
        return self

    def nats(self, sequences: Sequence[np.ndarray]) -> list[np.ndarray]:
        """-log p of every id but the first of each sequence, as an array (len - 1,) for each; (0,) for an empty one."""
        ids, ages = self._flat(sequences)
        probability = np.full(len(ids), 1 / self.vocabulary)
        contexts = np.zeros(len(ids), np.int64)
        for pairs, counts, totals, distinct in self.levels:
            places = _places(pairs, contexts * self.vocabulary + ids)
            total, kinds = totals[contexts], distinct[contexts]
            mixed = (counts[places] + kinds * probability) / np.maximum(total + kinds, 1)
            probability = np.where(total > 0, mixed, probability)
            contexts = _before(places, ages)
        ends = np.cumsum([len(sequence) for sequence in sequences])[:-1]
        return [part[1:] for part in np.split(-np.log(probability), ends)] if len(sequences) else []

    def _flat(self, sequences: Iterable[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        """All ids behind each other (N,), and how many ids stand before each in its sequence (N,)."""
        arrays = [np.zeros(0, np.int64), *(np.asarray(sequence, np.int64) for sequence in sequences)]
        ids = np.concatenate(arrays)
        if len(ids) and not 0 <= ids.min() <= ids.max() < self.vocabulary:
            raise ValueError(f"ids must be 0 to {self.vocabulary - 1} (given {ids.min()} to {ids.max()})")
        return ids, np.concatenate([np.arange(len(array)) for array in arrays])


def bits_per_character(nats: float, characters: int) -> float:
    """Nats of a whole text as bits for each of its characters. Raises ValueError for a text without characters."""
    if characters < 1:
        raise ValueError(f"bits per character need one character or more (given {characters})")
    return nats / math.log(2) / characters


def xz_bits_per_character(training: str, held_out: str) -> dict[str, float]:
    """Bits that xz -9e needs for a Unicode character of `held_out`: alone, and appended to the training text.

    Raises ValueError where `held_out` is empty.
    """
    if not held_out:
        raise ValueError("bits per character need one character or more (held_out is empty)")
    alone, before, both = (_xz_bytes(text) for text in (held_out, training, training + held_out))
    return {"alone": 8 * alone / len(held_out), "after training": 8 * (both - before) / len(held_out)}


def words(text: str) -> list[str]:
    """Lower-case words: runs of letters, with apostrophes inside."""
    return [word.lower() for word in WORD.findall(text)]


def known_word_share(text: str, known: set[str]) -> float | None:
    """Share of the text's words that are in `known`; None for a text without words."""
    found = words(text)
    return sum(word in known for word in found) / len(found) if found else None


def longest_copied_span(text: str, training: str) -> str:
    """The longest piece of `text` that stands in `training`, the first of equally long ones; "" where there is none."""
    own, other = _RollingHashes(text), _RollingHashes(training)

    def copied(length: int) -> str:
        starts = np.flatnonzero(np.isin(own.hashes(length), own.common(other, length)))
        # Equal hashes only propose: the text decides.
        pieces = (text[start : start + length] for start in starts)
        return next((piece for piece in pieces if piece in training), "")

    # What holds for a length holds for all shorter ones.
    lengths = range(1, min(len(text), len(training)) + 1)
    longest = bisect.bisect_left(lengths, True, key=lambda length: not copied(length))
    return copied(longest) if longest else ""


def distinct(items: Sequence, n: int) -> float | None:
    """Share of different n-grams among those of `items`; None where there is none."""
    grams = [tuple(items[i : i + n]) for i in range(len(items) - n + 1)]
    return len(set(grams)) / len(grams) if grams else None


def copied_characters(text: str, training: str, span: int = 50) -> np.ndarray:
    """Which characters of `text` (len(text),) bool lie in a piece of `span` characters that stands in `training`.

    Compares 64-bit hashes, so that two different pieces pass for one with a chance of about 1e-7 at megabytes of text.
    """
    if span < 1:
        raise ValueError(f"span must be 1 or more (given {span})")
    pieces, known = _RollingHashes(text).hashes(span), np.sort(_RollingHashes(training).hashes(span))
    starts = np.flatnonzero(_places(known, pieces) >= 0)
    # +1 where a piece begins, -1 behind its end: the running sum counts the pieces over each character.
    steps = np.bincount(starts, minlength=len(text) + 1) - np.bincount(starts + span, minlength=len(text) + 1)
    return np.cumsum(steps)[: len(text)] > 0


class _RollingHashes:
    """Hashes of all windows of a text, of any length, each in a few operations over the text (Karp and Rabin 1987)."""

    BASE = 0x9E3779B97F4A7C15  # odd, so that its powers can be inverted modulo 2^64

    def __init__(self, text: str):
        codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32).astype(np.uint64)
        powers = self._powers(self.BASE, len(codes))
        self.prefixes = np.concatenate([np.zeros(1, np.uint64), np.cumsum(codes * powers, dtype=np.uint64)])
        self.shifts = self._powers(pow(self.BASE, -1, 1 << 64), len(codes))

    @staticmethod
    def _powers(base: int, count: int) -> np.ndarray:
        return np.cumprod(np.concatenate([np.ones(1, np.uint64), np.full(count, base, np.uint64)]))[:count]

    def hashes(self, length: int) -> np.ndarray:
        """(characters - length + 1,) uint64, (0,) where the text is shorter than `length` >= 1."""
        sums = self.prefixes[length:] - self.prefixes[:-length]
        return sums * self.shifts[: len(sums)]

    def common(self, other: "_RollingHashes", length: int) -> np.ndarray:
        """Those of a longer text's hashes that may be among this one's; most others are sieved out by 16 bits."""
        theirs = other.hashes(length)
        sieve = np.zeros(1 << 16, bool)
        sieve[self.hashes(length) >> 48] = True
        return theirs[sieve[theirs >> 48]]


def _before(places: np.ndarray, ages: np.ndarray) -> np.ndarray:
    """The place that belongs to the id before each in its sequence; -1 for the first."""
    return np.where(ages >= 1, np.roll(places, 1), -1)


def _places(keys: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Index of each of `wanted` in the sorted `keys`, -1 where it is not among them."""
    if not len(keys):
        return np.full(len(wanted), -1)
    places = np.searchsorted(keys, wanted).clip(max=len(keys) - 1)
    return np.where(keys[places] == wanted, places, -1)


def _xz_bytes(text: str) -> int:
    data = text.encode()
    # The dictionary covers everything, so that the end can be copied from the beginning.
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME, "dict_size": max(1 << 16, len(data))}]
    return len(lzma.compress(data, lzma.FORMAT_XZ, filters=filters))
