"""Hit rate of suggested clauses on held-out plans, with the other plans as the library.

Each project's plans are held out in turn, and their clauses searched for by heading, with three words or none. A
suggestion is on the topic if a heading above it is about the same field or, where the clause's is about none, has the
same words. It is a hit if it also shares at least 0.6 of the stems of the shorter of the two clauses, and at least two.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from common.plain import Plain
from common.statistics import ratio_percentiles, resampled_counts
from common.workers import progress
from models.plans import fields
from models.plans.fields import FIELDS
from models.plans.library import ALIKE, Clause, Document, Library, overlap, places, stems, stems_of
from models.plans.suggester import FEWEST, SUGGESTED, Suggester
from pipelines.workloads.bep.comparison import RESAMPLES

TYPED = 3  # words
GIVEN = {"words": "heading and three words", "heading": "heading"}
OWN, RIVAL = "clauses by field, heading and words", "TF-IDF alone"
FIGURES = ("hit@1, %", "hit@3, %", "silent, %")


class Asked(NamedTuple):
    """A clause of a held-out plan, and the query to find it by."""

    headings: tuple[str, ...]
    topic: str  # the field, or the heading
    words: frozenset[str]
    begun: str  # its first words


def measure(documents: Sequence[Document], most: int, seed: int) -> tuple[dict[str, Plain], list[dict[str, Plain]]]:
    """Search for at most `most` clauses of each document; return figures for a summary, and a table."""
    held_out: dict[str, list[Asked]] = {}
    for document in documents:
        held_out.setdefault(document.project, []).extend(asked(document, most))
    projects = sorted(project for project, clauses in held_out.items() if clauses)
    if len(projects) < 2:
        return {}, []
    found: dict[tuple[str, str], np.ndarray] = {}
    generator = np.random.default_rng(seed)
    for number, project in progress(enumerate(projects), len(projects), "suggesting clauses, projects"):
        others = [each for each in documents if each.project != project]
        for way, suggest in _ways(Library(others), generator).items():
            for given in GIVEN:
                totals = found.setdefault((given, way), np.zeros((len(projects), 6)))
                for each in held_out[project]:
                    totals[number] += _judged(each, suggest(each, each.begun if given == "words" else ""))
    drawn = resampled_counts(len(projects), RESAMPLES, seed)
    table: list[dict[str, Plain]] = []
    summary: dict[str, Plain] = {"clauses_asked": int(found["heading", OWN][:, 0].sum()), "plans_of": len(projects)}
    for (given, way), totals in found.items():
        own, asked_for = found[given, OWN], totals[:, 0]
        row: dict[str, Plain] = {"given": GIVEN[given], "suggestions": way}
        row |= {name: _percent(totals[:, column], asked_for) for column, name in enumerate(FIGURES, 1)}
        row["off the topic, %"] = _percent(totals[:, 4], totals[:, 5])
        row["hits@3 fewer, points"] = _percent(own[:, 2] - totals[:, 2], asked_for)
        row["95 %"] = ratio_percentiles(100 * (own[:, 2] - totals[:, 2]), asked_for, drawn)
        table.append(row)
        if way == RIVAL:
            summary[f"clauses_gain_{given}"] = row["hits@3 fewer, points"]
            summary[f"clauses_gain_{given}_interval"] = row["95 %"]
        if way == OWN:
            summary |= {f"clauses_hit_{given}": row["hit@3, %"], "clauses_off_topic": row["off the topic, %"]}
            summary[f"clauses_hit_{given}_interval"] = ratio_percentiles(own[:, 2], asked_for, drawn)
    return summary, table


def asked(document: Document, most: int) -> list[Asked]:
    """Return at most `most` clauses of FEWEST stems or more, spread over a document."""
    found = []
    for begin, end, place in places(document):
        text = document.text[begin:end]
        words = stems_of(text)
        if len(words) >= FEWEST and place.headings:
            topic = next(filter(None, map(fields.field_of, reversed(place.headings))), place.headings[-1])
            found.append(Asked(place.headings, topic, words, " ".join(text.split()[:TYPED]) + " "))
    return [found[at] for at in np.unique(np.linspace(0, len(found) - 1, most).astype(int))] if found else []


def _ways(library: Library, generator: np.random.Generator) -> dict[str, Callable[[Asked, str], Sequence[Clause]]]:
    from sklearn.feature_extraction.text import TfidfVectorizer

    suggester, clauses = Suggester(library), library.clauses
    words = TfidfVectorizer(analyzer=stems, sublinear_tf=True)
    vectors = words.fit_transform([" ".join([*clause.places[0].headings[-1:], clause.text]) for clause in clauses])

    def by_words(given: Asked, begun: str) -> Iterator[Clause]:
        alike = vectors @ words.transform([f"{given.headings[-1]} {begun}"]).toarray()[0]
        return (clauses[row] for row in np.argsort(-alike, kind="stable")[:SUGGESTED] if alike[row] > 0)

    def any_of_field(given: Asked, begun: str) -> list[Clause]:
        topic = suggester.topic(" > ".join(given.headings))
        return [clauses[number] for number in generator.permutation(topic.numbers)[:SUGGESTED]] if topic else []

    def template(given: Asked, begun: str) -> list[Clause]:
        text = FIELDS[given.topic].beginning if given.topic in FIELDS else ""
        return [Clause(text, stems_of(text))] if text else []

    return {
        OWN: lambda given, begun: suggester.find(" > ".join(given.headings), begun),
        RIVAL: lambda given, begun: list(by_words(given, begun)),
        "any clause of the field": any_of_field,
        "the form's own beginning": template,
    }


def _judged(given: Asked, found: Sequence[Clause]) -> np.ndarray:
    """Return (6,): 1, hit@1, hit@3, 1 for no suggestion, suggestions off the topic, and all suggestions."""
    about = fields.field_of if given.topic in FIELDS else fields.significant
    above = [{about(heading) for place in clause.places for heading in place.headings} for clause in found]
    on = [not clause.places or about(given.topic) in own for clause, own in zip(found, above, strict=True)]
    hits = [here and overlap(given.words, clause.words) >= ALIKE for here, clause in zip(on, found, strict=True)]
    return np.array([1, any(hits[:1]), any(hits), not found, len(on) - sum(on), len(on)], float)


def _percent(values: np.ndarray, weights: np.ndarray) -> float | None:
    return 100 * float(values.sum() / weights.sum()) if weights.sum() else None
