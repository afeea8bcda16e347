"""Plots as inline SVG: any matplotlib figure, and the curves of a training."""

import io
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure


def curves(metrics: Sequence[Mapping[str, Any]]) -> str:
    """Plot train/<name> and val/<name> over steps, with one panel for each name that was logged in training."""
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


def svg(figure: Figure) -> str:
    """Return a matplotlib figure as inline SVG whose text stays text."""
    buffer = io.StringIO()
    with matplotlib.rc_context({"svg.fonttype": "none"}):
        figure.savefig(buffer, format="svg", bbox_inches="tight")
    text = buffer.getvalue()
    return text[text.index("<svg") :]
