"""Export the models that ship as a site: an index, and a page for each workload that computes in the browser.

It needs no server but one for files, such as GitHub Pages, and opens as files, too.
"""

import json
from pathlib import Path

from common.disk.files import write_text
from exporters import to_web
from exporters.web.packing import pack
from models import io, shipped

MOST_BYTES = 8_000_000
SAID = json.loads((to_web.FOLDER / "cards.json").read_text())  # workload -> the sentence on its card
PLAIN, TEXT = ".nojekyll", "Written by `exporters site`.\n"  # for GitHub; its text tells a site of ours from the user's
STILLS = to_web.FOLDER / "stills"  # a figure for each model that ships, which `make pictures` draws


def export_shipped(out: Path) -> str:
    """Write the site into `out`. Raises ValueError for a folder with other files, and for a site that is too large."""
    own = (*SAID, to_web.PAGE, PLAIN) if (out / PLAIN).is_file() and (out / PLAIN).read_text() == TEXT else ()
    if strange := [path.name for path in out.glob("*") if path.name not in own]:
        raise ValueError(f"{out} holds files that are not a site's, such as {strange[0]}; give another folder")
    write_text(out / PLAIN, TEXT)
    cards, lines = [], []
    for workload, said in SAID.items():
        if not (names := shipped.names(workload)):
            continue
        folder = shipped.FOLDER / names[-1]  # of several, the one for inputs of most sizes
        model = io.load(folder)
        packed, page = pack(model, folder), out / workload / to_web.PAGE
        write_text(page, to_web.page(packed, folder, back="../index.html"))
        lines.append(f"{page}: {page.stat().st_size:,} bytes")
        count = sum(parameter.numel() for parameter in model.parameters())
        cards.append((workload, packed.heading, said, folder.name, count))
    write_text(out / to_web.PAGE, to_web.TEMPLATES.get_template("site.html").render(cards=cards))
    if (size := sum(path.stat().st_size for path in out.rglob("*") if path.is_file())) > MOST_BYTES:
        raise ValueError("\n".join([f"the site has {size:,} bytes, more than {MOST_BYTES:,}", *lines]))
    return "\n".join([*lines, f"{out / to_web.PAGE}: {len(cards)} models, {size:,} bytes in all"])
