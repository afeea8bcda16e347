"""Tables of rows: as HTML for the page, as text for a terminal."""

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from common.foreign_text import printable
from pipelines.engine.workload import Evaluation


def as_text(evaluation: Evaluation) -> str:
    """Return the evaluation's table for a terminal, or its summary where it has no table."""
    rows = list(evaluation.table) or [dict(evaluation.summary)]
    columns = list(dict.fromkeys(key for row in rows for key in row))
    cells = [columns, *([shown(row.get(key)) for key in columns] for row in rows)]
    widths = [max(len(line[i]) for line in cells) for i in range(len(columns))]
    lines = [
        "  ".join(
            cell.ljust(w) if i == 0 else cell.rjust(w) for i, (cell, w) in enumerate(zip(line, widths, strict=True))
        )
        for line in cells
    ]
    return "\n".join([f"\n{printable(evaluation.split)}:", lines[0], "-" * len(lines[0]), *lines[1:]])


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return rows as an HTML table whose columns are their keys."""
    columns = list(dict.fromkeys(key for row in rows for key in row))
    head = "".join(f"<th>{escape(str(column))}</th>" for column in columns)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(shown(row.get(column)))}</td>" for column in columns) + "</tr>" for row in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def shown(value: Any) -> str:
    """Return a number, interval or word as readable text; "" for None."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}" if abs(value) < 1000 else f"{value:.0f}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(shown(item) for item in value) + "]"
    return printable(str(value))
