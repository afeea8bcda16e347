"""The workload's sections of report.html: completions of each field, and prediction by characters read."""

import csv
import json
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from matplotlib.figure import Figure

from models.char_lstm import CharLSTM
from pipelines.engine.runs import Run
from pipelines.report.page import svg, table

if TYPE_CHECKING:
    from pipelines.workloads.bep import Config


def sections(config: "Config", model: CharLSTM, run: Run) -> list[tuple[str, str]]:
    """Return the sections as (heading, HTML)."""
    summaries = {path.stem: json.loads(path.read_text()) for path in sorted(run.evaluations.glob("*.json"))}
    parts = [("Bits per character by characters read", svg(_by_position(summaries)))]
    for path in sorted(run.evaluations.glob("*.completions.csv")):
        parts.append(("Completions of the fields", _completions(path)))
    return parts


def _completions(path: Path) -> str:
    """Return the figures of each temperature, then the prompt and completion of every field."""
    judged = json.loads(path.with_name(f"{path.name.split('.')[0]}.json").read_text())["completions"]
    html = table([{"temperature": temperature, **figures} for temperature, figures in judged.items()])
    with path.open(newline="") as file:
        for row in csv.DictReader(file):
            html += (
                f"<p><b>{escape(row['field'])}</b>, temperature {escape(row['temperature'])}<br>"
                f"<i>{escape(row['prompt'])}</i>{escape(row['completion'])}</p>\n"
            )
    return html


def _by_position(summaries: dict[str, dict[str, Any]]) -> Figure:
    """Plot bits per character from the zero state on; a loss on the last step only begins high and rises late."""
    figure = Figure(figsize=(6, 3), layout="constrained")
    axis = figure.subplots()
    for split, summary in summaries.items():
        axis.plot(*zip(*summary["bits_by_position"].items(), strict=True), "o-", label=split, markersize=4)
    axis.set_xlabel("characters read since the zero state")
    axis.set_ylabel("bits/character")
    axis.grid(alpha=0.3)
    axis.legend(fontsize=8)
    return figure
