"""The workload's sections of report.html: completions of each field, and prediction by characters read."""

from collections.abc import Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from matplotlib.figure import Figure

from common.foreign_text import from_csv
from models.char_lstm import CharLSTM
from pipelines.engine.run import Run
from pipelines.engine.workload import Evaluation
from pipelines.report.plots import svg
from pipelines.report.tables import table

if TYPE_CHECKING:
    from pipelines.workloads.bep import Config


def sections(
    config: "Config", models: Mapping[str, CharLSTM], evaluations: Sequence[Evaluation], run: Run
) -> list[tuple[str, str]]:
    """Return the sections as (heading, HTML)."""
    summaries = {evaluation.split: evaluation.summary for evaluation in evaluations}
    parts = [("Bits per character by characters read", svg(_by_position(summaries)))]
    for evaluation in evaluations:
        written = evaluation.files.get(f"{evaluation.split}.completions.csv")
        if written is not None:
            parts.append(("Completions of the fields", _completions(evaluation.summary["completions"], written)))
    return parts


def _completions(judged: Mapping[str, Mapping[str, Any]], written: str) -> str:
    """Return the figures of each temperature, then the prompt and completion of every field from the rows of a CSV."""
    html = table([{"temperature": temperature, **figures} for temperature, figures in judged.items()])
    for row in from_csv(written):
        html += (
            f"<p><b>{escape(row['field'])}</b>, temperature {escape(row['temperature'])}<br>"
            f"<i>{escape(row['prompt'])}</i>{escape(row['completion'])}</p>\n"
        )
    return html


def _by_position(summaries: Mapping[str, Mapping[str, Any]]) -> Figure:
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
