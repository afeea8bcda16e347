"""Division of a document into clauses below its headings: sentences, list items, and table rows with their header.

An outline is an array (N, 4) int32 with a row for each node: where its text begins and ends, the node that it is below
(-1: none), and its kind. Headings, labels such as "Project scope: ..." and the headers of tables have nodes below them;
clauses have none.
"""

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

HEADING, HEADER, SENTENCE, ITEM, ROW = range(5)
LONGEST_HEADING, MOST_WORDS = 90, 12  # characters and words
DEEPEST_NUMBERED, PLAIN = 20, 27  # levels; headings without a number are below those with one
LABEL_LEVEL = 30
UPPER = "".join(filter(str.isupper, map(chr, range(0x530))))  # Latin, Greek and Cyrillic letters
NEAR = 10_000  # characters that a text's last heading is searched for in
SHARP = re.compile(r"(#{1,6})\s+(?=\S)")
NUMBER = re.compile(
    r"(?:part|section|appendix|annexe?|chapter|schedule|kapitel|abschnitt|teil|anhang|anlage|chapitre|partie)\s+"
    r"(?:\d+|[A-Z]|[ivx]+|one|two|three|four|five)\b[.:)]?\s*"
    r"|[A-Z](?:\.\d+)+\.?\s+|[A-Z][.)]\s+|\d{1,2}(?:\.\d{1,2})*[.)]?\s+(?=[^\W\d_])",
    re.IGNORECASE,
)
BULLET = re.compile(r"(?:[-*\u2022\u2013\u25aa\u25cf\u25e6]|\(?[a-z]{1,3}[.)]|\(?[ivx]+[.)]|\(?\d{1,2}[.)])\s+")
LABEL = re.compile(rf"(\*\*)?([{UPPER}][^.:|*\n]{{1,58}}?)(?(1)(?:[:.]?\*\*[:.]?|[:.])|:)\s+(?=\S)")
TITLED = re.compile(rf"\d{{1,2}}(?:\.\d{{1,2}})+\.?\s+([{UPPER}][^.:|\n]{{2,48}})\.\s+(?=[{UPPER}])")
RULE = re.compile(r"[|\s:+-]*-{2,}[|\s:+-]*")
ABBREVIATED = re.compile(
    r"(?:\b(?:e\.g|i\.e|etc|vs|cf|No|Nos|Fig|Ref|approx|incl|min|max|St|Ltd|Co|Mr|Ms|Dr)|(?:^|\s)[A-Z])\.$"
)
SENTENCE_END = re.compile(rf"(?<=[.!?])[\"')\]\u201d\u2019]*\s+(?=[\"'(\[\u201c\u2018]?[{UPPER}0-9<])")


class Line(NamedTuple):
    """A line that is not blank, without the spaces around it."""

    begin: int
    text: str
    after_blank: bool


class _Outline:
    def __init__(self) -> None:
        self.rows: list[tuple[int, int, int, int]] = []
        self.open: list[tuple[int, int]] = []  # level and node of the headings that are above the next line

    @property
    def above(self) -> int:
        return self.open[-1][1] if self.open else -1

    def add(self, begin: int, text: str, kind: int, above: int) -> int:
        left = len(text) - len(text.lstrip(" *_"))
        self.rows.append((begin + left, begin + max(left, len(text.rstrip(" *_"))), above, kind))
        return len(self.rows) - 1

    def head(self, level: int, begin: int, text: str) -> None:
        self.close(level)
        self.open.append((level, self.add(begin, text, HEADING, self.above)))

    def close(self, level: int) -> None:
        while self.open and self.open[-1][0] >= level:
            self.open.pop()


def divide(text: str) -> np.ndarray:
    """Return the outline of a document, (N, 4) int32."""
    lines, outline = list(_lines(text)), _Outline()
    number = 0
    while number < len(lines):
        line = lines[number]
        if "|" in line.text:
            end = number + 1
            while end < len(lines) and "|" in lines[end].text and not lines[end].after_blank:
                end += 1
            _table(outline, lines[number:end])
            number = end
            continue
        if (level := _level(lines, number)) is not None:
            sharp = SHARP.match(line.text)
            outline.head(level, line.begin + (sharp.end() if sharp else 0), line.text[sharp.end() if sharp else 0 :])
        else:
            _prose(outline, line)
        number += 1
    return np.array(outline.rows, np.int32).reshape(-1, 4)


def last_heading(text: str) -> str:
    """Return the headings above the end of a text, joined by " > ", as far as they are in its last NEAR characters."""
    text = text[-NEAR:]
    rows = divide(text)
    number = len(rows) - 1
    if number >= 0 and rows[number, 3] > HEADER:
        number = int(rows[number, 2])
    path: list[str] = []
    while number >= 0:
        begin, end, above, kind = rows[number].tolist()
        path[:0] = [text[begin:end]] * (kind == HEADING)
        number = above
    return " > ".join(path)


def _lines(text: str) -> Iterator[Line]:
    at, blank = 0, True
    for line in text.split("\n"):
        if stripped := line.strip():
            yield Line(at + line.index(stripped[0]), stripped, blank)
        blank = not stripped
        at += len(line) + 1


def _level(lines: Sequence[Line], number: int) -> int | None:
    """Return the level of a heading, the highest first, or None for other lines."""
    line = lines[number]
    if sharp := SHARP.match(line.text):
        return len(sharp[1])
    below = next((each for each in lines[number + 1 : number + 2] if not each.after_blank), None)
    if (numbered := NUMBER.match(line.text)) and _short(line.text):
        in_list = not line.after_blank and number and BULLET.match(lines[number - 1].text)
        if in_list or (below and BULLET.match(below.text) and BULLET.match(line.text)):
            return None
        return min(DEEPEST_NUMBERED, 7 + numbered[0].strip(" .)").count("."))
    if not _plain(line):
        return None
    run = 1
    while number + run < len(lines) and run < 4 and _plain(lines[number + run]):
        run += 1
    return PLAIN - run + 1 if run < 4 and number + run < len(lines) else None


def _short(text: str) -> bool:
    return (
        len(text) <= LONGEST_HEADING
        and len(text.split()) <= MOST_WORDS
        and not text.endswith((".", ",", ";", ":", "|"))
        and any(map(str.isalpha, text))
    )


def _plain(line: Line) -> bool:
    """Return whether a line looks like a heading without a number."""
    text = line.text.strip("*_ ")
    if LABEL.match(line.text) or BULLET.match(line.text) or "|" in text:
        return False
    return line.after_blank and _short(text) and text[:1].isupper()


def _prose(outline: _Outline, line: Line) -> None:
    """Add an item or the sentences of a paragraph, below their label if they have one."""
    begin, text = line.begin, line.text
    if (bullet := BULLET.match(text)) and not text.startswith("**"):
        begin, text = begin + bullet.end(), text[bullet.end() :]
    else:
        bullet = None
        outline.close(LABEL_LEVEL)
    above = outline.above
    titled, label = TITLED.match(text), LABEL.match(text)
    found, group = (titled, 1) if titled else (label, 2)
    if found and len(found[group].split()) <= 8:
        if bullet:
            above = outline.add(begin + found.start(group), found[group], HEADING, above)
        else:
            outline.head(LABEL_LEVEL, begin + found.start(group), found[group])
            above = outline.above
        begin, text = begin + found.end(), text[found.end() :]
    for at, sentence in sentences(text):
        if any(map(str.isalpha, sentence)):
            outline.add(begin + at, sentence, ITEM if bullet else SENTENCE, above)


def sentences(text: str) -> Iterator[tuple[int, str]]:
    """Yield the sentences of a paragraph and where they begin."""
    begin = 0
    for end in SENTENCE_END.finditer(text):
        if not ABBREVIATED.search(text[begin : end.start()]):
            yield begin, text[begin : end.start()].rstrip()
            begin = end.end()
    if begin < len(text):
        yield begin, text[begin:]


def _table(outline: _Outline, lines: Sequence[Line]) -> None:
    """Add the rows of a table below its header; in a row of two cells the first is the second's label."""
    rows = [line for line in lines if not RULE.fullmatch(line.text)]
    above = outline.above
    if len(rows) > 1:
        header = rows[0].text.strip("| ")
        above = outline.add(rows[0].begin + rows[0].text.index(header[:1] or "|"), header, HEADER, above)
    for line in rows[1:] or rows:
        cells = [(found.start(), found[0]) for found in re.finditer(r"[^|]*[^|\s][^|]*", line.text)]
        if len(cells) == 2 and len(cells[0][1].split()) <= MOST_WORDS:
            label = outline.add(line.begin + cells[0][0], cells[0][1], HEADING, above)
            for at, sentence in sentences(cells[1][1]):
                outline.add(line.begin + cells[1][0] + at, sentence, ROW, label)
        elif cells:
            begin, end = cells[0][0], cells[-1][0] + len(cells[-1][1])
            outline.add(line.begin + begin, line.text[begin:end], ROW, above)
