"""Measures of text and of language models: nats and bits, n-gram baselines, compression, words, copied spans."""

import bisect
import lzma
import math
import re
from collections.abc import Hashable, Iterable, Sequence
from collections.abc import Set as AbstractSet

import numpy as np
import torch.nn.functional as F
from torch import Tensor

BITS_PER_NAT = 1 / math.log(2)
NGRAM_NAMES = {"1-gram": "unigram", "2-gram": "bigram"}
WORD = re.compile(r"[^\W\d_]+(?:['\u2019][^\W\d_]+)*")


def token_nats(logits: Tensor, targets: Tensor, ignored: int = -100) -> Tensor:
    """Return the cross-entropy (B, S) of each target under `logits` (B, S, V); 0 where the target is `ignored`."""
    nats = F.cross_entropy(logits.float().flatten(0, 1), targets.flatten(), ignore_index=ignored, reduction="none")
    return nats.view(targets.shape)


class NGram:
    """Interpolated Witten-Bell model over integer ids (Witten and Bell 1991; the form is Chen and Goodman's, 1999).

    p(w | h) = (c(h w) + T(h) p(w | h')) / (c(h) + T(h)), where T(h) is the number of distinct ids seen after h, and h'
    is h without its first id. If nothing was seen after h, it is p(w | h'); below order 1, it is 1 / vocabulary.

    Raises ValueError for an order or a vocabulary below 1; `fit` and `nats` raise it for ids outside the vocabulary.
    """

    def __init__(self, order: int, vocabulary: int):
        if order < 1 or vocabulary < 1:
            raise ValueError(f"order and vocabulary must be 1 or more (given {order} and {vocabulary})")
        self.order, self.vocabulary = order, vocabulary
        # Per order: (context, id) pairs, their counts, and the total and distinct ids per context.
        self.levels: list[tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]] = []

    def fit(self, sequences: Iterable[np.ndarray]) -> "NGram":
        """Count n-grams in 1-D sequences of ids; each begins with a start marker, which is context, never predicted."""
        ids, ages = self._flat(sequences)
        # A context is numbered by its place among the pairs (shorter context, id) of the level below, so keys stay
        # below len(ids) * vocabulary at any order. Each of the three count arrays ends in an extra 0, which is read at
        # place -1, "never seen".
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
        """Return -log p of all ids but the first, an array (len - 1,) per sequence; (0,) for an empty sequence."""
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
        """Return all ids concatenated (N,), and the number of ids before each one in its sequence (N,)."""
        arrays = [np.zeros(0, np.int64), *(np.asarray(sequence, np.int64) for sequence in sequences)]
        ids = np.concatenate(arrays)
        if len(ids) and not 0 <= ids.min() <= ids.max() < self.vocabulary:
            raise ValueError(f"ids must be 0 to {self.vocabulary - 1} (given {ids.min()} to {ids.max()})")
        return ids, np.concatenate([np.arange(len(array)) for array in arrays])


def ngram_label(name: str) -> str:
    """Return the name of an n-gram baseline, such as "5-gram", as tables show it."""
    return f"{NGRAM_NAMES.get(name, name)} (Witten-Bell)"


def bits_per_character(nats: float, characters: int) -> float:
    """Convert the nats of a whole text to bits per character. Raises ValueError for a text without characters."""
    if characters < 1:
        raise ValueError(f"bits per character need at least one character (given {characters})")
    return nats / math.log(2) / characters


def xz_bits_per_character(training: str, held_out: str) -> dict[str, float]:
    """Return the bits that xz -9e needs per Unicode character of `held_out`, alone and appended to the training text.

    Raises ValueError if `held_out` is empty.
    """
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


def words(text: str) -> list[str]:
    """Return the lower-case words of a text: runs of letters, with apostrophes inside."""
    return [word.lower() for word in WORD.findall(text)]


def known_share(words: Sequence[str], known: AbstractSet[str]) -> float | None:
    """Return the share of `words` that are in `known`; None if there are no words."""
    return sum(word in known for word in words) / len(words) if words else None


def longest_copied_span(text: str, training: str) -> str:
    """Return the longest piece of `text` that occurs in `training`, the first if several are equally long; else ""."""
    own, other = _RollingHashes(text), _RollingHashes(training)

    def copied(length: int) -> str:
        starts = np.flatnonzero(np.isin(own.hashes(length), own.common(other, length)))
        # Hashes can collide, so the text decides.
        pieces = (text[start : start + length] for start in starts)
        return next((piece for piece in pieces if piece in training), "")

    # If a piece of some length is copied, so are pieces of all smaller lengths: this allows a binary search.
    lengths = range(1, min(len(text), len(training)) + 1)
    longest = bisect.bisect_left(lengths, True, key=lambda length: not copied(length))
    return copied(longest) if longest else ""


def distinct(items: Sequence[Hashable], n: int) -> float | None:
    """Return the share of different n-grams among all n-grams of `items`; None if there are none."""
    grams = [tuple(items[i : i + n]) for i in range(len(items) - n + 1)]
    return len(set(grams)) / len(grams) if grams else None


def copied_characters(text: str, training: str, span: int = 50) -> np.ndarray:
    """Mark (len(text),) bool the characters of `text` inside a piece of `span` characters that `training` also has.

    It compares 64-bit hashes: for megabytes of text, the chance that any two different pieces collide is about 1e-7.
    """
    if span < 1:
        raise ValueError(f"span must be 1 or more (given {span})")
    pieces, known = _RollingHashes(text).hashes(span), np.sort(_RollingHashes(training).hashes(span))
    starts = np.flatnonzero(_places(known, pieces) >= 0)
    # +1 where a piece begins, -1 just past its end: the running sum is the number of pieces that cover a character.
    steps = np.bincount(starts, minlength=len(text) + 1) - np.bincount(starts + span, minlength=len(text) + 1)
    return np.cumsum(steps)[: len(text)] > 0


class _RollingHashes:
    """Hashes of all windows of any one length, in a few array operations over the text (Karp and Rabin 1987)."""

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
        """Return (characters - length + 1,) uint64, or (0,) if the text is shorter than `length` >= 1."""
        sums = self.prefixes[length:] - self.prefixes[:-length]
        return sums * self.shifts[: len(sums)]

    def common(self, other: "_RollingHashes", length: int) -> np.ndarray:
        """Return the hashes of `other`, a longer text, that may be among this text's; most others fail on 16 bits."""
        theirs = other.hashes(length)
        sieve = np.zeros(1 << 16, bool)
        sieve[self.hashes(length) >> 48] = True
        return theirs[sieve[theirs >> 48]]


def _before(places: np.ndarray, ages: np.ndarray) -> np.ndarray:
    """Return, for each id, the place of the id before it in its sequence; -1 for the first."""
    return np.where(ages >= 1, np.roll(places, 1), -1)


def _places(keys: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Return the index of each of `wanted` in the sorted `keys`; -1 if it is not among them."""
    if not len(keys):
        return np.full(len(wanted), -1)
    places = np.searchsorted(keys, wanted).clip(max=len(keys) - 1)
    return np.where(keys[places] == wanted, places, -1)


def _xz_bytes(text: str) -> int:
    data = text.encode()
    # The dictionary covers the whole text, so that its end can be copied from its beginning.
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME, "dict_size": max(1 << 16, len(data))}]
    return len(lzma.compress(data, lzma.FORMAT_XZ, filters=filters))
