"""Documents that are versions of one another, and parts of a corpus that share none of them."""

import hashlib
import random
from collections.abc import Mapping, Sequence

import numpy as np

from common.text import copied_characters, words

PARTS = ("train", "validation", "test")
SHINGLE = 5  # words
SIGNATURE = 128  # hash functions: an estimate of a Jaccard similarity deviates by 0.044 at most (1 sigma)
MARGIN = 0.2  # by which an estimate may fall short of the threshold before the pair is not looked at closely
ORDERS = 200  # at random, in which a split by family is tried
SPAN = 50  # characters of a copied piece


def group(texts: Mapping[str, str], threshold: float) -> tuple[list[list[str]], dict[tuple[str, str], float]]:
    """Families of names, in order, and the Jaccard similarity of each pair of texts that is `threshold` or more.

    Similarity is that of the sets of 5 successive words. MinHash (Broder 1997) proposes pairs, the sets decide; a
    family is all that is connected by pairs, be its ends less similar.
    """
    names = sorted(texts)
    shingles = {name: _shingles(texts[name]) for name in names}
    signatures = np.stack([_signature(shingles[name]) for name in names])
    family = {name: name for name in names}  # its first member, found by going up

    def first(name: str) -> str:
        while family[name] != name:
            name = family[name]
        return name

    pairs = {}
    for number, a in enumerate(names):
        estimates = (signatures[number + 1 :] == signatures[number]).mean(1)
        for close in np.flatnonzero(estimates >= threshold - MARGIN):
            b = names[number + 1 + close]
            similarity = _jaccard(shingles[a], shingles[b])
            if similarity >= threshold:
                pairs[a, b] = similarity
                low, high = sorted((first(a), first(b)))
                family[high] = low
    members: dict[str, list[str]] = {}
    for name in names:
        members.setdefault(first(name), []).append(name)
    return list(members.values()), pairs


def _shingles(text: str) -> np.ndarray:
    """(n,) uint64 sorted hashes of the different runs of 5 words; of all words where there are fewer."""
    found = words(text)
    codes = {word: int.from_bytes(hashlib.blake2b(word.encode(), digest_size=8).digest()) for word in set(found)}
    hashes = np.array([codes[word] for word in found], np.uint64)
    count = len(hashes) - SHINGLE + 1
    if count < 1:
        return _mixed(hashes.sum(keepdims=True)) if len(hashes) else hashes
    total = np.zeros(count, np.uint64)
    for place in range(SHINGLE):
        total = _mixed(total + hashes[place : place + count])
    return np.unique(total)


def _mixed(values: np.ndarray) -> np.ndarray:
    """The finaliser of SplitMix64 (Steele et al. 2014): each bit of the result depends on all bits of the value."""
    values = (values ^ (values >> 30)) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> 27)) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> 31)


def _signature(shingles: np.ndarray) -> np.ndarray:
    """(128,) uint64: the smallest value of each hash function over the shingles."""
    salts = _mixed(np.arange(1, SIGNATURE + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15))
    largest = np.iinfo(np.uint64).max
    return np.array([_mixed(shingles ^ salt).min(initial=largest) for salt in salts], np.uint64)


def _jaccard(a: np.ndarray, b: np.ndarray) -> float:
    common = len(np.intersect1d(a, b, assume_unique=True))
    return common / max(1, len(a) + len(b) - common)


def duplicate_lines(texts: Mapping[str, str]) -> dict[str, float]:
    """How many lines with text there are, how many of them repeat an earlier one, and their share of the characters."""
    seen, total, repeated, characters, again = set(), 0, 0, 0, 0
    for name in sorted(texts):
        for line in filter(None, map(str.strip, texts[name].split("\n"))):
            total, characters = total + 1, characters + len(line)
            if line in seen:
                repeated, again = repeated + 1, again + len(line)
            seen.add(line)
    return {"lines": total, "repeated": repeated, "share_of_characters": again / max(1, characters)}


def split(sizes: Sequence[int], validation: float, test: float, seed: int) -> list[str]:
    """The part of each of 3 or more families with `sizes` characters, none empty of those that have a share.

    Of 200 orders of the families, by `seed`, the one whose validation and test come nearest to their shares.
    """
    total, generator = sum(sizes), random.Random(seed)
    targets = {part: share * total for part, share in (("test", test), ("validation", validation)) if share}
    best, best_miss = [], float("inf")
    for _ in range(ORDERS):
        order = generator.sample(range(len(sizes)), len(sizes))
        parts, miss = ["train"] * len(sizes), 0.0
        for number, (part, target) in enumerate(targets.items()):
            left = [family for family in order if parts[family] == "train"]
            chosen = _fill(left, sizes, target, keep=len(targets) - number)
            miss += abs(sum(sizes[family] for family in chosen) - target)
            for family in chosen:
                parts[family] = part
        if miss < best_miss:
            best, best_miss = parts, miss
    return best


def _fill(order: Sequence[int], sizes: Sequence[int], target: float, keep: int) -> list[int]:
    """Those of `order` that bring their sum nearer to `target`, taken in turn, at least one; `keep` are left."""
    chosen, total = [], 0
    for family in order:
        nearer = abs(total + sizes[family] - target) < abs(total - target)
        if nearer and len(order) - len(chosen) > keep:
            chosen.append(family)
            total += sizes[family]
    return chosen or [min(order, key=lambda family: sizes[family])]


def blocks(
    texts: Sequence[tuple[str, str]], validation: float, test: float, guard: int
) -> dict[str, list[tuple[str, str]]]:
    """{part: (name, piece)} of all (name, text) behind each other: training first, test last.

    Between the parts `guard` characters are dropped, so that no part continues another.
    """
    total = sum(len(text) for _, text in texts)
    last = total - round(test * total)
    middle = last - guard if test else last
    first = middle - round(validation * total)
    bounds = {"train": (0, first - guard), "validation": (first, middle), "test": (last, total)}
    parts: dict[str, list[tuple[str, str]]] = {part: [] for part in PARTS}
    for part, (begin, end) in bounds.items():
        start = 0
        for name, text in texts:
            piece = text[max(0, begin - start) : max(0, end - start)]
            if piece:
                parts[part].append((name, piece))
            start += len(text)
    return parts


def overlap(parts: Mapping[str, Sequence[tuple[str, str]]]) -> tuple[float, dict[str, float]]:
    """Share of the held-out characters in pieces of 50 that stand in training, and that of each held-out document."""
    training = "\0".join(text for _, text in parts["train"])  # no text has NUL: no piece crosses two documents
    found: dict[str, np.ndarray] = {}
    for name, text in [*parts["validation"], *parts["test"]]:
        found[name] = np.concatenate([found.get(name, np.zeros(0, bool)), copied_characters(text, training, SPAN)])
    return float(np.concatenate(list(found.values())).mean()), {
        name: float(each.mean()) for name, each in found.items()
    }


def most_alike(text: str, training: Sequence[tuple[str, str]]) -> str:
    """The name of the training document that has most of `text`."""
    return max(training, key=lambda each: copied_characters(text, each[1], SPAN).sum())[0]
