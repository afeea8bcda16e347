"""Evaluations on disk and the one self-contained page that shows a run: report.html."""

import csv
import io
import json
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from common.files import write_json, write_text
from pipelines.engine.config import leaves
from pipelines.engine.runs import Run
from pipelines.engine.workload import Evaluation

SHOWN_FACTS = 40  # more are folded up
STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; margin: 2rem auto; max-width: 64rem; padding: 0 1rem; color: #1a1a1a }
h1 { font-size: 1.5rem } h2 { font-size: 1.15rem; margin-top: 2.2rem; border-bottom: 1px solid #ccc }
table { border-collapse: collapse; margin: .8rem 0; font-variant-numeric: tabular-nums }
th, td { padding: .25rem .8rem; text-align: right; border-bottom: 1px solid #e4e4e4 }
th:first-child, td:first-child { text-align: left } thead th { border-bottom: 2px solid #888 }
svg { max-width: 100%; height: auto } pre { background: #f5f5f5; padding: .8rem; overflow-x: auto }
.facts td { text-align: left }
"""


def keep(run: Run, evaluation: Evaluation) -> None:
    """Write evaluations/<split>.json, the per-example CSV and the evaluation's own files."""
    run.evaluations.mkdir(parents=True, exist_ok=True)
    summary = {**evaluation.summary, "table": list(evaluation.table)}
    write_json(run.evaluations / f"{evaluation.split}.json", summary)
    if evaluation.examples:
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(evaluation.examples)
        writer.writerows(zip(*evaluation.examples.values(), strict=True))
        write_text(run.evaluations / f"{evaluation.split}.csv", text.getvalue())
    for name, content in evaluation.files.items():
        write_text(run.evaluations / name, content)


def as_text(evaluation: Evaluation) -> str:
    """The evaluation's table for a terminal."""
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
    return "\n".join([f"\n{evaluation.split}:", lines[0], "-" * len(lines[0]), *lines[1:]])


def shown(value: Any) -> str:
    """A number, interval or word as a reader wants it; nothing for None."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}" if abs(value) < 1000 else f"{value:.0f}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(shown(item) for item in value) + "]"
    return str(value)


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Rows as an HTML table whose columns are their keys."""
    columns = list(dict.fromkeys(key for row in rows for key in row))
    head = "".join(f"<th>{escape(str(column))}</th>" for column in columns)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(shown(row.get(column)))}</td>" for column in columns) + "</tr>" for row in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def svg(figure: Figure) -> str:
    """A matplotlib figure as inline SVG with its text as text."""
    buffer = io.StringIO()
    with matplotlib.rc_context({"svg.fonttype": "none"}):
        figure.savefig(buffer, format="svg", bbox_inches="tight")
    text = buffer.getvalue()
    return text[text.index("<svg") :]


def curves(metrics: Sequence[Mapping[str, Any]]) -> str:
    """One panel per name that was logged while training: train/<name> and val/<name> over steps."""
    names = dict.fromkeys(
        key.partition("/")[2] for entry in metrics for key in entry if key.startswith(("train/", "val/"))
    )
    names = [*names, "learning_rate", "examples_per_s"]
    columns = 3
    rows = -(-len(names) // columns)
    figure = Figure(figsize=(4 * columns, 2.6 * rows), layout="constrained")
    for axis, name in zip(
        figure.subplots(rows, columns, squeeze=False).flat, names + [None] * (rows * columns - len(names)), strict=True
    ):
        if name is None:
            axis.axis("off")
            continue
        for key, style in ((f"train/{name}", "-"), (f"val/{name}", "o-"), (name, "-")):
            points = [(entry["step"], entry[key]) for entry in metrics if entry.get(key) is not None]
            if points:
                axis.plot(*np.array(points).T, style, label=key, linewidth=1, markersize=3)
        axis.set_title(name.replace("_", " "), fontsize=10)
        axis.set_xlabel("step", fontsize=8)
        axis.tick_params(labelsize=8)
        if len(axis.lines) > 1:
            axis.legend(fontsize=8)
    return svg(figure)


def write(run: Run, sections: Sequence[tuple[str, str]]) -> None:
    """Write report.html from the run's files and the workload's (heading, HTML) sections."""
    provenance = json.loads((run.folder / "provenance.json").read_text())
    metrics = run.metrics()
    parts = [("How it was made", _facts(provenance))]
    if metrics:
        parts.append(("Training", curves(metrics)))
    for path in sorted(run.evaluations.glob("*.json")):
        summary = json.loads(path.read_text())
        rows = summary.pop("table")
        facts = [{"figure": key, "value": value} for key, value in leaves(summary)]
        all_facts = table(facts)
        if len(facts) > SHOWN_FACTS:
            all_facts = f"<details><summary>all {len(facts)} figures</summary>{all_facts}</details>"
        parts.append((f"Evaluation: {path.stem}", (table(rows) if rows else "") + all_facts))
    parts += sections
    parts.append(("Configuration", f"<pre>{escape(run.config_file.read_text())}</pre>"))
    title = f"{run.workload} / {run.name}"
    body = "".join(f"<h2>{escape(heading)}</h2>\n{html}\n" for heading, html in parts)
    page = (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f"<style>{STYLE}</style></head>\n<body><h1>{escape(title)}</h1>\n{body}</body></html>\n"
    )
    write_text(run.report, page)


def _facts(provenance: Mapping[str, Any]) -> str:
    shown_facts = {
        "command": " ".join(provenance["command"]),
        "started": provenance["started"],
        "code": f"{provenance['commit']}{' with uncommitted changes' if provenance['uncommitted_changes'] else ''}",
        "devices": ", ".join(provenance["devices"]),
        "processes": provenance["world_size"],
        "versions": ", ".join(f"{name} {version}" for name, version in provenance["versions"].items()),
    }
    rows = "".join(f"<tr><td>{k}</td><td>{escape(str(v))}</td></tr>" for k, v in shown_facts.items())
    return f'<table class="facts">{rows}</table>'
