"""Evaluations on disk, and report.html: one self-contained page that shows a run."""

import csv
import io
import json
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from common.files import write_json, write_text
from pipelines.engine.config import leaves
from pipelines.engine.runs import Run
from pipelines.engine.workload import Evaluation
from pipelines.report.plots import curves
from pipelines.report.tables import table

SHOWN_FACTS = 40  # a longer list of figures is folded up
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
