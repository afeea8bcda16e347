"""A firm's clauses, found by field, heading and words, with slots for the names and numbers of single projects.

A clause belongs to a field when a heading above it fits the field and no heading between them fits another one better.
The same clause of several projects is one entry. Names and numbers that occur in one project alone are slots.
"""

import functools
import json
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from models.plans import fields
from models.plans.fields import FIELDS, FITTING, stem
from models.plans.outline import HEADER, HEADING

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

WORD = re.compile(r"<[a-z]+>|[^\W_]+(?:[-'\u2019.,/_][^\W_]+)*")
SLOT = re.compile(r"<[a-z]+>")
NEARLY = 0.15  # most by which another field may fit a heading better
FOCUS = 0.2  # least share of a field's name in the words of a clause about it, whatever its headings
DEEPER = 0.9  # factor of a heading's fit for each heading between it and the clause
ALIKE = 0.6  # least overlap of the words of clauses that say the same
PLAIN = 3  # digits; longer numbers, and those with letters, may name a project
LONGEST = 600  # characters of a clause that is suggested
BASE = "base/"  # prefix of the projects of a base's documents, and of its documents' names that own ones have, too
PUBLIC = json.loads(Path(__file__).with_name("public_names.json").read_text())
KEPT = frozenset(word.lower() for word in PUBLIC["names"])
STANDARDS = frozenset(PUBLIC["before_numbers"])  # words before numbers that are no project's own


@dataclass(frozen=True)
class Document:
    """A stored document: its text, its outline (outline.py), and the project that it belongs to."""

    name: str
    project: str
    text: str
    outline: np.ndarray


@dataclass(frozen=True)
class Place:
    """The place of a clause in a document."""

    document: str
    project: str
    headings: tuple[str, ...]  # the outermost first
    line: int  # from 1
    header: str | None = None  # of a table's row


@dataclass
class Clause:
    """A clause, and its places in the order of documents."""

    text: str
    words: frozenset[str]  # stems
    places: list[Place] = field(default_factory=list)

    @property
    def projects(self) -> int:
        """The number of projects that have it."""
        return len({place.project for place in self.places})


def overlap(own: frozenset[str], other: frozenset[str]) -> float:
    """Return the share of the smaller clause's stems that the other has, 0 for fewer than two in common."""
    common = len(own & other)
    return common / min(len(own), len(other)) if common > 1 else 0.0


class Library:
    """The clauses of documents."""

    def __init__(self, documents: Sequence[Document]):
        from sklearn.feature_extraction.text import TfidfVectorizer

        names = _Names(documents)
        found: dict[tuple[str, ...], Clause] = {}
        for document in documents:
            for begin, end, place in places(document):
                text = names.slotted(document.project, document.text[begin:end])
                words = WORD.findall(text.lower())
                own = frozenset(chain.from_iterable(map(_stems, words)))
                if own and len(text) <= LONGEST and not text.endswith(":"):
                    found.setdefault(tuple(words), Clause(text, own)).places.append(place)
        self.clauses = list(found.values())
        self.paths = sorted({place.headings for clause in self.clauses for place in clause.places})
        levels = sorted({level for path in self.paths for level in path})
        fits = fields.fits(levels) if levels else ()
        self.levels = {one: (fields.significant(one), fit, fit.max()) for one, fit in zip(levels, fits, strict=True)}
        numbers = {path: number for number, path in enumerate(self.paths)}
        of_clauses = [sorted({numbers[place.headings] for place in clause.places}) for clause in self.clauses]
        self.clause_paths = np.array([number for each in of_clauses for number in each], int)
        self.begins = np.cumsum([0, *map(len, of_clauses)])[:-1]  # of each clause's paths
        self.vectorizer = TfidfVectorizer(analyzer=stems, sublinear_tf=True)
        texts = [clause.text for clause in self.clauses] or ["no clause"]
        self.vectors: csr_matrix = self.vectorizer.fit_transform(texts)  # (N, words)

    def fitting(self, heading: str) -> np.ndarray:
        """Return the fit of each clause (N,) to a field or a heading, 0 for none.

        Of several headings, joined by " > ", the last one with a fitting clause counts.
        """
        for level in reversed(heading.split(" > ")):
            name = fields.field_of(level)
            number = fields.NAMES.index(name) if name else None
            own = frozenset[str]() if level in FIELDS else fields.significant(level)
            paths = np.array([self._path_fits(path, number, own) for path in self.paths])
            found = np.maximum.reduceat(paths[self.clause_paths], self.begins) if self.clauses else paths
            if found.any():
                break
        return found

    def _path_fits(self, path: Sequence[str], number: int | None, own: frozenset[str]) -> float:
        best, factor = 0.0, 1.0
        for level in reversed(path):
            words, own_fits, most = self.levels[level]
            fit = own_fits[number] if number is not None else 0.0
            if common := own & words:
                fit = max(fit, fields.weight(common) / fields.weight(own | words))
            if fit >= max(FITTING, most - NEARLY):
                best = max(best, fit * factor)
            elif most >= FITTING:
                break  # a heading about something else
            factor *= DEEPER
        return best

    def mentions(self, name: str) -> np.ndarray:
        """Return (N,) bool: clauses about a field by its name or a long synonym in them, whatever their headings."""
        phrases = [fields.stems(each) for each in (name, *FIELDS[name].synonyms)]
        telling = [each for each in phrases if len(each) > 1 and fields.weight(frozenset(each)) >= fields.LONG]
        return np.array(
            [
                any(f" {' '.join(each)} " in text and len(each) >= FOCUS * (text.count(" ") - 1) for each in telling)
                for text in self._stemmed
            ],
            bool,
        )

    @functools.cached_property
    def _stemmed(self) -> list[str]:
        return [f" {' '.join(stems(clause.text))} " for clause in self.clauses]


class _Names:
    """The names and numbers of single projects."""

    def __init__(self, documents: Sequence[Document]):
        self.lower: set[str] = set()
        self.inside: set[tuple[str, str]] = set()  # project, and a word with a capital within a sentence
        owners: dict[str, set[str]] = defaultdict(set)
        pairs: dict[tuple[str, str], set[str]] = defaultdict(set)  # of a word and the number after it
        for document in documents:
            for begin, end, _ in places(document):
                before = ""
                for number, word in enumerate(WORD.findall(document.text[begin:end])):
                    low = word.lower()
                    owners[low].add(document.project)
                    if word == low:
                        self.lower.add(stem(low))
                    elif number:
                        self.inside.add((document.project, low))
                    if any(map(str.isdigit, word)):
                        pairs[before, low].add(document.project)
                    before = low
        self.common = {word for word, projects in owners.items() if len(projects) > 1} | KEPT
        self.common_pairs = {pair for pair, projects in pairs.items() if len(projects) > 1}

    def slotted(self, project: str, text: str) -> str:
        """Return a clause with <name> and <number> for what only its project has."""
        pieces, at, before, run = [], 0, "", False
        for number, found in enumerate(WORD.finditer(text)):
            word, low = found[0], found[0].lower()
            alone = number == 0 and not text[found.end() + 1 : found.end() + 3].istitle()  # not of a longer name
            slot = self._slot(project, before, word, alone)
            between = text[at : found.start()]
            if not (slot == "<name>" and run and between == " "):
                pieces += [between, slot or word]
            at, run, before = found.end(), slot == "<name>", low
        return "".join([*pieces, text[at:]])

    def _slot(self, project: str, before: str, word: str, first: bool) -> str | None:
        low = word.lower()
        if any(map(str.isdigit, word)):
            digits = sum(map(str.isdigit, word))
            known = (low in self.common and word[0].isalpha()) or (before, low) in self.common_pairs
            known = known or before in STANDARDS
            return None if known or (digits == len(re.sub("[.,/-]", "", word)) and digits <= PLAIN) else "<number>"
        if not word[0].isupper() or low in self.common or stem(low) in self.lower:
            return None
        return None if first and (project, low) not in self.inside else "<name>"


def places(document: Document) -> Iterator[tuple[int, int, Place]]:
    """Yield the start, the end and the place of each clause."""
    text, rows, line, at = document.text, document.outline.tolist(), 1, 0
    paths: dict[int, tuple[tuple[str, ...], str | None]] = {-1: ((), None)}
    for number, (begin, end, above, kind) in enumerate(rows):
        headings, header = paths[above]
        if kind in (HEADING, HEADER):
            own = text[begin:end]
            paths[number] = ((*headings, own), header) if kind == HEADING else (headings, own)
        else:
            line, at = line + text.count("\n", at, begin), begin
            yield begin, end, Place(document.name, document.project, headings, line, header)


@functools.lru_cache(maxsize=1 << 16)
def _stems(word: str) -> tuple[str, ...]:
    """Return the stems of a word's parts; a slot and a minor word have none."""
    if word in fields.MINOR or SLOT.fullmatch(word):
        return ()
    return tuple(stem(part) for part in re.split(r"[-/_]", word) if part)


def stems(text: str) -> list[str]:
    """Return the stems of a text's words but slots and minor ones."""
    return [each for word in WORD.findall(text.lower()) for each in _stems(word)]


def stems_of(text: str) -> frozenset[str]:
    """Return the stems of a clause, by which it is compared."""
    return frozenset(stems(text))
