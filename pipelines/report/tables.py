"""Tables of rows: as HTML for the page, as text for a terminal."""

from collections.abc import Mapping, Sequence
from itertools import accumulate

from markupsafe import Markup

from common.foreign_text import printable
from pipelines.engine.workload import Evaluation
from pipelines.report.markup import fragment, shown

# A wide table scrolls inside its box, which the keyboard can reach.
TABLE = """
<div class="wide" role="group" aria-label="{{ label }}" tabindex="0"><table>
<thead><tr>{% for column in columns %}<th scope="col">{{ column }}</th>{% endfor %}</tr></thead>
<tbody>{% for row in cells %}
<tr><th scope="row">{{ row[0] }}</th>{% for cell in row[1:] %}<td>{{ cell }}</td>{% endfor %}</tr>{% endfor %}
</tbody></table></div>
"""
MATRIX = """
<figure><table class="matrix"><caption>{{ caption }}</caption>
<thead><tr><th scope="col">{{ rows }} \\ {{ columns }}</th>{% for name in names %}<th scope="col">{{ name }}</th>
{% endfor %}</tr></thead>
<tbody>{% for name, counts in lines %}<tr><th scope="row">{{ name }}</th>{% for count in counts %}
{% set share = count / [counts | sum, 1] | max %}
<td style="--share: {{ '%.3f' % share }}">{{ count }}<br>{{ '%.1f' % (100 * share) }} %</td>{% endfor %}</tr>
{% endfor %}</tbody></table></figure>
"""


def as_text(evaluation: Evaluation, width: int | None = None) -> str:
    """Return the evaluation's table for a terminal, or its summary where it has no table.

    Columns that `width` does not hold follow below the others, with the names of the rows repeated.
    """
    columns, cells = _cells(list(evaluation.table) or [dict(evaluation.summary)])
    padded = [_padded(column) for column in zip(columns, *cells, strict=True)]
    padded[0] = [cell.strip().ljust(len(cell)) for cell in padded[0]]
    lines = []
    while padded:
        ends = accumulate(len(column[0]) + 2 for column in padded)
        fitting = len(padded) if width is None else max(2, sum(end - 2 <= width for end in ends))
        head, *rows = ("  ".join(line) for line in zip(*padded[:fitting], strict=True))
        lines += [head, "-" * len(head), *rows, ""]
        padded = [padded[0], *padded[fitting:]] if len(padded) > fitting else []
    return "\n".join([f"\n{printable(evaluation.split)}:", *lines[:-1]])


def _padded(cells: Sequence[str]) -> list[str]:
    return [cell.rjust(max(map(len, cells))) for cell in cells]


def table(rows: Sequence[Mapping[str, object]], label: str = "table") -> Markup:
    """Return rows as an HTML table whose columns are their keys; `label` is what a screen reader calls it."""
    columns, cells = _cells(rows)
    space = "\N{NO-BREAK SPACE}"  # in intervals
    cells = [[cell.replace(", ", f",{space}") if cell.startswith("[") else cell for cell in row] for row in cells]
    return fragment(TABLE, label=label, columns=columns, cells=cells)


def matrix(counts: Sequence[Sequence[int]], names: Sequence[str], rows: str, columns: str) -> Markup:
    """Return counts of `rows` (a label, say) by `columns` (an answer), each with its share of the row as a shade."""
    caption = f"confusion matrix: {rows} by {columns}, shares of each row"
    lines = list(zip(names, counts, strict=True))
    return fragment(MATRIX, caption=caption, names=names, rows=rows, columns=columns, lines=lines)


def _cells(rows: Sequence[Mapping[str, object]]) -> tuple[list[str], list[list[str]]]:
    """Return the columns, which are the keys of all rows, and the cells of each row as text."""
    columns = list(dict.fromkeys(key for row in rows for key in row))
    return [shown(column) for column in columns], [[shown(row.get(column)) for column in columns] for row in rows]
