"""The division of stories, or of a book's passages, into a training part and a held-out part."""

import hashlib
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from common.errors import UserError

if TYPE_CHECKING:
    from pipelines.workloads.tinystories import Data

SPLITS = ("train", "held_out")
FEWEST_STORIES = 20  # a text with fewer blocks than this is a book
HELD_OUT = 10  # one story in ten is held out
# Patterns a passage may end with, best first.
PASSAGE_ENDS = (re.compile(r"[.!?][\"')\]\u2019\u201d]*\n"), re.compile(r"\n"), re.compile(r" "))


def split(blocks: Sequence[str], data: "Data", source: str) -> tuple[dict[str, list[str]], str, int]:
    """Return {split: texts}, a description of the rule, and the number of duplicates that were removed first.

    Stories are put into an order that depends only on (seed, text), and every tenth is held out. So a story never
    changes sides when `percent` or the order of files changes, and a smaller `percent` takes a subset of a larger one.
    Fewer than 20 blocks are a book: it is cut into passages, of which the last tenth is held out. Raises UserError if
    that would hold nothing out.
    """
    unique = list(dict.fromkeys(blocks))
    duplicates = len(blocks) - len(unique)
    if len(unique) < FEWEST_STORIES:
        passages = [passage for block in unique for passage in cut(block, data.passage_characters)]
        unique = list(dict.fromkeys(passages))
        duplicates += len(passages) - len(unique)
        if len(unique) < HELD_OUT:
            more = "raise data.generated_characters" if data.source is None else "give a longer text"
            raise UserError(
                f"{source}: {len(unique)} passages of up to {data.passage_characters} characters are too few to hold "
                f"one out, {HELD_OUT} are needed; {more}, or lower data.passage_characters={data.passage_characters}"
            )
        end = len(unique) - len(unique) // HELD_OUT
        train, held_out = unique[:end], unique[end:]
        how = f"passages of up to {data.passage_characters} characters in their order, the last tenth held out"
    else:
        unique.sort(key=lambda text: hashlib.sha256(f"{data.seed} {text}".encode()).digest())
        held_out = unique[HELD_OUT - 1 :: HELD_OUT]
        train = [text for place, text in enumerate(unique) if place % HELD_OUT != HELD_OUT - 1]
        how = f"by story, every tenth held out in the order of a hash of seed {data.seed} and text"
    if data.percent < 100:
        how += f"; the first {data.percent} % of each part"
    parts = {"train": train, "held_out": held_out}
    return {name: texts[: -(-len(texts) * data.percent // 100)] for name, texts in parts.items()}, how, duplicates


def cut(block: str, characters: int) -> list[str]:
    """Cut `block` into passages of at most `characters` and, except for the last, at least half of that.

    A passage ends at the last end of a line in that range that also ends a sentence, else at any end of a line, else at
    a space, else at its largest length.
    """
    passages, start = [], 0
    while len(block) - start > characters:
        window = (block, start + characters // 2, start + characters)
        ends = ([match.end() for match in pattern.finditer(*window)] for pattern in PASSAGE_ENDS)
        end = next((found[-1] for found in ends if found), start + characters)
        passages.append(block[start:end])
        start = end
    return [passage for passage in map(str.strip, [*passages, block[start:]]) if passage]
