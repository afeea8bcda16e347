"""Tables of rows: as HTML for the page, as text for a terminal."""

from collections.abc import Mapping, Sequence
from itertools import accumulate

from markupsafe import Markup

from common.foreign_text import printable
from pipelines.engine.workload import Evaluation
from pipelines.report.markup import document, shown


def as_text(evaluation: Evaluation, width: int | None = None) -> str:
    """Return the evaluation's table, or its summary, for a terminal; columns beyond its `width` follow below."""
    columns, cells = _cells(list(evaluation.table) or [dict(evaluation.summary)])
    padded = [[cell.rjust(max(map(len, column))) for cell in column] for column in zip(columns, *cells, strict=True)]
    padded[0] = [cell.strip().ljust(len(cell)) for cell in padded[0]]
    lines = []
    while padded:
        ends = accumulate(len(column[0]) + 2 for column in padded)
        fitting = len(padded) if width is None else max(2, sum(end - 2 <= width for end in ends))
        head, *rows = ("  ".join(line) for line in zip(*padded[:fitting], strict=True))
        lines += [head, "-" * len(head), *rows, ""]
        padded = [padded[0], *padded[fitting:]] if len(padded) > fitting else []
    return "\n".join([f"\n{printable(evaluation.split)}:", *lines[:-1]])


def table(rows: Sequence[Mapping[str, object]], label: str = "table") -> Markup:
    """Return rows as an HTML table whose columns are their keys; `label` is what a screen reader calls it."""
    columns, cells = _cells(rows)
    space = "\N{NO-BREAK SPACE}"  # in intervals
    cells = [[cell.replace(", ", f",{space}") if cell.startswith("[") else cell for cell in row] for row in cells]
    return document("table.html", label=label, columns=columns, cells=cells)


def matrix(counts: Sequence[Sequence[int]], names: Sequence[str], rows: str, columns: str) -> Markup:
    """Return counts of `rows` (a label, say) by `columns` (an answer), each with its share of the row as a shade."""
    caption = f"confusion matrix: {rows} by {columns}, shares of each row"
    lines = list(zip(names, counts, strict=True))
    return document("matrix.html", caption=caption, names=names, rows=rows, columns=columns, lines=lines)


def _cells(rows: Sequence[Mapping[str, object]]) -> tuple[list[str], list[list[str]]]:
    columns = list(dict.fromkeys(key for row in rows for key in row))
    return [shown(column) for column in columns], [[shown(row.get(column)) for column in columns] for row in rows]
