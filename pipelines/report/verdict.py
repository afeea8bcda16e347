"""Verdict on a model: whether it beats the alternatives in its table, at equal cost where that is known."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from markupsafe import Markup

from common.statistics import difference_interval, interval_around
from pipelines.report.markup import document

Row = Mapping[str, Any]

BETTER, WORSE, EVEN = "better", "worse", "even"
DIGITS = 9  # of differences, so that rounding counts as none
ORDINALS = {1: "first", 2: "second", 3: "third"}
EQUAL_COST = 1.25  # times the model's own cost, up to which an alternative counts as no dearer
HEADINGS = {
    BETTER: "Better than the strongest alternative",
    WORSE: "Worse than the strongest alternative",
    EVEN: "No clear difference from the strongest alternative",
}
UNKNOWN = "Too few examples to compare with the strongest alternative"


@dataclass(frozen=True)
class Comparison:
    """A model's row of a table beside that of the best other predictor or method."""

    own: Row
    rival: Row
    gain: float  # of the model, in the figure's unit; negative: it is worse
    interval: Sequence[float] | None  # of the gain

    @property
    def outcome(self) -> str:
        """BETTER or WORSE if the interval says so, else EVEN."""
        if self.interval is None or self.interval[0] <= 0 <= self.interval[1]:
            return EVEN
        return BETTER if self.gain > 0 else WORSE

    @property
    def heading(self) -> str:
        """Return the verdict in a word or two."""
        return HEADINGS[self.outcome] if self.interval else UNKNOWN

    def by(self, unit: str, better: str, worse: str) -> str:
        """Say by how much the model is better or worse, in these words, with the interval if it has a width."""
        sign, word = (1, better) if self.gain >= 0 else (-1, worse)
        text = f"{abs(self.gain):.3g} {unit} {word}"
        if self.interval is None:
            return f"{text} (too few examples for an interval)"
        low, high = sorted(sign * end for end in self.interval)
        return text if low == high else f"{text} [{low:.3g}, {high:.3g}]"

    def in_percent(self, of: float) -> "Comparison":
        """Return the gain as a percentage of a figure."""
        interval = self.interval and [100 * end / of for end in self.interval]
        return replace(self, gain=100 * self.gain / of, interval=interval)


@dataclass(frozen=True)
class AtCost:
    """A model among the alternatives that cost as much or less, and the first of the dearer ones that is better."""

    own: Row
    cost: str  # column of the table
    found: Comparison | None  # with the strongest of those at that cost; None: all are dearer
    cheapest: Comparison | None  # with the cheapest of those that are not clearly worse, if it costs clearly less
    place: int  # of the model, 1 for the best
    of: int
    dearer: int
    better: Comparison | None  # with the cheapest of the dearer ones that are clearly better

    @property
    def outcome(self) -> str:
        """That of the comparison at equal cost; EVEN without any."""
        return self.found.outcome if self.found else EVEN

    def heading(self, unit: str) -> str:
        """Return the verdict in a line, which names costs in a unit such as "core-ms"."""
        name = next(iter(self.own))
        said = f"Within {self.own[self.cost]:.3g} {unit}: "
        if self.found is None:
            said += "nothing to compare with"
        else:
            said += f"{ORDINALS.get(self.place) or f'{self.place}th'} of {self.of}"
            if self.found.outcome == EVEN:
                said += f", no clear difference from {(self.cheapest or self.found).rival[name]}"
                said += f", which takes {self.cheapest.rival[self.cost]:.3g}" if self.cheapest else ""
            elif self.place > 1:
                said += f", behind {self.found.rival[name]}"
        if self.better is not None:
            rival = self.better.rival
            return f"{said}; from {rival[self.cost]:.3g} {unit} on, {rival[name]} is better"
        return f"{said}; nothing dearer is clearly better" if self.dearer else said


def at_cost(own: Row, others: Sequence[Row], cost: str, against: Callable[[Row], Comparison]) -> AtCost:
    """Compare a row with others that cost at most EQUAL_COST times as much by the column `cost`, by `against`."""
    known = sorted((row for row in others if row.get(cost) is not None), key=lambda row: row[cost])
    near = [against(row) for row in known if row[cost] <= EQUAL_COST * own[cost]]
    dearer = known[len(near) :]
    better = next((found for found in map(against, dearer) if found.outcome == WORSE), None)
    strongest = min(near, key=lambda found: found.gain, default=None)
    less = [found for found in near if found.rival[cost] * EQUAL_COST < own[cost]]
    cheapest = next((found for found in less if found.outcome != BETTER), None)
    place = 1 + sum(found.gain < 0 for found in near)
    return AtCost(own, cost, strongest, cheapest, place, 1 + len(near), len(dearer), better)


def divide(table: Sequence[Row], own: str | None = None) -> tuple[list[Row], list[Row]]:
    """Divide a table into rows that begin, up to a comma, as `own` or the first row does, and the others."""
    column = next(iter(table[0]))
    kind = (own or table[0][column]).partition(", ")[0]
    mine = [row for row in table if row[column].partition(", ")[0] == kind]
    return mine, [row for row in table if row not in mine]


def compare(own: Row, others: Sequence[Row], figure: str, spread: str, maximise: bool = False) -> Comparison:
    """Compare a row with the best of the others by the column `figure`; ValueError if no other row has it.

    The column `spread` holds intervals, or half their widths. The gain's interval treats both rows as
    independent, and so is rather too wide. A rival without an interval is exact; without the own row's there is none.
    """
    sign = 1 if maximise else -1
    rival = max((row for row in others if row.get(figure) is not None), key=lambda row: sign * row[figure])
    gain = round(sign * (own[figure] - rival[figure]), DIGITS)
    mine, theirs = interval_of(own, figure, spread), interval_of(rival, figure, spread) or [rival[figure]] * 2
    interval = None
    if mine is not None:
        low, high = difference_interval((own[figure], *mine), (rival[figure], *theirs))
        interval = [round(end, DIGITS) for end in ([low, high] if maximise else [-high, -low])]
    return Comparison(own, rival, gain, interval)


def interval_of(row: Row, figure: str, spread: str) -> Sequence[float] | None:
    """Return the interval of a row's figure from the column `spread`, as [low, high]; None if it has none."""
    width = row.get(spread)
    return interval_around(row[figure], width) if width is None or isinstance(width, int | float) else width


def answer(outcome: str, *sentences: str) -> Markup:
    """Return a verdict's sentences as HTML, the first one larger."""
    return document("answer.html", outcome=outcome, sentences=sentences)
