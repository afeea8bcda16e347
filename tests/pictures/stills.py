"""Figures on the cards of the site: an answer of each model that ships, into exporters/web/stills."""

import base64
import io as memory
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from markupsafe import Markup

from common.disk.files import write_whole
from exporters.to_site import SAID, STILLS
from exporters.web.packing import Packed, pack
from models import io, shipped
from models.images.comparator.interface import Comparator

Object: TypeAlias = Mapping[str, Any]  # of JSON

CANDLES, IMAGES = 40, 5
SVG = Markup('<svg viewBox="-3 -3 {} {}" role="img" aria-label="{}">{}</svg>')


def write() -> None:
    """Write a figure of the model on each card."""
    for workload in SAID:
        path = STILLS / f"{shipped.names(workload)[-1]}.html"
        write_whole(path, of(shipped.FOLDER / path.stem).encode())


def of(folder: Path) -> str:
    """Return the figure of a model's folder."""
    model = io.load(folder)
    return f"{still(model, pack(model, folder))}\n"


def still(model: io.Model, packed: Packed) -> Markup:
    """Return a figure of an answer that PyTorch gave to one of the page's own questions; empty for unknown kinds."""
    for asked in reversed(packed.expected):
        given, output = asked["arguments"], asked["output"]
        for name, draw in DRAWN.items():
            if isinstance(output, Mapping) and isinstance(given, Sequence) and name in output:
                return draw(given[0], output)
    return _ranked(model) if isinstance(model, Comparator) and len(model.reference_images) else Markup()


def _tours(given: Object, output: Object) -> Markup:
    places = [(100 * x, 100 - 100 * y) for x, y in (given["depot"], *given["customers"])]
    lines = []
    for number, route in enumerate(output["routes"]):
        stops = "L".join(f"{x:.1f} {y:.1f}" for x, y in (places[stop] for stop in (0, *route, 0)))
        lines.append(f'<path d="M{stops}" fill="none" stroke="var(--c{number % 10})"/>')
    dots = [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="1.4" fill="var(--ink)"/>' for x, y in places[1:]]
    depot = f'<rect x="{places[0][0] - 2:.1f}" y="{places[0][1] - 2:.1f}" width="4" height="4" fill="var(--c1)"/>'
    said = f"{len(output['routes'])} tours to {len(places) - 1} customers, {output['cost']:.2f} long"
    return _figure(SVG.format(106, 106, said, Markup("".join((*lines, *dots, depot)))), said)


def _written(given: Object, output: Object) -> Markup:
    text = Markup('<p class="written"><strong>{}</strong>{}</p>').format(given["prompt"], output["text"])
    return _figure(text, f"Written by the model{' after the words in bold' if given['prompt'] else ''}")


def _candles(given: Object, output: Object) -> Markup:
    rows = list(zip(*(given["candles"][name] for name in ("open", "high", "low", "close")), strict=True))[-CANDLES:]
    least, most = min(row[2] for row in rows), max(row[1] for row in rows)
    drawn = []
    for number, row in enumerate(rows):
        first, high, low, last = (100 - 100 * (price - least) / (most - least) for price in row)
        x, colour = (number + 0.5) * 200 / len(rows), "var(--good)" if last <= first else "var(--bad)"
        drawn.append(
            f'<path d="M{x:.1f} {high:.1f}V{low:.1f}" stroke="{colour}"/>'
            f'<rect x="{x - 1.6:.1f}" y="{min(first, last):.1f}" width="3.2" height="{abs(last - first) + 0.5:.1f}" '
            f'fill="{colour}"/>'
        )
    chances = ", ".join(f"{name} {chance:.0%}" for name, chance in output["probabilities"].items())
    return _figure(
        SVG.format(206, 106, f"{len(rows)} candles", Markup("".join(drawn))), f"Next, says the model: {chances}"
    )


def _ranked(model: Comparator) -> Markup:
    from PIL import Image

    order = model.reference_scores.argsort(descending=True).tolist()
    chosen = [order[place * (len(order) - 1) // (IMAGES - 1)] for place in range(IMAGES)]
    shown = []
    for number in chosen:
        pixels = model.reference_images[number].permute(1, 2, 0).squeeze(-1).numpy()
        Image.fromarray(pixels).save(file := memory.BytesIO(), "PNG")
        shown.append(
            Markup('<img src="data:image/png;base64,{}" alt="score {:.1f}">').format(
                base64.b64encode(file.getvalue()).decode(), model.reference_scores[number].item()
            )
        )
    picture = Markup('<div class="row">{}</div>').format(Markup("").join(shown))
    return _figure(picture, f"By {model.config.attribute}, highest first")


def _figure(picture: Markup, said: str) -> Markup:
    return Markup("<figure>{}<figcaption>{}</figcaption></figure>").format(picture, said)


DRAWN = {"routes": _tours, "text": _written, "probabilities": _candles}  # by what an answer has
