"""Plots as inline SVG: any matplotlib figure, and the curves of a training."""

import io
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from matplotlib.text import Text

from common.foreign_text import printable


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
    """Return a matplotlib figure as inline SVG whose text stays text, dollars and backslashes in names included."""
    buffer = io.StringIO()
    _take_text_as_it_is(figure)
    with matplotlib.rc_context({"svg.fonttype": "none"}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"Glyph \d+ .*missing from font")  # the reader's fonts are used
        figure.savefig(buffer, format="svg", bbox_inches="tight")
    text = buffer.getvalue()
    return text[text.index("<svg") :]


def _take_text_as_it_is(figure: Figure) -> None:
    """Switch mathtext off, which names of files would spoil, except in the ticks that matplotlib writes in it."""
    for text in figure.findobj(Text):
        text.set_parse_math(False)
        text.set_text("\n".join(printable(line) for line in text.get_text().split("\n")))
    for axis in (axis for axes in figure.axes for axis in (axes.xaxis, axes.yaxis) if axis.get_scale() == "log"):
        for label in axis.get_ticklabels(which="both"):
            label.set_parse_math(True)
