"""Families: documents of one project, or versions of one another (MinHash, Broder 1997)."""

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import PurePosixPath
from types import MappingProxyType

import numpy as np

from common.text import words
from models.plans.chains import mixed

SHINGLE = 5  # words
SIGNATURE = 128  # hash functions; the standard deviation of an estimated Jaccard similarity is then 0.044 or less
MARGIN = 0.2  # a pair is compared exactly if its estimate is at most this far below the threshold
# 22-0417 or 4711 in a file's name, but no year, no date and not the number of ISO 19650.
NUMBER = re.compile(r"(?<![\d.-])(?!(?:19|20)\d\d(?!\d)|19650)(\d{2}-\d{3,5}|\d{4,7})(?![\d-]*\d)")


def projects(names: Iterable[str], how: str | None) -> dict[str, str]:
    """Return the project or client of each document that has one: by folder, pattern, or a number in its name."""
    if how == "folder":
        return {name: PurePosixPath(name).parts[0] for name in names if "/" in name}
    pattern = NUMBER if how is None else re.compile(how)
    found = {name: pattern.search(name if how else PurePosixPath(name).name) for name in names}
    return {name: match[1 if pattern.groups else 0] for name, match in found.items() if match}


def labels(names: Iterable[str], project: Mapping[str, str], how: str) -> dict[str, str]:
    """Return what is shown of each document as a source: its file, its project with a number, or only a number."""
    counts: Counter[str] = Counter()
    found = {}
    for name in names:
        shown = {"file": name, "project": project.get(name, "project"), "hidden": "document"}[how]
        counts[shown] += 1
        found[name] = shown if how == "file" else f"{shown} {counts[shown]}"
    return found


def group(
    texts: Mapping[str, str], threshold: float, project: Mapping[str, str] = MappingProxyType({})
) -> tuple[list[list[str]], dict[tuple[str, str], float]]:
    """Return families of names, in order, and the pairs of texts whose Jaccard similarity is `threshold` or more.

    Texts are compared as sets of 5-word sequences: MinHash proposes pairs, the exact sets decide. A family is all that
    such pairs, and a common `project`, connect, even if its most distant members are less similar.
    """
    names = sorted(texts)
    shingles = {name: _shingles(texts[name]) for name in names}
    signatures = np.stack([_signature(shingles[name]) for name in names])
    family = {name: name for name in names}  # union-find: the parent of each name, itself for the first of a family

    def first(name: str) -> str:
        while family[name] != name:
            name = family[name]
        return name

    def join(a: str, b: str) -> None:
        low, high = sorted((first(a), first(b)))
        family[high] = low

    members: dict[str, list[str]] = {}
    for name in names:
        if name in project:
            members.setdefault(project[name], []).append(name)
            join(name, members[project[name]][0])
    pairs = {}
    for number, a in enumerate(names):
        estimates = (signatures[number + 1 :] == signatures[number]).mean(1)
        for close in np.flatnonzero(estimates >= threshold - MARGIN):
            b = names[number + 1 + close]
            similarity = _jaccard(shingles[a], shingles[b])
            if similarity >= threshold:
                pairs[a, b] = similarity
                join(a, b)
    members = {}
    for name in names:
        members.setdefault(first(name), []).append(name)
    return list(members.values()), pairs


def _shingles(text: str) -> np.ndarray:
    """Return sorted hashes (n,) uint64 of the different runs of 5 words, or of all words if there are fewer."""
    found = words(text)
    codes = {word: int.from_bytes(hashlib.blake2b(word.encode(), digest_size=8).digest()) for word in set(found)}
    hashes = np.array([codes[word] for word in found], np.uint64)
    count = len(hashes) - SHINGLE + 1
    if count < 1:
        return mixed(hashes.sum(keepdims=True)) if len(hashes) else hashes
    total = np.zeros(count, np.uint64)
    for place in range(SHINGLE):
        total = mixed(total + hashes[place : place + count])
    return np.unique(total)


def _signature(shingles: np.ndarray) -> np.ndarray:
    """Return the smallest value of each hash function over the shingles: (128,) uint64."""
    salts = mixed(np.arange(1, SIGNATURE + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15))
    largest = np.iinfo(np.uint64).max
    return np.array([mixed(shingles ^ salt).min(initial=largest) for salt in salts], np.uint64)


def _jaccard(a: np.ndarray, b: np.ndarray) -> float:
    common = len(np.intersect1d(a, b, assume_unique=True))
    return common / max(1, len(a) + len(b) - common)
