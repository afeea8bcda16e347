"""The workload's part of report.html: cost against time, and tours as pictures."""

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from matplotlib.figure import Figure
from torch import nn

from pipelines.engine.run import Run
from pipelines.engine.workload import Evaluation
from pipelines.report.plots import svg

if TYPE_CHECKING:
    from pipelines.workloads.cvrp import Config


def sections(
    config: "Config", models: Mapping[str, nn.Module], evaluations: Sequence[Evaluation], run: Run
) -> list[tuple[str, str]]:
    """Return (heading, HTML) pairs for every evaluation of the run."""
    parts = []
    for evaluation in evaluations:
        split = evaluation.split
        drawings = [json.loads(line) for line in evaluation.files[f"{split}.tours.jsonl"].splitlines()]
        parts.append((f"Cost against time: {split}", svg(_cost_against_time(evaluation.table))))
        parts.append((f"Tours: {split}", svg(_tours(drawings))))
    return parts


def _cost_against_time(table: Sequence[Mapping[str, Any]]) -> Figure:
    """Plot every method's mean gap, or its mean cost without a reference, over its time per instance."""
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    axis = figure.subplots()
    key = "gap %" if all("gap %" in row for row in table) else "cost"
    for row in table:
        axis.plot(1000 * row["seconds"] / row["n"], row[key], "o", label=row["method"])
    axis.set_xscale("log")
    axis.set_xlabel("milliseconds per instance (wall clock, all instances together)")
    axis.set_ylabel("mean gap to the reference, %" if key == "gap %" else "mean cost")
    axis.grid(alpha=0.3)
    axis.legend(fontsize=8, loc="center left", bbox_to_anchor=(1, 0.5))
    return figure


def _tours(drawings: list[dict[str, Any]]) -> Figure:
    """Draw the tours of the best, median and worst instance by gap."""
    figure = Figure(figsize=(4.2 * len(drawings), 4.4), layout="constrained")
    for axis, drawing in zip(figure.subplots(1, len(drawings), squeeze=False)[0], drawings, strict=True):
        locs = drawing["locs"]
        for route in drawing["routes"]:
            path = [locs[node] for node in (0, *route, 0)]
            axis.plot([x for x, _ in path], [y for _, y in path], "-o", linewidth=1.2, markersize=3)
        axis.plot(*locs[0], "s", color="black", markersize=7)
        title = f"{drawing['which']}: {drawing['name']}, cost {drawing['cost']:.4g}"
        if drawing["reference"]:
            title += f" (reference {drawing['reference']:.4g})"
        axis.set_title(title, fontsize=9)
        axis.set_aspect("equal")
        axis.set_xticks([])
        axis.set_yticks([])
    return figure
