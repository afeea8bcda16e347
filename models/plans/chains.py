"""Chains of contexts over characters: counts of the tokens that followed each context, in flat arrays.

A chain is a list of contexts of one position, each a refinement of the one before it: the last 0, 1, 2, ... tokens; the
current word with the words before it; the last tokens within the document at hand. A token counts for the longest
context of its chain, and for a shorter one when the next longer has it for the first time, so that the counts of
shorter contexts are those of Kneser and Ney 1995. A chain turns the distribution that it begins with into sharper ones,
context by context; a mixture weights the changes. Shapes: N positions, K contexts of a position, V tokens.
"""

import functools
import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from common.kneser_ney import lookup, sums_before

ORDERS = (0, 1, 2, 3, 4, 5, 6, 8, 12, 20)  # contexts of the first chain: so many tokens
_ORDERS = np.array(ORDERS)
WORDS = 3  # of the second: the current word with none, one and two words before it, from order 1 on
SECTION_ORDERS = (3, 5)  # of the third: so many tokens, and the current word, below the same heading; from order 3 on
OWN_ORDERS = (1, 2, 3, 4, 5, 6)  # of the fourth: so many tokens, in the same document
STORED = len(ORDERS) + WORDS + len(SECTION_ORDERS) + 1  # contexts of training text: without the fourth chain
CONTEXTS = STORED + len(OWN_ORDERS)
CHAINS = tuple(itertools.starmap(range, itertools.pairwise((0, len(ORDERS), len(ORDERS) + WORDS, STORED, CONTEXTS))))
_SECTION_PLACES, _OWN_PLACES = (np.searchsorted(ORDERS, orders) for orders in (SECTION_ORDERS, OWN_ORDERS))
WORD, LETTER, LINE_END, CLOSING = 1, 2, 4, 8  # bits of a token's classes
LONGEST_HEADING = 80  # characters
# Discounts of counts of 1, 2 and more. Those of characters hardly differ from text to text.
DISCOUNTS, OWN_DISCOUNTS = (0.88, 1.1, 1.3), (0.8, 1.0, 1.2)
_LOWERED = np.diff(np.array([DISCOUNTS] * STORED + [OWN_DISCOUNTS] * len(OWN_ORDERS), np.float32), prepend=0).T
TOTALS, KINDS = (1.5, 2.5, 4.5, 8.5, 20.5), (1.5, 2.5, 4.5)  # borders between states of a context
_TOTALS, _KINDS = np.array(TOTALS), np.array(KINDS)
STATES = 1 + (len(TOTALS) + 1) * (len(KINDS) + 1)  # 0: never seen
REACH = 128  # tokens that contexts, except headings, reach back, if words are as long as in a natural language
FEW = 100_000  # rows that are sorted at once
AT_ONCE = 4096  # powers of the hash are computed in multiples of this number
TAGS = np.arange(1, CONTEXTS + 1, dtype=np.uint64) * np.uint64(0xD6E8FEB86659FD93)  # keep contexts of a kind apart
_SHIFTS = tuple(np.uint64(places) for places in (30, 27, 31))
_FACTORS = tuple(np.uint64(factor) for factor in (0xBF58476D1CE4E5B9, 0x94D049BB133111EB))
BASE = 0x9E3779B97F4A7C15  # of a rolling hash, odd, so that its powers can be inverted modulo 2^64

Hashes = Callable[[np.ndarray, np.ndarray], np.ndarray]  # of the pieces of a sequence, by their begins and ends


def mixed(values: np.ndarray) -> np.ndarray:
    """Apply the finaliser of SplitMix64 (Steele et al. 2014): every bit of a value affects all bits of the result."""
    values = values ^ (values >> _SHIFTS[0])
    values *= _FACTORS[0]
    values ^= values >> _SHIFTS[1]
    values *= _FACTORS[1]
    values ^= values >> _SHIFTS[2]
    return values


@functools.lru_cache(maxsize=4)
def powers_of_base(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return powers (count,) uint64 of BASE and of its inverse, from 0 on."""
    bases = np.array([[BASE], [pow(BASE, -1, 1 << 64)]], np.uint64)
    powers = np.cumprod(np.where(np.arange(count) > 0, bases, np.uint64(1)), 1, dtype=np.uint64)
    return powers[0], powers[1]


def hashes_of(tokens: np.ndarray) -> Hashes:
    """Return the hashes of pieces of a sequence, from sums over its beginning (Karp and Rabin 1987)."""
    powers, shifts = powers_of_base(-(-(len(tokens) + 1) // AT_ONCE) * AT_ONCE)
    sums = np.zeros(len(tokens) + 1, np.uint64)
    np.cumsum((tokens + 1).astype(np.uint64) * powers[: len(tokens)], out=sums[1:])
    return lambda begins, ends: (sums[ends] - sums[begins]) * shifts[begins]


def classes_of(texts: Sequence[str]) -> np.ndarray:
    """Return the classes (V,) of tokens by their texts."""
    signs = [text if len(text) == 1 else "\0" for text in texts]  # tokens of several characters have no class
    words = [WORD * (sign.isalnum() or sign in "'\u2019-") | LETTER * sign.isalpha() for sign in signs]
    ends = [LINE_END * (sign == "\n") | CLOSING * (sign in ".,;:|") for sign in signs]
    return np.array([word | end for word, end in zip(words, ends, strict=True)])


def contexts(tokens: np.ndarray, classes: np.ndarray, document: int = 0) -> np.ndarray:
    """Return keys (N, K) int64 of the contexts of each of `tokens` (N,); the first row is meaningless.

    `classes` (V,) are those of all tokens, and `document` is the document's number.
    """
    return keys_of(*parts(tokens, classes), headings(tokens, classes), document)


def parts(tokens: np.ndarray, classes: np.ndarray, first: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the first arguments of `keys_of` for the tokens from `first` on: pieces, words, words before."""
    piece, places = hashes_of(tokens), np.arange(first, len(tokens))
    word, before = words(tokens, classes, piece)
    return piece(np.maximum(places[:, None] - _ORDERS, 0), places[:, None]), word[first:], before[first:]


def keys_of(
    pieces: np.ndarray, word: np.ndarray, before: np.ndarray, sections: np.ndarray, document: int | np.ndarray
) -> np.ndarray:
    """Return keys (N, K) int64 of contexts from their parts.

    These are hashes of the last tokens (N, ORDERS), the current word (N,), the words before it (N, WORDS - 1), latest
    first, and the heading (N,); and the document's number, one for all or one each (N,).
    """
    hashes = [word]
    for number in range(1, WORDS):
        hashes.append(mixed(hashes[-1] + np.uint64(number)) ^ before[:, number - 1])
    words = [each[:, None] for each in hashes]
    sectioned = mixed(np.concatenate([pieces[:, _SECTION_PLACES], words[1]], 1) + sections[:, None])
    own = pieces[:, _OWN_PLACES] + (np.atleast_1d(document) + 1).astype(np.uint64)[:, None] * np.uint64(BASE)
    return mixed(np.concatenate([pieces, *words, sectioned, own], 1) ^ TAGS).view(np.int64)


def headings(tokens: np.ndarray, classes: np.ndarray, before: int = 0) -> np.ndarray:
    """Return a hash (N,) of the letters of the heading above each token; before the first heading it is `before`.

    A heading is a short line that does not end like a sentence or a table row.
    """
    kinds = classes[tokens]
    ends = np.flatnonzero(kinds & LINE_END)
    begins = np.concatenate([[0], ends[:-1] + 1])[: len(ends)]
    letters = np.flatnonzero(kinds & LETTER)
    first, last = np.searchsorted(letters, begins), np.searchsorted(letters, ends)
    closing = (kinds[(ends - 1).clip(0)] & CLOSING) > 0
    chosen = (last > first) & (ends - begins <= LONGEST_HEADING) & ~closing
    found = mixed(hashes_of(tokens[letters])(first[chosen], last[chosen]))
    hashes = np.concatenate([np.array([before], np.uint64), found])
    return hashes[np.searchsorted(ends[chosen], np.arange(len(tokens)))]


def words(tokens: np.ndarray, classes: np.ndarray, piece: Hashes) -> tuple[np.ndarray, np.ndarray]:
    """Return the hash (N,) of the current word, between words of the last token, and those (N, WORDS - 1) before it."""
    places = np.arange(len(tokens))
    inside = np.zeros(len(tokens) + 2, bool)  # of a word, and neither before nor after the text
    inside[1:-1] = classes[tokens] & WORD
    edges = np.flatnonzero(inside[1:] != inside[:-1])
    begins, ends = edges[::2], edges[1::2]
    whole = np.concatenate([np.zeros(WORDS - 1, np.uint64), mixed(piece(begins, ends))])  # before a document, none
    current = inside[:-2]  # whether the token before each place is of a word
    started = np.searchsorted(begins, places)  # words that began before each place
    first = np.where(current, np.concatenate([[0], begins])[started], np.maximum(places - 1, 0))
    ended = started - current  # words that ended before each place
    before = np.stack([whole[np.maximum(ended - number + WORDS - 1, 0)] for number in range(1, WORDS)], 1)
    return piece(first, places), before


@dataclass(frozen=True)
class Counts:
    """How often tokens followed contexts; the tokens of context i are at offsets[i] to offsets[i + 1]."""

    keys: np.ndarray  # (rows,) int64, sorted
    offsets: np.ndarray  # (rows + 1,) int64
    tokens: np.ndarray  # (entries,) int16, ascending within a context
    counts: np.ndarray  # (entries,) int32

    def add_to(self, dense: np.ndarray, keys: np.ndarray) -> None:
        """Add the counts of all tokens after each context to `dense` (N, V)."""
        rows, entries = self._entries(lookup(self.keys, keys))
        dense[rows, self.tokens[entries]] += self.counts[entries]

    def has(self, keys: np.ndarray, tokens: np.ndarray) -> np.ndarray:
        """Return whether each token (N,) followed its context (N,)."""
        rows, entries = self._entries(lookup(self.keys, keys))
        found = np.zeros(len(keys), bool)
        found[rows[self.tokens[entries] == tokens[rows]]] = True
        return found

    def _entries(self, places: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the row and the entry of each token after the contexts at `places`, where -1 has none."""
        known = np.flatnonzero(places >= 0)
        begins, ends = self.offsets[places[known]], self.offsets[places[known] + 1]
        sizes = ends - begins
        skipped = np.cumsum(sizes) - sizes
        return np.repeat(known, sizes), np.arange(sizes.sum()) + np.repeat(begins - skipped, sizes)


class Apart:
    """The counts of several texts with equal numbers of rows of keys."""

    def __init__(self, counts: Sequence[Sequence[Counts]]):
        self.counts = counts

    def add_to(self, dense: np.ndarray, keys: np.ndarray) -> None:
        """Add the counts of all tokens after each context (N,) to `dense` (N, V), each text's to its own rows."""
        parts = (np.split(each, len(self.counts)) for each in (dense, keys))
        for counts, own, own_keys in zip(self.counts, *parts, strict=True):
            for each in counts:
                each.add_to(own, own_keys)


EMPTY = Counts(np.zeros(0, np.int64), np.zeros(1, np.int64), np.zeros(0, np.int16), np.zeros(0, np.int32))


def counted(keys: np.ndarray, tokens: np.ndarray, known: Sequence[Counts] = ()) -> np.ndarray:
    """Return (N, K) bool: the contexts in which each token counts, after `known` text and the tokens before it."""
    found = np.zeros(keys.shape, bool)
    for levels in (each for each in CHAINS if each.stop <= keys.shape[1]):  # all, or only those of training text
        new = np.ones(len(keys), bool)
        for level in reversed(levels):
            found[:, level] = new
            new = counted_below(keys[:, level], tokens, new, known)
    return found


def counted_below(keys: np.ndarray, tokens: np.ndarray, new: np.ndarray, known: Sequence[Counts] = ()) -> np.ndarray:
    """Return (N,) bool: the tokens that count in the next shorter context, of the `new` ones in the contexts (N,)."""
    first = np.zeros(len(keys), bool)
    for rows in portions(keys):
        first[rows[np.unique(_pairs(keys[rows], tokens[rows]), return_index=True)[1]]] = True
    new = new & first
    for counts in known:
        left = np.flatnonzero(new)  # few are left for short contexts, which are followed by many tokens
        new[left] = ~counts.has(keys[left], tokens[left])
    return new


def portions(keys: np.ndarray) -> Iterable[np.ndarray]:
    """Return the rows of an eighth of the keys (N,) at a time, whose pairs take an eighth of the memory to sort."""
    if len(keys) < FEW:
        return [np.arange(len(keys))]
    return (np.flatnonzero((keys & 7) == portion) for portion in range(8))


def shared(keys: np.ndarray, tokens: np.ndarray, documents: np.ndarray, least: int) -> np.ndarray:
    """Return (N, K) bool: the pairs of a context and a token that occur in at least `least` of the `documents` (N,)."""
    found = np.zeros(keys.shape, bool)
    for level in range(keys.shape[1]):
        pairs = _pairs(keys[:, level], tokens)
        order = np.lexsort((documents, pairs))
        begins = np.diff(pairs[order], prepend=pairs[order[:1]] - np.uint64(1)) != 0
        other = begins | (np.diff(documents[order], prepend=documents[order[:1]]) != 0)
        several = np.add.reduceat(other, np.flatnonzero(begins)) >= least
        found[order, level] = several[np.cumsum(begins) - 1]
    return found


def _pairs(keys: np.ndarray, tokens: np.ndarray) -> np.ndarray:
    """Return a hash (N,) of each context with the token that follows it."""
    return mixed(keys.view(np.uint64) + (tokens + 1).astype(np.uint64) * np.uint64(BASE))


def count(keys: np.ndarray, tokens: np.ndarray, chosen: np.ndarray) -> Counts:
    """Count the pairs of a context (N, K) and a token (N,) that are `chosen` (N, K)."""
    pairs, own = keys[chosen], np.repeat(tokens, chosen.sum(1))
    return _summed(pairs, own.astype(np.int16), np.ones(len(pairs), np.int32))


def added(several: Sequence[Counts], most_rows: int | None = None) -> Counts:
    """Add up counts; `most_rows` drops the contexts with the smallest totals, and of equals the larger keys."""
    total = several[0]
    if len(several) > 1:
        keys = np.concatenate([np.repeat(each.keys, np.diff(each.offsets)) for each in several])
        tokens, counts = (np.concatenate([getattr(each, name) for each in several]) for name in ("tokens", "counts"))
        total = _summed(keys, tokens, counts)
    if most_rows is None or len(total.keys) <= most_rows:
        return total
    kept = np.zeros(len(total.keys), bool)
    kept[np.argsort(-np.add.reduceat(total.counts, total.offsets[:-1]), kind="stable")[:most_rows]] = True
    sizes = np.diff(total.offsets)
    entries, offsets = np.repeat(kept, sizes), np.append(0, np.cumsum(sizes[kept]))
    return Counts(total.keys[kept], offsets, total.tokens[entries], total.counts[entries])


def _summed(keys: np.ndarray, tokens: np.ndarray, counts: np.ndarray) -> Counts:
    """Make Counts of pairs (entries,) in any order, possibly repeated."""
    if not len(keys):
        return EMPTY
    order = np.lexsort((tokens, keys))
    keys, tokens = keys[order], tokens[order]
    other = np.diff(keys, prepend=keys[0]) != 0
    begins = np.flatnonzero(other | np.r_[True, np.diff(tokens) != 0])
    sums = np.add.reduceat(counts[order], begins).astype(np.int32)
    rows = np.flatnonzero(np.r_[True, other[begins][1:]])
    return Counts(keys[begins][rows], np.append(rows, len(begins)).astype(np.int64), tokens[begins], sums)


@dataclass(frozen=True)
class Layers:
    """Effect of contexts on a distribution p: own + share p. Where nothing was seen, p stays."""

    own: np.ndarray  # (N, K, V) float32
    share: np.ndarray  # (N, K) float32
    states: np.ndarray  # (N, K) by how much was seen, 0 to STATES - 1


def layers(
    keys: np.ndarray,
    tokens: np.ndarray,
    num_tokens: int,
    known: Sequence[Counts | Apart],
    chosen: np.ndarray | None,
    rows: np.ndarray | None = None,
) -> Layers:
    """Look up the contexts (N, K), or some `rows` of them, in the sum of the `known` counts.

    `chosen` (N, K), if given, are the pairs with `tokens` (N,) that count once predicted: later rows see them too.
    """
    rows = np.arange(len(keys)) if rows is None else rows
    num, depth = len(rows), keys.shape[1]
    found, wanted = np.zeros((num * depth, num_tokens), np.float32), keys[rows].ravel()
    for counts in known:
        counts.add_to(found, wanted)
    found = found.reshape(num, depth, num_tokens)
    if chosen is not None:
        for level in range(depth):  # how often each token counted after the same context in earlier rows
            steps = np.zeros((len(keys), num_tokens), np.int32)
            steps[np.flatnonzero(chosen[:, level]), tokens[chosen[:, level]]] = 1
            found[:, level] += sums_before(keys[:, level], steps)[rows]
    once, twice, more = _LOWERED[:, :depth, None]
    seen = found > 0
    lowered = seen * once + (found > 1) * twice + (found > 2) * more
    total, kinds = found.sum(2), seen.sum(2)
    divisor = np.maximum(total, 1)
    states = 1 + np.searchsorted(_TOTALS, total) * (len(KINDS) + 1) + np.searchsorted(_KINDS, kinds)
    return Layers(
        (found - lowered) / divisor[..., None],
        np.where(total > 0, lowered.sum(2) / divisor, np.float32(1)),
        np.where(total > 0, states, 0),
    )
