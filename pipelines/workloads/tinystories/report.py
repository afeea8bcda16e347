"""The workload's sections of report.html: told stories, and the runs compared by size, speed and quality."""

import json
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from matplotlib.figure import Figure

from models.tiny_transformer import TinyTransformer
from pipelines.engine.run import Run
from pipelines.engine.workload import Evaluation
from pipelines.report.plots import svg
from pipelines.report.tables import table

if TYPE_CHECKING:
    from pipelines.workloads.tinystories import Config


def sections(
    config: "Config", models: Mapping[str, TinyTransformer], evaluations: Sequence[Evaluation], run: Run
) -> list[tuple[str, str]]:
    """Return the sections as (heading, HTML): told stories, and this run beside those in the folders next to it."""
    (found,) = (evaluation for evaluation in evaluations if evaluation.split == "held_out")
    samples = found.files["held_out.samples.txt"]
    runs = [*evaluated_runs(run.folder.parent, but=run.name), {"run": run.name, **found.summary}]
    runs.sort(key=lambda each: each["run"])
    parts = [("Stories it tells", f"<pre style='white-space: pre-wrap'>{escape(samples)}</pre>")]
    if runs:
        columns = ("run", "preset", "parameters", "sram_bytes", "estimated_tokens_per_s", "bits_per_character")
        rows = [{name: run.get(name) for name in columns} for run in runs]
        parts.append(("Size, speed and quality of the runs", svg(_chart(runs)) + table(rows)))
    return parts


def evaluated_runs(folder: Path, but: str) -> list[dict[str, Any]]:
    """Return the summaries of all evaluated runs in `folder`, each with its run's name, `but` that of one run."""
    paths = sorted(folder.glob("*/evaluations/held_out.json"))
    return [{"run": path.parts[-3], **json.loads(path.read_text())} for path in paths if path.parts[-3] != but]


def _chart(runs: list[dict[str, Any]]) -> Figure:
    """Plot bits per character over speed on the chip, one panel per training text; a point's area shows the SRAM."""
    texts = list(dict.fromkeys(run["trained_on"] for run in runs))
    figure = Figure(figsize=(9, 3.6 * len(texts)), layout="constrained")
    for axis, name in zip(figure.subplots(len(texts), 1, squeeze=False)[:, 0], texts, strict=True):
        for run in (run for run in runs if run["trained_on"] == name):
            x, y = run["estimated_tokens_per_s"], run["int8_bits_per_character"]
            axis.scatter(x, y, s=run["sram_bytes"] / 500, alpha=0.5)
            axis.annotate(f"{run['run']} ({run['sram_bytes'] // 1024} KiB)", (x, y), fontsize=8)
        axis.set_xscale("log")
        axis.set_title(name, fontsize=9)
        axis.set_xlabel("tokens/s at 125 MHz, estimated")
        axis.set_ylabel("bits/character, int8")
        axis.grid(alpha=0.3)
    return figure
