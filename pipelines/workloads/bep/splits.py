"""Division of documents into training, validation and test, and the overlap of these parts."""

import random
from collections.abc import Mapping, Sequence
from itertools import accumulate

import numpy as np

from common.errors import UserError
from common.text import copied_characters
from models.plans.characters import COPIED
from pipelines.workloads.bep.config import Data

PARTS = ("train", "validation", "test")
FEWEST_PER_PART = 500  # characters
FEWEST_FAMILIES = 5  # of fewer, two that are held out would be too large a share of the text
ORDERS = 200  # random orders of the families that a split tries
GUARD = 100  # characters left out between the blocks of a single document
UNNOTED = 0.01  # share of held-out text that may be in training without a note
WORST = 5  # documents that a refusal names

Rows = list[tuple[str, str]]  # (name, text)


def divide(
    texts: Mapping[str, str], groups: Sequence[Sequence[str]], data: Data
) -> tuple[dict[str, Rows], str, str | None]:
    """Return {part: (name, text)}, a description of the rule, and a note for the user, if any.

    If nothing is held out, validation is a part of training, and test is empty.
    """
    few = (judged := judgeable(texts, groups)) < FEWEST_FAMILIES
    why = f"families of documents: {judged} of {FEWEST_PER_PART} characters or more, fewer than {FEWEST_FAMILIES}; so "
    if not held_out(texts, groups, data):
        within = blocks(sorted(texts.items()), data.validation, 0, 0)["validation"]
        parts = {"train": sorted(texts.items()), "validation": within, "test": []}
        note = (
            f"{why if few else ''}the model is trained on all of the text, and figures of validation are of text that "
            "it knows; the evaluation leaves each document out in turn, with its versions"
        )
        return parts, "all of it is for training", note
    if not few:
        sizes = [sum(len(texts[name]) for name in group) for group in groups]
        chosen = split(sizes, data.validation, data.test, data.seed)
        parts = {part: [] for part in PARTS}
        for group, part in zip(groups, chosen, strict=True):
            parts[part] += [(name, texts[name]) for name in group]
        return parts, f"by family of documents, seed {data.seed}", None
    note = (
        f"{why}training, validation and test are successive blocks of the same text, and the figures do not speak for "
        "a document the model has not seen"
    )
    parts = blocks(sorted(texts.items()), data.validation, data.test, GUARD)
    return parts, f"successive blocks, {GUARD} characters left out between them", note


def held_out(texts: Mapping[str, str], groups: Sequence[Sequence[str]], data: Data) -> bool:
    """Return whether text is held out of training."""
    return judgeable(texts, groups) >= FEWEST_FAMILIES if data.hold_out is None else data.hold_out


def judgeable(texts: Mapping[str, str], groups: Sequence[Sequence[str]]) -> int:
    """Count the families that are long enough to judge a model by."""
    return sum(sum(len(texts[name]) for name in group) >= FEWEST_PER_PART for group in groups)


def split(sizes: Sequence[int], validation: float, test: float, seed: int) -> list[str]:
    """Return the part of each of 3 or more families with `sizes` characters; no part with a share stays empty.

    Of 200 random orders of the families, it takes the one that brings validation and test nearest to their shares.
    """
    total, generator = sum(sizes), random.Random(seed)
    targets = {part: share * total for part, share in (("test", test), ("validation", validation)) if share}
    tried: list[tuple[float, list[str]]] = []
    for _ in range(ORDERS):
        order = generator.sample(range(len(sizes)), len(sizes))
        parts, miss = ["train"] * len(sizes), 0.0
        for number, (part, target) in enumerate(targets.items()):
            left = [family for family in order if parts[family] == "train"]
            chosen = _fill(left, sizes, target, keep=len(targets) - number)
            miss += abs(sum(sizes[family] for family in chosen) - target)
            for family in chosen:
                parts[family] = part
        tried.append((miss, parts))
    return min(tried, key=lambda each: each[0])[1]


def _fill(order: Sequence[int], sizes: Sequence[int], target: float, keep: int) -> list[int]:
    """Choose families in order that bring the sum of sizes nearer to `target`: at least one, all but `keep`."""
    chosen: list[int] = []
    total = 0
    for family in order:
        nearer = abs(total + sizes[family] - target) < abs(total - target)
        if nearer and len(order) - len(chosen) > keep:
            chosen.append(family)
            total += sizes[family]
    if chosen and total >= min(FEWEST_PER_PART, target):
        return chosen
    return [min(order, key=lambda family: (sizes[family] < FEWEST_PER_PART, sizes[family]))]


def blocks(texts: Sequence[tuple[str, str]], validation: float, test: float, guard: int) -> dict[str, Rows]:
    """Cut all (name, text), one after another, into {part: (name, piece)}: training first, test last.

    Between the parts `guard` characters are left out, so that no part continues another.
    """
    total = sum(len(text) for _, text in texts)
    last = total - round(test * total)
    middle = last - guard if test else last
    first = middle - round(validation * total)
    bounds = {"train": (0, first - guard), "validation": (first, middle), "test": (last, total)}
    parts: dict[str, Rows] = {part: [] for part in PARTS}
    starts = accumulate((len(text) for _, text in texts), initial=0)
    for (name, text), start in zip(texts, starts, strict=False):
        for part, (begin, end) in bounds.items():
            if piece := text[max(0, begin - start) : max(0, end - start)]:
                parts[part].append((name, piece))
    return parts


def check_sizes(parts: Mapping[str, Rows], held: bool, data: Data, source: str) -> None:
    """Raise UserError if a part has too few characters."""
    for part, rows in parts.items():
        characters = sum(len(text) for _, text in rows)
        if characters < FEWEST_PER_PART and (part != "test" or (held and data.test)):
            raise UserError(
                f"{source}: {characters:,} characters for {part} are too few, {FEWEST_PER_PART} are needed; give more "
                f"text, or change data.validation={data.validation} or data.test={data.test}"
            )


def described_overlap(
    parts: Mapping[str, Rows], held: bool, family: Mapping[str, str]
) -> tuple[float, dict[str, float], str | None]:
    """Return `overlap`, the documents with most of it, and a note if it is more than 1 %."""
    share, by_document = overlap(parts, held, family)
    worst = {name: part for name, part in sorted(by_document.items(), key=lambda each: -each[1])[:WORST] if part > 0}
    if share <= UNNOTED:
        return share, worst, None
    wanted = dict(_judged(parts, held))
    listed = [
        f"{part:.0%} of {name} (most of it in {most_alike(wanted[name], _others(parts, held, family, name))})"
        for name, part in worst.items()
    ]
    what = "held-out text also stands in training" if held else "text also stands in another document"
    note = (
        f"{share:.0%} of the {what}, in pieces of {COPIED} characters: {', '.join(listed)}; "
        "the evaluation also gives the figure for the rest, as new_text"
    )
    return share, worst, note


def overlap(parts: Mapping[str, Rows], held: bool, family: Mapping[str, str]) -> tuple[float, dict[str, float]]:
    """Return the share of held-out characters copied from training, in pieces of 50: in all, and by document.

    If nothing is `held` out, documents are compared with those of other families.
    """
    found: dict[str, list[np.ndarray]] = {}
    for name, text in _judged(parts, held):
        # No text has NUL: no piece crosses documents.
        training = "\0".join(text for _, text in _others(parts, held, family, name))
        found.setdefault(name, []).append(copied_characters(text, training, COPIED))
    marks = {name: np.concatenate(each) for name, each in found.items()}
    share = float(np.concatenate(list(marks.values())).mean())
    return share, {name: float(each.mean()) for name, each in marks.items()}


def _judged(parts: Mapping[str, Rows], held: bool) -> Rows:
    return [*parts["validation"], *parts["test"]] if held else parts["train"]


def _others(parts: Mapping[str, Rows], held: bool, family: Mapping[str, str], name: str) -> Rows:
    """Return the training text to compare a document with."""
    return parts["train"] if held else [row for row in parts["train"] if family[row[0]] != family[name]]


def most_alike(text: str, training: Rows) -> str:
    """Return the training document that contains most of `text`."""
    return max(training or [("", "")], key=lambda each: copied_characters(text, each[1], COPIED).sum())[0]
