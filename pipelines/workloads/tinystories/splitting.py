"""The division of stories, or of a book's passages: one part trains, one picks the best model, one is held out."""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from common.errors import UserError
from pipelines.workloads.tinystories import blocks
from pipelines.workloads.tinystories.blocks import Blocks
from pipelines.workloads.tinystories.config import Data

SPLITS = ("train", "validation", "held_out")
FEWEST_STORIES = 20  # a text with fewer blocks than this is a book
HELD_OUT, VALIDATION = 10, 20  # at most one story in ten is held out, one in twenty picks the best model
HASHES = 1 << 16  # values of the first two bytes of a digest
# Patterns a passage may end with, best first.
PASSAGE_ENDS = (re.compile(r"[.!?][\"')\]\u2019\u201d]*\n"), re.compile(r"\n"), re.compile(r" "))


def split(
    found: Blocks, own_test: Blocks, data: Data, source: str, scratch: Path
) -> tuple[dict[str, Blocks], str, int]:
    """Return {split: blocks}, a description of the rule, and the number of duplicates that were removed first.

    Held out are stories whose hash of (seed, text) is in the lowest tenth of all values, up to `test_stories`; those in
    the highest twentieth validate, up to `validation_stories`. So a story's side depends on no other story until a
    limit is reached; then stories can only leave for the training part. A smaller `percent` takes a subset of a larger
    one. A source's own test split is held out in place of the tenth, and taken from the rest. Fewer than 20 blocks are
    a book: it is cut into passages, which are written to `scratch`; the last tenth of them is held out, the twentieth
    before it validates. Raises UserError if that would hold nothing out.
    """
    if len(own_test):
        own_test = own_test.take(np.unique(own_test.digest, return_index=True)[1][: data.test_stories])
        found = found.take(np.flatnonzero(~np.isin(found.digest, own_test.digest)))
    _, first = np.unique(found.digest, return_index=True)  # in the order of the hashes
    duplicates = len(found) - len(first)
    if len(first) < FEWEST_STORIES:
        book, own_test = found.take(np.sort(first)), own_test.take(slice(0))
        passages = (passage for pieces in book.pieces() for passage in cut(pieces, data.passage_characters))
        found, _ = blocks.find([blocks.write(scratch / "passages.txt", passages)], data.seed)
        first = np.sort(np.unique(found.digest, return_index=True)[1])
        duplicates += len(found) - len(first)
        place = np.arange(len(first))
        if len(first) < HELD_OUT:
            more = "raise data.generated_characters" if data.source is None else "give a longer text"
            raise UserError(
                f"{source}: {len(first)} passages of up to {data.passage_characters} characters are too few to hold "
                f"one out, {HELD_OUT} are needed; {more}, or lower data.passage_characters={data.passage_characters}"
            )
        is_held_out = place >= (end := len(first) - len(first) // HELD_OUT)
        validates = (place >= end - max(1, len(first) // VALIDATION)) & ~is_held_out
        how = (
            f"passages of up to {data.passage_characters} characters in their order, the last tenth held out, the "
            "twentieth before it to pick the best model"
        )
    else:
        place = np.arange(len(first))
        hashes = np.frombuffer(found.digest[first].tobytes(), ">u2")[:: found.digest.itemsize // 2]
        lowest = max(1, min(data.test_stories, int((hashes < HASHES // HELD_OUT).sum())))
        is_held_out = place < (0 if len(own_test) else lowest)
        highest = int((hashes >= HASHES - HASHES // VALIDATION).sum())
        validates = place >= len(place) - max(1, min(data.validation_stories, highest))
        how = (
            f"by a hash of seed {data.seed} and story, {'its own test split' if len(own_test) else 'the lowest tenth'} "
            f"held out (at most {data.test_stories:,}), the highest twentieth to pick the best model (at most "
            f"{data.validation_stories:,})"
        )
    if data.percent < 100:
        how += f"; the first {data.percent} % of each part"
    rows = (first[~is_held_out & ~validates], first[validates], first[is_held_out])
    parts = {name: found.take(of) for name, of in zip(SPLITS, rows, strict=True)}
    if len(own_test):
        parts["held_out"] = own_test
    return (
        {name: each.take(slice(-(-len(each) * data.percent // 100))) for name, each in parts.items()},
        how,
        duplicates,
    )


def cut(pieces: Iterable[str], characters: int) -> Iterator[str]:
    """Cut the text that the pieces make into passages of at most `characters` and, but for the last, half of that.

    A passage ends at the last end of a line in that range that also ends a sentence, else at any end of a line, else at
    a space, else at its largest length. Its white space at both ends is removed.
    """
    text = ""
    for piece in pieces:
        text, start = text + piece, 0
        while len(text) - start > characters:
            window = (text, start + characters // 2, start + characters)
            ends = ([match.end() for match in pattern.finditer(*window)] for pattern in PASSAGE_ENDS)
            end = next((found[-1] for found in ends if found), start + characters)
            if passage := text[start:end].strip():
                yield passage
            start = end
        text = text[start:]
    if passage := text.strip():
        yield passage
