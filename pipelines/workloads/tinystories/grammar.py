"""The grammar of the embedded stories, parsed from grammar.txt, whose first lines explain the format."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

FILE = Path(__file__).with_name("grammar.txt")

Table = tuple[list[str], list[list[str]]]  # names of slots, and rows with a field for each


@dataclass(frozen=True)
class Plot:
    """Beats, each a list of tellings; what the hero may learn; and the tables whose rows fill slots of this plot."""

    beats: list[list[str]]
    lessons: list[str]
    tables: list[Table]


@dataclass(frozen=True)
class Grammar:
    """Everything that stories are made of."""

    lists: dict[str, list[str]]  # by heading: "girls", "openings", ...
    synonyms: dict[str, str]  # phrase -> template that replaces it
    tables: list[Table]  # filled in every story, in this order
    plots: list[Plot]


@cache
def grammar() -> Grammar:
    """Parse grammar.txt."""
    lists: dict[str, list[str]] = {}
    tables: list[Table] = []
    plots: list[Plot] = []
    for heading, beats in _sections(FILE.read_text(encoding="ascii")):
        kind, _, names = heading.partition(": ")
        if kind == "plot":
            plots.append(Plot(beats, [], []))
        elif kind == "lessons":
            plots[-1].lessons.extend(beats[0])
        elif kind == "slots":
            table = names.split(" / "), [row.split(" / ") for row in beats[0]]
            (plots[-1].tables if plots else tables).append(table)
        else:
            lists[heading] = beats[0]
    synonyms = dict(pair.split(" => ") for pair in lists.pop("synonyms"))
    return Grammar(lists, synonyms, tables, plots)


def _sections(text: str) -> Iterator[tuple[str, list[list[str]]]]:
    """Headings with their entries, which are grouped by the blank lines between them."""
    for section in re.split(r"^#+ ", text, flags=re.MULTILINE)[1:]:
        heading, _, body = section.partition("\n")
        yield heading, [_entries(group) for group in body.strip("\n").split("\n\n")]


def _entries(group: str) -> list[str]:
    """Entries on one line each; an empty one is repeated until it makes up two thirds of them."""
    entries = [" ".join(entry.split()) for entry in f"\n{group}".split("\n-")[1:]]
    return entries + [""] * (2 * len(entries) - 3) if "" in entries else entries
