"""A picture for itself: an SVG with the colours of the reports, light or dark as its reader's screen is."""

import re
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

from matplotlib.figure import Figure

from common import browser
from pipelines.report import plots
from pipelines.report.markup import fragment

CSS = (browser.FOLDER / "base.css").read_text()
BOTH = re.match(r"(:root \{.*?\n\})\n(@media screen and \(prefers-color-scheme: dark\) \{.*?\n\})\n", CSS, re.DOTALL)
FONT = "system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif"
MONO = "ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace"
QUOTED = {'"': "&quot;", "\n": "&#10;"}
MARGIN = 12  # around a plot, in its points
CLASSES = f"""
text {{ font-family: {FONT}; fill: var(--ink) }}
.mono {{ font-family: {MONO} }}
.bold {{ font-weight: 600 }}
.muted {{ fill: var(--muted) }}
.blue {{ fill: var(--c0) }}
.soft {{ fill: var(--soft); stroke: var(--line) }}
.card {{ fill: var(--paper); stroke: var(--c0) }}
"""


def template(name: str, **values: Any) -> str:
    """Return what a template of this folder gives with `values`."""
    return str(fragment(Path(__file__).with_name(name).read_text(), **values))


def document(width: float, height: float, label: str, body: str) -> str:
    """Return an SVG of that size on a card of its own, which is told as `label` to those who cannot see it."""
    light, dark = BOTH.groups()
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" '
        f'width="{width:g}" height="{height:g}" viewBox="0 0 {width:g} {height:g}" role="img" '
        f'aria-label="{escape(label, QUOTED)}">\n<title>{escape(label)}</title>\n'
        f"<style>\n{light}\n{dark.replace('screen and ', '')}{CLASSES}</style>\n"
        f'<rect width="100%" height="100%" rx="8" style="fill: var(--paper)"/>\n{body}\n</svg>\n'
    )


def standing_alone(figure: Figure, label: str) -> str:
    """Return a plot of the reports as a picture for itself."""
    plot = str(plots.svg(figure, label))
    box = re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', plot)
    width, height = map(float, box.groups())
    body = re.sub(r"<g data-name=.*?>", "<g>", plot[plot.index(">") + 1 : plot.rindex("</svg>")], flags=re.DOTALL)
    body = f'<g transform="translate({MARGIN} {MARGIN})" style="fill: var(--ink)" stroke-linejoin="round">{body}</g>'
    return document(width + 2 * MARGIN, height + 2 * MARGIN, label, body)
