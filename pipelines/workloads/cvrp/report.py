"""The workload's part of report.html: the verdict with pictures of tours, and cost against time."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from markupsafe import Markup
from matplotlib.figure import Figure
from torch import nn

from pipelines.engine.workload import Evaluation, Sections
from pipelines.report.markup import beside, shown
from pipelines.report.plots import PANEL, panel, panels, svg
from pipelines.report.verdict import Comparison, Row, at_cost, compare, divide, interval_of
from pipelines.run.folder import Run
from pipelines.workloads.cvrp.config import Config

POOR = 0.25  # longer: a network that has learnt little
COST, GAP, PAIRED = "core ms", "gap %", "model saves %, 95 %"  # columns of the table
NAME = "mean gap to the reference, %"
MOST_DRAWN = 12  # sets of instances whose tours and costs are drawn; of further sets, only the figures are shown


def sections(config: Config, models: Mapping[str, nn.Module], evaluations: Sequence[Evaluation], run: Run) -> Sections:
    """Return (heading, HTML) pairs: the verdict with tours of the first evaluation, then cost against time."""
    lead = evaluations[0]
    heading, verdict = _verdict(lead)
    others = [(other.split, _verdict(other)[1]) for other in evaluations[1:]]
    first = verdict + panels(_tours(lead)) + (beside(__file__, "rest.html", answers=others) if others else "")
    parts: list[tuple[str, str]] = [(heading, first)]
    for evaluation in evaluations[:MOST_DRAWN]:
        tours = [] if evaluation is lead else _tours(evaluation)
        parts.append((f"Cost against time: {evaluation.split}", panels([_cost_against_time(evaluation.table), *tours])))
    return parts


def _verdict(evaluation: Evaluation) -> tuple[str, Markup]:
    """Return the verdict in a line, and in sentences."""
    last = evaluation.summary["last"]  # the model's last way (with its searches), which comes first
    own, others = divide(evaluation.table, last)
    own = sorted(own, key=lambda row: row["method"] != last)
    judged = at_cost(own[0], others, COST, lambda rival: _against(own[0], rival))
    longer = evaluation.summary["cost"] / own[0]["cost"] - 1  # than after a search, which may not build on it
    poor = f"; the network's own tours are {longer:.0%} longer" if longer >= POOR else ""
    values = {"own": own[0], "judged": judged, "interval": interval_of(own[0], "cost", "± 95 %"), "time": COST}
    saved = evaluation.summary.get("shipped_saves") or (0, 0)
    return judged.heading("core-ms") + poor, beside(__file__, "verdict.html", saved=saved, **values)


def _against(own: Row, rival: Row) -> Comparison:
    """Compare the model with a method, in percent of its costs: instance by instance where the table has that."""
    if saved := rival.get(PAIRED):
        return Comparison(own, rival, sum(saved) / 2, saved)
    found = compare(own, [rival], GAP, "gap 95 %").in_percent(100 + own[GAP])
    # A single instance leaves no doubt.
    return replace(found, interval=[found.gain] * 2) if own["n"] == 1 else found


def _cost_against_time(table: Sequence[Row]) -> Markup:
    """Plot every method's mean gap over its time per instance."""
    figure, axis = panel("milliseconds of CPU time per instance,\nof all threads together", NAME)
    figure.set(figheight=PANEL[1] + 0.18 * len(table), layout_engine="constrained")
    for row in table:
        axis.plot(row[COST], row[GAP], "o", label=row["method"])
    axis.set(xscale="log", yscale="log" if all(row[GAP] > 0 for row in table) else "linear")
    axis.grid(alpha=0.5)
    figure.legend(fontsize=8, loc="outside lower left", frameon=False)
    figures = "; ".join(f"{row['method']}: {shown(row[GAP])} in {row[COST]:.3g} ms" for row in table)
    return svg(figure, f"{NAME} of every method over its time per instance: {figures}")


def _tours(evaluation: Evaluation) -> list[tuple[Markup, str]]:
    """Draw the tours of the best, median and worst instance by gap; returns pictures with their captions."""
    return [_tour(json.loads(line)) for line in evaluation.files[f"{evaluation.split}.tours.jsonl"].splitlines()]


def _tour(drawing: Mapping[str, Any]) -> tuple[Markup, str]:
    figure, locs, routes = Figure(figsize=(4, 4)), drawing["locs"], drawing["routes"]
    ends, back = drawing.get("ends", [0] * len(routes)), 0 if drawing.get("open_routes") else 1
    axis = figure.add_axes((0, 0, 1, 1))
    for depot, route in zip(ends, routes, strict=True):
        path = [locs[node] for node in (depot, *route, *[depot] * back)]
        axis.plot([x for x, _ in path], [y for _, y in path], "-o", linewidth=1.2, markersize=3)
    for depot in {0, *ends}:
        axis.plot(*locs[depot], "s", color="black", markersize=7)
    axis.set_aspect("equal", adjustable="datalim")
    axis.set(xticks=[], yticks=[])
    axis.spines[:].set_color("#cccccc")
    caption = f"{drawing['which']}: {drawing['name']}, cost {drawing['cost']:.4g}"
    if drawing["reference"]:
        caption += f" (reference {drawing['reference']:.4g})"
    seen = f"{len(routes)} routes from the depot through {sum(map(len, routes))} customers"
    return svg(figure, f"{seen}, {caption}"), caption
