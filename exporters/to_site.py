"""Export the models that ship as a site: an index, and a page for each workload that computes in the browser.

It needs no server but one for files, such as GitHub Pages, and opens as files, too.
"""

import base64
import io as memory
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from markupsafe import Markup

from common.disk.files import write_whole
from exporters import manifest, to_web
from exporters.web.packing import Packed, pack
from models import io, shipped
from models.images.comparator.interface import Comparator

Object: TypeAlias = Mapping[str, Any]  # of JSON

MOST_BYTES = 8_000_000
SAID = {
    "cvrp": "Place customers on a map: a network plans the tours of vehicles of limited capacity.",
    "tinystories": "Begin a story: a language model that fits a microcontroller goes on with it.",
    "crypto": "Look at candles of a simulated market: three experts say what they expect next.",
    "bep": "Write a plan for building information management: a model that has read such plans suggests the words.",
    "lmol": "Drop in images: a network that compares two at a time puts them in order.",
}
CANDLES, IMAGES = 40, 5
SVG = Markup('<svg viewBox="-3 -3 {} {}" role="img" aria-label="{}">{}</svg>')
CARD = Markup(
    '<section class="card"><h2><a href="{}/index.html">{}</a></h2><p>{}</p>{}'
    '<p class="note">{}, {:,} parameters</p></section>'
)


def export_shipped(out: Path) -> str:
    """Write the site into `out`. Raises ValueError for a folder with other files, and for a site that is too large."""
    strange = [path.name for path in out.glob("*") if path.name not in (*SAID, to_web.PAGE, ".nojekyll")]
    if strange:
        raise ValueError(f"{out} holds other files than a site's, such as {strange[0]}; give another folder")
    cards, lines = [], []
    for workload, said in SAID.items():
        if not (names := shipped.names(workload)):
            continue
        folder = shipped.FOLDER / names[-1]  # of several, the one for inputs of most sizes
        model = io.load(folder)
        packed = pack(model, folder)
        lines.append(to_web.write(packed, model, folder, folder, out / workload, back="../index.html"))
        (out / workload / manifest.NAME).unlink()  # the page carries and proves all that it needs
        count = sum(parameter.numel() for parameter in model.parameters())
        cards.append(CARD.format(workload, packed.heading, said, still(model, packed), folder.name, count))
    page = to_web.filled("site.html", style=to_web.style(), cards=Markup("\n").join(cards))
    write_whole(out / to_web.PAGE, page.encode())
    write_whole(out / ".nojekyll", b"")
    size = sum(path.stat().st_size for path in out.rglob("*") if path.is_file())
    if size > MOST_BYTES:
        raise ValueError("\n".join([f"the site has {size:,} bytes, more than {MOST_BYTES:,}", *lines]))
    return "\n".join([*lines, f"{out / to_web.PAGE}: {len(cards)} models, {size:,} bytes in all"])


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
