"""Removal of everything but prose from a document's text, by functions that count their changes."""

import json
import re
import unicodedata
from collections import Counter
from collections.abc import Collection, Hashable
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from models.plans.characters import normalise
from pipelines.workloads.bep.documents.lexicon import UPPER, lower_case
from pipelines.workloads.bep.documents.masking import NAME, RULES, Masked, Masker, mask_secrets, written
from pipelines.workloads.bep.documents.names import Reader
from pipelines.workloads.bep.documents.places import SLOTS, mask_places
from pipelines.workloads.bep.documents.tagger import TAGS, runs, tagged

# Symbol fonts of word processors have their glyphs in the private-use area, at U+F000 plus the glyph's code.
BULLETS, ERRORS, GLYPHS = json.loads(Path(__file__).with_suffix(".json").read_text()).values()
BULLET = re.compile(rf"^[ \t]*(?:[{BULLETS}][ \t]*\n?|[*\u2013\u2014][ \t])[ \t]*(?=[^\s|])", re.MULTILINE)

EDGE_LINES = 3  # lines at the top and at the bottom of a page that may be its header or footer
FEWEST_PAGES = 3  # a line that recurs on fewer pages is text
PAGE_SHARE = 0.3  # so is one on a smaller share of the pages; not higher, as chapters have their own headers
PAGE_NUMBER = re.compile(r"(?:page|p\.) ?\d{1,4}(?: ?(?:of|/) ?\d{1,4})?|- ?\d{1,4} ?-|\d{1,4} (?:of|/) \d{1,4}", re.I)
PAGE_OF_PAGES = re.compile(r"[ \t]*page \d{1,4} of \d{1,4}[ \t]*", re.I)

LEADERS = re.compile(r"[ \t]*\S.*?(?: ?\.){4,}[ \t]*(?:\d{1,4}|[ivxlc]+)[ \t]*", re.I)
TABBED = re.compile(r"[ \t]*\S.*\t[ ]*(\d{1,4})[ \t]*")
LONGEST_ENTRY = 300  # characters of an entry in a table of contents
FEWEST_TABBED = 3  # successive lines with page numbers that never fall; fewer may be an ordinary table
CONTENTS = re.compile(r"\W*(?:\d+\.?\s*)?(?:table of contents|contents|list of (?:figures|tables))\W*", re.I)

FIELD_ERRORS = re.compile(rf"[ \t]*\bError! (?:{'|'.join(ERRORS)})\.")  # in place of a broken reference

MASK_OF = {**{kind: mask for kind, mask, *_ in RULES}, **SLOTS, "name": NAME}

STARTS_ANEW = re.compile(rf"- |\d+(?:\.\d+)*\.? [{UPPER}]|[a-z0-9]{{1,3}}[.)] |#")  # a list item or a heading
FILLED = re.compile(rf"[{UPPER}][^:]{{1,40}}: ")  # "Project: Wexcombe"
DIVIDED = re.compile(r"[^\W\d_]{2}-$")


@dataclass(frozen=True)
class Cleaned:
    """A document's prose, and counts of what was changed and masked."""

    text: str
    counts: dict[str, int] = field(default_factory=dict)
    masked: tuple[Masked, ...] = ()


def clean(
    text: str,
    mask: bool,
    wrapped: bool = False,
    names: bool = False,
    words: Collection[str] = (),
    keep: Collection[tuple[str, str]] = (),
    add: Collection[tuple[str, str]] = (),
) -> Cleaned:
    """Return the prose of a text whose pages are separated by form feeds.

    `mask` masks addresses, numbers and secrets; `names` masks persons, clients and projects, but no `words`, which the
    firm's documents write in lower case. `keep` and `add` are (kind, text), kinds of MASK_OF, to leave as they are and
    to mask too. `wrapped` text has lines broken by the width of the paper.
    """
    counts: dict[str, int] = {}
    masker = Masker(keep)
    text, counts["characters_normalised"] = normalise(text)
    text, counts["glyphs_mapped"] = map_glyphs(text)
    text, counts["header_and_footer_lines"] = remove_headers_and_footers(text)
    text, counts["contents_lines"] = remove_contents(text)
    text, counts["field_errors"] = FIELD_ERRORS.subn("", text)
    text = tidy(text if wrapped else part_cells(text))
    if wrapped:
        text, counts["lines_joined"] = join_lines(text)
    for kind, said in sorted(add, key=lambda each: -len(each[1])):
        if kind != "name" or not names:
            text = masker.matches(text, kind, MASK_OF[kind], written(said))
    masker.tags = tagged(text) if names else b""
    if mask:
        text = mask_secrets(text, masker)
    if names:
        text = mask_places(text, masker)
        mail = [each.text for each in masker.found if each.kind == "email"]
        there = set(re.findall(r"\w+", text.lower()))  # names without a word in it would only add initials
        persons = [it for kind, it in sorted(add) if kind == "name" and there & {*re.findall(r"\w\w+", it.lower())}]
        reader = Reader(text, lower_case(text).union(words), mail, persons)
        text = masker.spans(text, "name", NAME, reader.names())
        for kind in TAGS:
            if kind and (mask or kind != "telephone"):
                kept = [said for its, said in keep if its == kind]
                text = masker.spans(text, kind, MASK_OF[kind], runs(text, masker.tags, kind, kept))
    return Cleaned(text, counts, tuple(masker.found))


def map_glyphs(text: str) -> tuple[str, int]:
    """Replace bullets at the beginning of a line by "- " and glyphs of symbol fonts by what they show; count them.

    Other private-use characters are removed, since their fonts are unknown.
    """
    private = {character for character in text if unicodedata.category(character) == "Co"}
    count = sum(map(text.count, private))
    text = text.translate({ord(character): GLYPHS.get(character, "") for character in private})
    text, bullets = BULLET.subn("- ", text)
    return text, count + bullets


def remove_headers_and_footers(text: str) -> tuple[str, int]:
    """Join the pages without the lines at their edges that recur or hold the page number; count those lines.

    A line recurs if, apart from its numbers, it stands at the same edge of at least 3 pages and 30 % of all pages; or
    of two pages, and begins or ends with the page number, as in "42 Chapter 5. Roles".
    """
    pages = [page.split("\n") for page in text.split("\f")]
    edges: list[list[tuple[int, list[Hashable]]]] = []  # of each page, the lines and their keys
    for number, page in enumerate(pages):
        full = [line for line, content in enumerate(page) if content.strip()]
        sides = (("top", full[:EDGE_LINES]), ("bottom", full[-EDGE_LINES:]))
        edges.append([(line, _keys(page[line], side, number)) for side, lines in sides for line in lines])
    counts = Counter(key for edge in edges for key in {key for _, keys in edge for key in keys})
    enough = max(FEWEST_PAGES, PAGE_SHARE * len(pages))
    kept, removed = [], 0
    for page, edge in zip(pages, edges, strict=True):
        gone = {line for line, _ in edge if len(pages) > 1 and PAGE_NUMBER.fullmatch(page[line].strip())}
        gone |= {line for line, (text, *_) in edge if counts[text] >= enough}
        gone |= {
            line for line, (text, *paged) in edge if counts[text] > 1 and any(counts[at] >= enough for at in paged)
        }
        gone |= {line for line, content in enumerate(page) if PAGE_OF_PAGES.fullmatch(content)}
        kept.append("\n".join(content for line, content in enumerate(page) if line not in gone).strip("\n"))
        removed += len(gone)
    return "\n".join(kept), removed


def _keys(line: str, side: str, page: int) -> list[Hashable]:
    """Return a line's text without numbers, and by how much a number at its beginning or end exceeds the page."""
    words = line.split()
    ends = [(end, word) for end, word in enumerate((words[0], words[-1])) if re.fullmatch(r"\d{1,4}", word)]
    return [(side, re.sub(r"\s*\d+\s*", "#", line.strip())), *((side, end, int(word) - page) for end, word in ends)]


def remove_contents(text: str) -> tuple[str, int]:
    """Remove tables of contents with their headings; count the lines.

    Their lines end in dot leaders and a page number; or in a tab and a page number, if there are at least three such
    lines in a row whose page numbers never fall.
    """
    lines = text.split("\n")
    full = [number for number, line in enumerate(lines) if line.strip()]
    gone = {n for n in full if len(lines[n]) <= LONGEST_ENTRY and LEADERS.fullmatch(lines[n])}
    run: list[tuple[int, int]] = []  # (line, page)
    for number in [*full, -1]:
        match = None if number < 0 else TABBED.fullmatch(lines[number])
        if match and (not run or int(match[1]) >= run[-1][1]):
            run.append((number, int(match[1])))
            continue
        if len(run) >= FEWEST_TABBED:
            gone |= {line for line, _ in run}
        run = [(number, int(match[1]))] if match else []
    gone |= {above for above, below in pairwise(full) if below in gone and CONTENTS.fullmatch(lines[above])}
    return "\n".join(line for number, line in enumerate(lines) if number not in gone), len(gone)


def part_cells(text: str) -> str:
    """Put bars between cells divided by tabs or three spaces, in neighbouring rows or labels with their values."""
    lines = text.split("\n")
    full = [number for number, line in enumerate(lines) if line.strip()]
    rows = [[] if "|" in lines[number] else re.split(r" *\t *| {3,}", lines[number].strip()) for number in full]
    sizes = [0, *map(len, rows), 0]
    for at, row in enumerate(rows):
        before, here, behind = sizes[at : at + 3]
        beside = here > 2 and any(each > 2 and abs(each - here) < 2 for each in (before, behind))
        if beside or (here > 1 and all(map(FILLED.match, row))):
            lines[full[at]] = " | ".join(row)
    return "\n".join(lines)


def tidy(text: str) -> str:
    """Leave single spaces, none at the ends of lines, and at most one empty line between paragraphs."""
    text = re.sub(r"[^\S\n]+", " ", text)
    return re.sub(r"\n{3,}", "\n\n", re.sub(r" ?\n ?", "\n", text)).strip()


def join_lines(text: str) -> tuple[str, int]:
    """Join lines and words that were broken only by the width of the paper; count the joined lines.

    A line is full from 3/4 of the usual width, or from 9/10 if it ends like a sentence and the next begins like one.
    """
    lines = text.split("\n")
    width = sorted(map(len, filter(None, lines)))[int(0.9 * sum(map(bool, lines)))] if text else 0
    joined, count = lines[:1], 0
    for before, line in pairwise(lines):
        sentence = before.endswith((".", "!", "?", ":", ";")) and not line[:1].islower()
        full = len(before) >= (0.9 if sentence else 0.75) * width
        if not line or not full or STARTS_ANEW.match(line):
            joined.append(line)
            continue
        divided = DIVIDED.search(before) and line[0].islower()
        joined[-1] = joined[-1][:-1] + line if divided else f"{joined[-1]} {line}"
        count += 1
    return "\n".join(joined), count
