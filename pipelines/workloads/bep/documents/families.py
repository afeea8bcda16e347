"""Families: documents of one project, or versions of one another."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import PurePosixPath
from types import MappingProxyType

import numpy as np
from scipy.sparse import coo_array, triu
from scipy.sparse.csgraph import connected_components

from common.text import words

SHINGLE = 5  # words
# 22-0417 or 4711 in a file's name, but no year, no date and not the number of ISO 19650.
NUMBER = re.compile(r"(?<![\d.-])(?!(?:19|20)\d\d(?!\d)|19650)(\d{2}-\d{3,5}|\d{4,7})(?![\d-]*\d)")


def projects(names: Iterable[str], how: str | None) -> dict[str, str]:
    """Return the project or client of each document that has one: by folder, pattern, or a number in its name."""
    if how == "folder":
        return {name: PurePosixPath(name).parts[0] for name in names if "/" in name}
    pattern = NUMBER if how is None else re.compile(how)
    found = {name: pattern.search(name if how else PurePosixPath(name).name) for name in names}
    return {name: of for name, match in found.items() if match and (of := match[min(1, pattern.groups)])}


def labels(names: Iterable[str], project: Mapping[str, str], how: str) -> dict[str, str]:
    """Return each document's name as a source: its file, its project with a number, or only a number."""
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

    Texts are compared as sets of 5-word sequences. Such pairs, and a common `project`, connect a family, even if its
    most distant members are less similar.
    """
    from sklearn.feature_extraction.text import CountVectorizer

    names = sorted(texts)
    found = CountVectorizer(analyzer=_shingles, binary=True, dtype=np.int32).fit_transform(texts[one] for one in names)
    sizes = np.asarray(found.sum(1)).ravel()
    common = triu(found @ found.T, 1).tocoo()
    similarity = common.data / (sizes[common.row] + sizes[common.col] - common.data)
    kept = similarity >= threshold
    close = [*zip(*(each[kept].tolist() for each in (common.row, common.col, similarity)), strict=True)]
    first = {project[name]: number for number, name in reversed(list(enumerate(names))) if name in project}
    joined = [(number, first[project[name]]) for number, name in enumerate(names) if name in project]
    edges = np.array([*((a, b) for a, b, _ in close), *joined], int).reshape(-1, 2).T
    graph = coo_array((np.ones(edges.shape[1]), tuple(edges)), shape=(len(names), len(names)))
    count, label = connected_components(graph, directed=False)
    members = [[names[number] for number in np.flatnonzero(label == family)] for family in range(count)]
    return members, {(names[a], names[b]): each for a, b, each in close}


def _shingles(text: str) -> set[str]:
    """Return the different runs of 5 words, or all words if there are fewer."""
    found = words(text)
    return {" ".join(found[at : at + SHINGLE]) for at in range(max(1, len(found) - SHINGLE + 1))} - {""}
