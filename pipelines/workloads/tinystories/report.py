"""The workload's sections of report.html: told stories, and the runs compared by size, speed and quality."""

import json
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from matplotlib.figure import Figure

from models.tiny_transformer import TinyTransformer
from pipelines.engine.runs import Run
from pipelines.report.page import svg, table

if TYPE_CHECKING:
    from pipelines.workloads.tinystories import Config


def sections(config: "Config", model: TinyTransformer, run: Run) -> list[tuple[str, str]]:
    """Return the sections as (heading, HTML)."""
    samples = run.evaluations / "held_out.samples.txt"
    runs = evaluated_runs(run.folder.parent)
    parts = [("Stories it tells", f"<pre style='white-space: pre-wrap'>{escape(samples.read_text())}</pre>")]
    if runs:
        columns = ("run", "preset", "parameters", "sram_bytes", "estimated_tokens_per_s", "bits_per_character")
        rows = [{name: run.get(name) for name in columns} for run in runs]
        parts.append(("Size, speed and quality of the runs", svg(_chart(runs)) + table(rows)))
    return parts


def evaluated_runs(folder: Path) -> list[dict[str, Any]]:
    """Return the summaries of all evaluated runs in `folder`, each with the name of its run."""
    paths = sorted(folder.glob("*/evaluations/held_out.json"))
    return [{"run": path.parts[-3], **json.loads(path.read_text())} for path in paths]


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
