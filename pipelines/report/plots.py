"""Plots as inline SVG in the page's colours, whose labelled lines show their values under the pointer (page.js)."""

import io
import re
import warnings
import zlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

import matplotlib
import numpy as np
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.text import Text

from pipelines.report.markup import document, fragment, printable_lines, shown
from pipelines.report.verdict import Row, interval_of

# matplotlib's colours -> variables of base.css, so that a plot is light or dark as the page is.
VARIABLES = {
    "#000000": "ink",
    "#ffffff": "paper",
    "#808080": "muted",
    "#b0b0b0": "line",
    "#cccccc": "line",
    **{to_hex(colour): f"c{number}" for number, colour in enumerate(matplotlib.color_sequences["tab10"])},
}
NO_METADATA = dict.fromkeys(("Creator", "Date", "Format", "Type"))
PANEL = (3.6, 2.5)  # inches: as wide as a phone's screen, with legible text
MOST_POINTS = 400  # of a curve of training
UNITS = {"examples_per_s": "examples/s", "bits_per_character": "bits/character"}

# Pictures of the page as arrays, where `collected` asks for them.
_collected: ContextVar[dict[str, np.ndarray] | None] = ContextVar("_collected", default=None)


@contextmanager
def collected(wanted: bool = True) -> Iterator[dict[str, np.ndarray]]:
    """Yield a dict of every figure drawn within the block, if `wanted`: {number and label: (H, W, 3) uint8}."""
    pictures: dict[str, np.ndarray] = {}
    token = _collected.set(pictures if wanted else None)
    try:
        yield pictures
    finally:
        _collected.reset(token)


def panels(pictures: Sequence[Markup | tuple[Markup, str]]) -> Markup:
    """Return pictures, each alone or with a caption, side by side as far as the page is wide."""
    return document("figures.html", pictures=[(each, "") if isinstance(each, Markup) else each for each in pictures])


def curves(metrics: Sequence[Mapping[str, float]]) -> Markup:
    """Plot train/<name> and val/<name> over steps, with one panel for each name that was logged in training."""
    names = dict.fromkeys(key.partition("/")[2] for row in metrics for key in row if key.startswith(("train/", "val/")))
    return panels([_curve(name, metrics) for name in (*names, "learning_rate", "examples_per_s")])


def panel(x: str, y: str, title: str = "") -> tuple[Figure, Axes]:
    """Return a figure of one panel and its axes."""
    figure = Figure(figsize=PANEL)
    figure.subplots_adjust(0.16, 0.17, 0.95, 0.9)  # a layout engine takes half the time of a page
    axis = figure.subplots()
    axis.set_title(title, fontsize=9)
    axis.set_xlabel(x, fontsize=8)
    axis.set_ylabel(y, fontsize=8)
    axis.tick_params(which="both", labelsize=8)
    return figure, axis


def reliability(bins: Sequence[Mapping[str, float]], probability: str, share: str, title: str) -> Figure:
    """Plot accuracy by probability of answers among three classes; a point's area is its bin's `n`."""
    figure, axis = panel(probability, share, title)
    most = max((row["n"] for row in bins), default=1)
    confidence, accuracy = np.array([[row["confidence"], row["accuracy"]] for row in bins], float).reshape(-1, 2).T
    axis.plot([1 / 3, 1], [1 / 3, 1], color="black", linewidth=0.8)
    axis.plot(confidence, accuracy, linewidth=1, label=share)
    axis.scatter(confidence, accuracy, s=[10 + 90 * row["n"] / most for row in bins])
    axis.set(xlim=(0.3, 1.02), ylim=(0, 1.02))
    return figure


def _curve(name: str, metrics: Sequence[Mapping[str, float]]) -> Markup:
    figure, axis = panel("step (updates of the model)", UNITS.get(name, name.replace("_", " ")))
    for key, style in ((f"train/{name}", "-"), (f"val/{name}", "o-"), (name, "-")):
        if points := [(entry["step"], entry[key]) for entry in metrics if entry.get(key) is not None]:
            axis.plot(*thinned(np.array(points)).T, style, label=key, linewidth=1, markersize=3)
    if len(axis.lines) > 1:
        axis.legend(fontsize=8)
    return svg(figure)


def thinned(points: np.ndarray, most: int = MOST_POINTS) -> np.ndarray:
    """Return at most about `most` of the points (N, 2): the lowest and the highest of each stretch of the curve."""
    if len(points) <= most:
        return points
    kept = {0, len(points) - 1}
    for part in np.array_split(np.arange(len(points)), most // 2):
        kept |= {part[points[part, 1].argmin()], part[points[part, 1].argmax()]}
    return points[sorted(kept)]


def comparison(rows: Sequence[Row], own: Sequence[Row], figure: str, spread: str, better: str) -> Markup:
    """Plot a table's column `figure` with its intervals, as in `verdict.compare`, a line per row; `own` stand out."""
    name = next(iter(rows[0]))
    rows = [row for row in rows if row.get(figure) is not None]
    drawn = Figure(figsize=(PANEL[0], 0.6 + 0.3 * len(rows)), layout="constrained")
    axis = drawn.subplots()
    for place, row in enumerate(rows):
        colour = "tab:blue" if row in own else "gray"
        if (interval := interval_of(row, figure, spread)) is not None:
            axis.plot(interval, [place, place], color=colour, linewidth=2)
        axis.plot(row[figure], place, "o", color=colour, markersize=5)
        text = f"{shown(row[name])}: {shown(row[figure])}"
        axis.annotate(text, (0, place), (2, 4), ("axes fraction", "data"), "offset points", fontsize=8)
    axis.set(ylim=(len(rows) - 0.5, -0.9), yticks=[])
    axis.spines[["left", "right", "top"]].set_visible(False)
    axis.set_xlabel(f"{figure} with {spread.strip('± ')} intervals; {better}", fontsize=8)
    axis.tick_params(axis="x", labelsize=8)
    axis.grid(axis="x", alpha=0.5)
    values = "; ".join(f"{shown(row[name])} {shown(row[figure])}" for row in rows)
    return svg(drawn, f"{figure}, {better}: {values}")


def svg(figure: Figure, label: str | None = None, trimmed: bool = True) -> Markup:
    """Return a matplotlib figure as inline SVG whose text stays text, dollars and backslashes in names included.

    `label` describes the plot; the default names the axes and the ends of their lines. Axes, texts and matplotlib's
    default colours, tab:blue to tab:cyan, are the page's. Only text outside the margins needs `trimmed`, a measurement.
    """
    _without_mathtext(figure)
    label = label or _description(figure)
    buffer = io.StringIO()
    # The salt makes ids depend on content alone.
    settings = matplotlib.rc_context({"svg.fonttype": "none", "path.simplify": False, "svg.hashsalt": "plot"})
    with settings, warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"Glyph \d+ .*missing from font")  # the reader's fonts are used
        lines = _labelled_lines(figure)
        box: object = "tight" if trimmed else None
        if trimmed and figure.get_layout_engine() is None:  # "tight" would draw all of it once more
            box = figure.get_tightbbox(FigureCanvasAgg(figure).get_renderer()).padded(0.02)
        figure.savefig(buffer, format="svg", bbox_inches=box, pad_inches=0.02, metadata=NO_METADATA)
    if (pictures := _collected.get()) is not None:
        canvas = FigureCanvasAgg(figure)
        canvas.draw()
        named = re.sub(r"[^\w.,;()-]+", " ", label)[:60]
        pictures[f"{len(pictures):02} {named}"] = np.asarray(canvas.buffer_rgba())[..., :3].copy()
    text = re.sub(r"(?s)\A.*?(?=<svg)|<style.*?</style>", "", buffer.getvalue(), count=2)
    text = _tidied(text, [line.get_gid() for line in lines])
    for line in lines:
        text = text.replace(f'<g id="{line.get_gid()}">', _with_values(line))
    head = fragment('<svg class="plot" role="img" aria-label="{{ label }}"', label=printable_lines(label))
    return Markup(text.replace("<svg", head, 1))


def _without_mathtext(figure: Figure) -> None:
    """Switch mathtext off, which file names could trigger, except in ticks of log axes, which use it."""
    for text in figure.findobj(Text):
        text.set_parse_math(False)
        text.set_text(printable_lines(text.get_text()))
    for axis in (axis for axes in figure.axes for axis in (axes.xaxis, axes.yaxis) if axis.get_scale() == "log"):
        for label in axis.get_ticklabels(which="both"):
            label.set_parse_math(True)


def _description(figure: Figure) -> str:
    parts = []
    for axes in figure.axes:
        names = (axes.get_title(), f"{axes.get_ylabel()} over {axes.get_xlabel()}")
        parts += [name for name in names if name not in ("", " over ")]
        for line in _with_label(axes.lines):
            if len(values := np.asarray(line.get_ydata(orig=False))):
                parts.append(f"{line.get_label()} from {shown(float(values[0]))} to {shown(float(values[-1]))}")
    return "; ".join(parts) or "plot"


def _with_label(lines: Sequence[Line2D]) -> list[Line2D]:
    return [line for line in lines if not str(line.get_label()).startswith("_")]


def _labelled_lines(figure: Figure) -> list[Line2D]:
    """Give the labelled lines ids for the SVG, and all their points."""
    lines = [line for axes in figure.axes for line in _with_label(axes.lines) if line.get_linestyle() != "None"]
    for number, line in enumerate(lines):
        line.set_gid(f"values-{number}")
        line.recache(always=True)
    return lines


def _with_values(line: Line2D) -> Markup:
    """Return the tag of a line's group, with its values as text for the page's script."""
    places = np.asarray(line.get_xydata())
    drawn = np.isfinite(places).all(1)
    xs, ys = np.asarray(line.get_xdata(orig=True))[drawn], places[drawn, 1]
    xs = xs.astype("datetime64[m]") if np.issubdtype(xs.dtype, np.datetime64) else xs
    tag = '<g data-name="{{ name }}" data-x="{{ xs }}" data-y="{{ ys }}">'
    return fragment(tag, name=line.get_label(), xs="\n".join(map(shown, xs)), ys="\n".join(map(shown, ys)))


def _tidied(text: str, kept: Collection[str | None]) -> str:
    """Return matplotlib's SVG with the page's colours and font and unique ids, without unused ones but the `kept`."""
    prefix = f"plot{zlib.crc32(text.encode())}-"  # ids of all figures of a page must differ
    used = set(re.findall(r'(?:href="#|url\(#)([^")]+)', text))

    def hundredths(number: re.Match[str]) -> str:
        return f"{float(number[0]):.2f}".rstrip("0").rstrip(".")

    def own(found: re.Match[str]) -> str:
        return f' id="{prefix}{found[1]}"' if found[1] in used else found[0] if found[1] in kept else ""

    def tidy(found: re.Match[str]) -> str:
        tag = re.sub(
            r"#[0-9a-f]{6}\b", lambda hex: f"var(--{VARIABLES[hex[0]]})" if hex[0] in VARIABLES else hex[0], found[0]
        )
        tag = re.sub(r"font-family: [^;\"]*(; )?| transform=\"rotate\(-0 [^)]*\)\"", "", tag)
        tag = re.sub(r' (d|x|y)="[^"]*"', lambda places: re.sub(r"\d+\.\d{3,}", hundredths, places[0]), tag)
        return re.sub(r'(href="#|url\(#)', rf"\g<1>{prefix}", re.sub(r' id="([^"]*)"', own, tag))

    return re.sub(r"<[^!>][^>]*>", tidy, text)
