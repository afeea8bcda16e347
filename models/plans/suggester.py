"""Suggestions for a field of a form: a firm's own clauses, or none where nothing of the firm's fits."""

import functools
import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from models.plans import outline
from models.plans.fields import FIELDS
from models.plans.library import BASE, SLOT, Clause, Library, overlap, stems_of

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

SUGGESTED = 3  # suggestions shown at a time
RANKED = 6  # clauses that the model ranks
SAID = 0.8  # least overlap of words of a clause with a sentence that says it already
TELLING = 3  # least stems of a begun sentence with which clauses must have one in common
FEWEST = 4  # stems of a clause; shorter ones say little
# Weights, beside a clause's fit to the heading, 0.55 to 1; FOREIGN where only a base's documents have it.
TYPICAL, TYPED, BEGINNING, SHARED, SHORT, SLOTTED, SAME, FOREIGN = 2.0, 5.0, 3.0, 0.1, 0.2, 1.0, 0.1, 1.5
LIKELY = 0.1  # weight of the mean log-probability of its first characters, by the model

Judge = Callable[[Sequence[str]], Sequence[float]]  # mean log-probabilities of the beginnings of continuations


@dataclass(frozen=True)
class Suggestion:
    """A clause of stored documents, with the first of its places."""

    text: str  # with slots such as <name>
    replaces: int  # characters at the end of the typed text that it replaces; 0: it follows them
    likelihood: float  # of a character, the geometric mean over the first ones
    count: int  # projects that have it
    document: str
    project: str
    heading: str  # those above it, the outermost first
    line: int  # from 1
    header: str | None  # of a table's row


@dataclass(frozen=True)
class Topic:
    """The clauses below the headings of a field."""

    numbers: np.ndarray  # (T,) of clauses
    fits: np.ndarray  # (T,)
    vectors: "csr_matrix"  # (T, words)
    typical: np.ndarray  # (T,) similarity to the mean of all


class Suggester:
    """Suggestions from a library."""

    def __init__(self, library: Library):
        self.library = library
        self.topic = functools.lru_cache(maxsize=512)(self._topic)
        # Scores of each clause (N,) before anything is typed.
        self.priors = [
            np.array([SHARED * math.log(one.projects) - SHORT * (len(one.words) < FEWEST) for one in library.clauses]),
            np.array([-SLOTTED * len(SLOT.findall(one.text)) / (one.text.count(" ") + 1) for one in library.clauses]),
            np.array([-FOREIGN * all(at.project.startswith(BASE) for at in one.places) for one in library.clauses]),
        ]
        self.is_word = np.array([sum(len(word) > 2 for word in one.words) < 2 for one in library.clauses], bool)

    def _topic(self, heading: str) -> Topic | None:
        fits = self.library.fitting(heading)
        if not fits.any() and heading in FIELDS:
            fits = np.where(self.library.mentions(heading), 1.0, 0.0)
        numbers = np.flatnonzero(fits)
        if not len(numbers):
            return None
        vectors = self.library.vectors[numbers]
        mean = np.asarray(vectors.sum(0)).ravel()
        return Topic(numbers, fits[numbers], vectors, vectors @ (mean / max(float(np.linalg.norm(mean)), 1e-9)))

    def spelled(self, heading: str) -> str:
        """Return the commonest heading of a field in the documents; for another heading, or without any, itself."""
        topic = self.topic(heading)
        best = topic.numbers[topic.fits >= topic.fits.max()] if topic and heading in FIELDS else ()
        paths = [self.library.clauses[number].places[0].headings for number in best]
        found = Counter(path[-1] for path in paths if path)
        return found.most_common(1)[0][0] if found else heading

    def find(self, heading: str, partial: str, num: int = SUGGESTED, judge: Judge | None = None) -> list[Clause]:
        """Return up to `num` clauses that may stand below a heading after a text, the best first."""
        topic, (begin, begun) = self.topic(heading), last_sentence(partial)
        if topic is None:
            return []
        clauses = [self.library.clauses[number] for number in topic.numbers]
        score = topic.fits + TYPICAL * topic.typical
        for prior in self.priors:
            score += prior[topic.numbers]
        if begun.strip():
            typed, low = stems_of(begun), " ".join(begun.lower().split())
            alike = topic.vectors @ self.library.vectorizer.transform([begun]).toarray()[0]
            score += TYPED * alike + [BEGINNING * (clause.text.lower().startswith(low)) for clause in clauses]
            if len(typed) >= TELLING:
                score[alike <= 0] = -np.inf
        else:  # a word alone is no clause, unless it continues a begun sentence
            score[self.is_word[topic.numbers]] = -np.inf
        before = [stems_of(each) for _, each in outline.sentences(partial[:begin])]
        for row, clause in enumerate(clauses):
            if not continuation(clause, begun)[0] or any(overlap(clause.words, said) >= SAID for said in before):
                score[row] = -np.inf
        if judge and num:
            best = [row for row in np.argsort(-score, kind="stable")[:RANKED] if score[row] > -np.inf]
            likely = judge([continuation(clauses[row], begun)[0] for row in best]) if best else []
            score[np.setdiff1d(np.arange(len(score)), best)] = -np.inf
            score[best] += LIKELY * np.array(likely)
        chosen: list[Clause] = []
        while len(chosen) < num and (score > -np.inf).any():
            row = int(score.argmax())
            chosen.append(clauses[row])
            score = score - SAME * (topic.vectors @ topic.vectors[[row]].T).toarray()[:, 0]
            score[row] = -np.inf
        return chosen

    def suggest(self, heading: str, partial: str, num: int, judge: Judge) -> list[Suggestion]:
        """Return up to `num` suggestions; `judge` ranks them by what has been read."""
        usual = heading in FIELDS and partial == FIELDS[heading].beginning
        begun, own = (partial, "") if usual else (last_sentence(partial)[1], partial)
        clauses = self.find(heading, own, num, judge)
        shown = [continuation(clause, begun) for clause in clauses]
        likely = [math.exp(each) for each in judge([text for text, _ in shown])] if shown else []
        found = []
        for clause, (text, replaces), likelihood in zip(clauses, shown, likely, strict=True):
            place = clause.places[0]
            where = (place.document, place.project, " > ".join(place.headings), place.line, place.header)
            found.append(Suggestion(text, replaces, likelihood, clause.projects, *where))
        return found


def last_sentence(text: str) -> tuple[int, str]:
    """Return the start and the text of the unfinished sentence at the end of a text, "" if there is none."""
    line = text.rfind("\n") + 1
    parts = list(outline.sentences(text[line:]))
    if not parts or (text[-1:].isspace() and text.rstrip()[-1:] in ".!?"):
        return len(text), ""
    return line + parts[-1][0], text[line + parts[-1][0] :]


def continuation(clause: Clause, begun: str) -> tuple[str, int]:
    """Return the text to insert for a clause after a begun sentence, and how many characters of that it replaces."""
    if begun and clause.text.lower().startswith(begun.lower()):
        return clause.text[len(begun) :], 0
    return clause.text[:1].upper() + clause.text[1:], len(begun)
