"""Evaluations on disk, and report.html: one self-contained page that shows a run."""

import json
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from common.config import leaves
from common.files import write_json, write_text
from common.foreign_text import to_csv
from pipelines.engine.run import Run
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


def keep(run: Run, evaluations: Sequence[Evaluation]) -> list[Evaluation]:
    """Write the evaluations; return those of the run itself, with those of other splits that it has from before.

    Each becomes evaluations/<split>.json, a CSV with a row per example, and files of its own; one that is about a
    member goes into the member's folder.
    """
    own: dict[str, Evaluation] = {}
    for evaluation in evaluations:
        if evaluation.member is None:
            own[evaluation.split] = evaluation
            _write(evaluation, run.evaluations)
        else:
            _write(evaluation, run.member(evaluation.member).evaluations)
    known = {evaluation.split: evaluation for evaluation in _read_all(run.evaluations)} | own
    return [known[split] for split in sorted(known)]


def _write(evaluation: Evaluation, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    summary = {**evaluation.summary, "table": list(evaluation.table)}
    if evaluation.files:
        summary["files"] = list(evaluation.files)
    write_json(folder / f"{evaluation.split}.json", summary)
    if evaluation.examples:
        rows = zip(*evaluation.examples.values(), strict=True)
        write_text(folder / f"{evaluation.split}.csv", to_csv(evaluation.examples, rows))
    for name, content in evaluation.files.items():
        write_text(folder / name, content)


def _read_all(folder: Path) -> list[Evaluation]:
    """The evaluations in a folder, without their rows per example; any other JSON is passed over."""
    found = []
    for path in sorted(folder.glob("*.json")):
        try:
            summary = json.loads(path.read_text())
        except ValueError:
            continue
        if not isinstance(summary, dict) or not isinstance(summary.get("table"), list):
            continue
        rows = summary.pop("table")
        # Evaluations written before their files were listed have them beside themselves, by the name of the split.
        names = summary.pop("files", None) or [p.name for p in folder.glob(f"{path.stem}.*") if p.suffix != ".json"]
        # Decoded here, as reading text would turn a carriage return in a cell into a new line.
        files = {name: (folder / name).read_bytes().decode() for name in names if (folder / name).is_file()}
        found.append(Evaluation(path.stem, summary, rows, files=files))
    theirs = {name for evaluation in found for name in evaluation.files}
    return [evaluation for evaluation in found if f"{evaluation.split}.json" not in theirs]


def write(run: Run, evaluations: Sequence[Evaluation], sections: Sequence[tuple[str, str]]) -> None:
    """Write report.html: how the run was made, its curves, the evaluations, the workload's (heading, HTML) sections."""
    provenance = json.loads((run.folder / "provenance.json").read_text())
    metrics = run.metrics()
    parts = [("How it was made", _facts(provenance))]
    if metrics:
        parts.append(("Training", curves(metrics)))
    for evaluation in evaluations:
        facts = [{"figure": key, "value": value} for key, value in leaves(evaluation.summary)]
        all_facts = table(facts)
        if len(facts) > SHOWN_FACTS:
            all_facts = f"<details><summary>all {len(facts)} figures</summary>{all_facts}</details>"
        rows = table(evaluation.table) if evaluation.table else ""
        parts.append((f"Evaluation: {evaluation.split}", rows + all_facts))
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
