"""Verdict on a model: whether it beats the strongest alternative in the evaluation's own table."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from markupsafe import Markup

from common.statistics import difference_interval, interval_around
from pipelines.report.markup import fragment

Row = Mapping[str, Any]

BETTER, WORSE, EVEN = "better", "worse", "even"
DIGITS = 9  # of differences, so that those of rounding alone are none
ANSWER = """
<div class="answer {{ outcome }}">{% for sentence in sentences %}<p>{{ sentence }}</p>{% endfor %}</div>
"""
HEADINGS = {
    BETTER: "Better than the strongest alternative",
    WORSE: "Worse than the strongest alternative",
    EVEN: "No clear difference from the strongest alternative",
}


@dataclass(frozen=True)
class Comparison:
    """A model's row of a table beside that of the best other predictor or method."""

    own: Row
    rival: Row
    gain: float  # by which the model is better, in the figure's unit; negative where it is worse
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
        return HEADINGS[self.outcome]

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


def divide(table: Sequence[Row], own: str | None = None) -> tuple[list[Row], list[Row]]:
    """Divide a table into the model's rows and the alternatives, by the first column up to a comma.

    The model's rows begin as `own` does, else as the first row.
    """
    column = next(iter(table[0]))
    kind = (own or table[0][column]).partition(", ")[0]
    mine = [row for row in table if row[column].partition(", ")[0] == kind]
    return mine, [row for row in table if row not in mine]


def compare(own: Row, others: Sequence[Row], figure: str, spread: str, maximise: bool = False) -> Comparison:
    """Compare a row with the best of the others by the column `figure`; ValueError if no other row has it.

    The column `spread` holds intervals, or half their widths. The gain's interval treats both rows as independent, too
    wide rather than too narrow; a rival without an interval has no width, an own row without one gives the gain none.
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
    """Return the words of a verdict, the first sentence larger than the others."""
    return fragment(ANSWER, outcome=outcome, sentences=sentences)
