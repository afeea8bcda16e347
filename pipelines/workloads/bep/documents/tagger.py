"""Names, numbers and addresses found by what marked plans teach, for forms that no rule foresaw.

A linear-chain conditional random field (Lafferty, McCallum and Pereira, 2001) over the look of a word, the lists that
have it, and the words around it. tests/workloads/bep/documents/tagging.py trains its weights on made plans.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from functools import cache
from itertools import groupby
from pathlib import Path
from zlib import crc32

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file

from pipelines.workloads.bep.documents.lexicon import english, listed_names, lower_case, sound, terms
from pipelines.workloads.bep.documents.masking import ADDRESS

# What a word may be, and the least probability that makes it one.
TAGS = {"": 1.0, "name": 0.45, "telephone": 0.3, "address": 0.15, "project": 0.15, "client": 0.15, "site": 0.15}
SHARED = ("name", "client", "site")  # kinds of words that mean the same wherever they stand
ORDINARY = 0.3  # the least probability for a term of building
FEWEST = 60  # words and marks of a text; the rules alone read shorter ones
TOKEN = re.compile(r"[^\W\d_]+|\d+|[^\w\s]|[_\n]")
PART = re.compile(r"(?s).{1,200000}(?:\n|\Z)|.{200000}")  # read at a time
WHOLE = re.compile(r"\w(?:.*[\w.])?", re.DOTALL)
BITS = 20  # of the number of a feature
# How far from a word which columns of other words' looks are seen, and of pairs of neighbours.
SEEN = [(offset, column) for offset in (-4, -3, -2, -1, 1, 2, 3, 4) for column in range(2 + (abs(offset) < 3))]
PAIRS = [(offset, column) for offset in (-1, 0) for column in (0, 1, 2)] + [(-2, 0), (1, 0)]
MIX = np.array([0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9], np.uint64)  # of splitmix64

Floats = NDArray[np.float32]


def tagged(text: str) -> bytes:
    """Return for each character the number of its kind in TAGS, 0 if it is none."""
    short = len(TOKEN.findall(text)) < FEWEST
    return bytes(len(text)) if short else b"".join(map(_tagged, PART.findall(text)))


def _tagged(text: str) -> bytes:
    places, numbers = features(text)
    tags = bytearray(len(text))
    likely = probabilities(*weights(), numbers)
    words = [text[slice(*place)] for place in places]
    _, same, counts = np.unique(words, return_inverse=True, return_counts=True)
    names = [word[0].isupper() and len(word) > 2 for word in words]
    for kind in map([*TAGS].index, SHARED):
        alike = np.bincount(same, likely[:, kind]) / counts
        likely[names, kind] = (likely[:, kind] + alike[same])[names] / 2
    best = likely[:, 1:].argmax(1) + 1
    ordinary = ORDINARY * np.array([word.lower() in terms() for word in words])
    sure = likely[np.arange(len(best)), best] > np.maximum(np.array([*TAGS.values()])[best], ordinary)
    kinds = [kind * (word not in "|\n") for kind, word in zip((best * sure).tolist(), words, strict=True)]
    for kind, group in groupby(range(len(kinds)), kinds.__getitem__):
        begin, *_, end = [edge for at in group for edge in places[at]]
        tags[begin:end] = bytes([kind]) * (end - begin)
    return bytes(tags)


def runs(text: str, tags: bytes, kind: str, keep: Collection[str] = ()) -> Iterator[tuple[int, int]]:
    """Yield (begin, end) of what is tagged as a kind, to the end of a word, but for parts of texts to `keep`."""
    end = 0
    for run in re.finditer(re.escape(bytes([[*TAGS].index(kind)])) + b"+", tags):
        whole, goes_on = WHOLE.search(text, *run.span()), text.endswith(ADDRESS, 0, run.start())
        if whole and whole.start() >= end and (goes_on or kind != "address" or _is_more_than_a_town(whole[0])):
            end = whole.end()
            while text[end : end + 1].isalnum():
                end += 1
            if not any(text[whole.start() : end] in each for each in keep):
                yield whole.start(), end


def _is_more_than_a_town(said: str) -> bool:
    return len(re.findall(r"\w+", said)) > 2 - bool(re.search(r"\d", said))


@cache
def weights() -> tuple[Floats, Floats]:
    """Return the weights (2^BITS, kinds) of features, and those (kinds, kinds) of one kind behind another."""
    return unpacked(load_file(Path(__file__).with_suffix(".safetensors")))


def unpacked(held: Mapping[str, Floats]) -> tuple[Floats, Floats]:
    """Return the weights of a file's tensors: numbers of features, their weights in eight bits, and a scale."""
    table = np.zeros((1 << BITS, len(TAGS)), np.float32)
    table[held["features"]] = held["weights"] * held["scale"]
    return table, held["following"]


def features(text: str) -> tuple[list[tuple[int, int]], NDArray[np.int64]]:
    """Return (begin, end) of each word, number and mark of a text, and the numbers (n, features) of its features."""
    places = [match.span() for match in TOKEN.finditer(text)]
    words, low = [text[slice(*place)] for place in places], lower_case(text)
    counts = Counter(words)
    looks = cache(lambda word: [crc32(each.encode()) for each in _looks(word, low, counts[word])])
    own = np.array(
        [[*looks(word), text[max(0, at - 1)].isspace()] for word, (at, _) in zip(words, places, strict=True)]
    )
    own = own.astype(np.uint64)
    around = np.pad(own, ((4, 5), (0, 0)))
    beside = {offset: around[4 + offset :][: len(own)] for offset in range(-4, 6)}
    rows = [*own.T, *(beside[offset][:, column] for offset, column in SEEN)]
    rows += [beside[offset][:, column] * MIX[0] + beside[offset + 1][:, column] for offset, column in PAIRS]
    mixed = (np.stack(rows, 1) + MIX[0] * np.arange(len(rows), dtype=np.uint64)) * MIX[1]
    return places, (mixed >> np.uint64(64 - BITS)).astype(np.int64)


def _looks(word: str, low: set[str], count: int) -> list[str]:
    """Return the word, its shape, the lists that have it, its beginning, ends, sound, length and count."""
    lower, size = word.lower(), [str(min(len(word), 12)), str(min(count, 4))]
    if not word[0].isalpha():
        return [lower, re.sub(r"\d", "9", word)[:4], *[""] * 5, *size]
    shape = "".join("xX"[letter.isupper()] for letter in word)[:4]
    given, surnames = listed_names()
    one = lower.removesuffix("s")
    known = ({lower, one} & terms(), {lower, one} & english(), {word.title()} & given, {word.title()} & surnames)
    lists = "".join("-+"[bool(each)] for each in (*known, {lower} & low, word[0].isupper()))
    return [lower, shape, lists, lower[:3], lower[-3:], lower[-4:], f"{2 * sound(word):.0f}", *size]


def probabilities(table: Floats, following: Floats, numbers: NDArray[np.int64]) -> Floats:
    """Return the probability (n, kinds) of each kind for each word, by sums forward and backward."""
    scores = np.sum([table[column] for column in numbers.T], 0)
    forward, backward = np.array(scores), np.zeros_like(scores)
    for at in range(1, len(scores)):
        forward[at] += np.logaddexp.reduce(forward[at - 1][:, None] + following)
        backward[-1 - at] = np.logaddexp.reduce(following + scores[-at] + backward[-at], 1)
    total = forward + backward
    shares: Floats = np.exp(total - np.logaddexp.reduce(total, 1)[:, None])
    return shares
