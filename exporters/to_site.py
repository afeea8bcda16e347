"""Export the models that ship as a site: an index, and a page for each workload that computes in the browser.

It needs no server but one for files, such as GitHub Pages, and opens as files, too.
"""

import json
from pathlib import Path

from common.disk.files import write_whole
from exporters import export_folder, to_web
from exporters.web.packing import pack
from models import io, shipped

MOST_BYTES = 8_000_000
SAID = json.loads((to_web.FOLDER / "cards.json").read_text())  # of each workload, on its card
STILLS = to_web.FOLDER / "stills"  # a figure for each model that ships, which `make pictures` draws


def export_shipped(out: Path) -> str:
    """Write the site into `out`. Raises ValueError for a folder with other files, and for a site that is too large."""
    if strange := [path.name for path in out.glob("*") if path.name not in (*SAID, to_web.PAGE, ".nojekyll")]:
        raise ValueError(f"{out} holds other files than a site's, such as {strange[0]}; give another folder")
    cards, lines = [], []
    for workload, said in SAID.items():
        if not (names := shipped.names(workload)):
            continue
        folder = shipped.FOLDER / names[-1]  # of several, the one for inputs of most sizes
        model = io.load(folder)
        packed = pack(model, folder)
        (out / workload / to_web.PAGE).unlink(missing_ok=True)  # of an earlier site, as the check above has it
        lines.append(to_web.write(packed, model, folder, folder, out / workload, back="../index.html"))
        (out / workload / export_folder.NAME).unlink()  # the page carries and proves all that it needs
        count = sum(parameter.numel() for parameter in model.parameters())
        cards.append((workload, packed.heading, said, folder.name, count))
    write_whole(out / to_web.PAGE, to_web.TEMPLATES.get_template("site.html").render(cards=cards).encode())
    write_whole(out / ".nojekyll", b"")
    if (size := sum(path.stat().st_size for path in out.rglob("*") if path.is_file())) > MOST_BYTES:
        raise ValueError("\n".join([f"the site has {size:,} bytes, more than {MOST_BYTES:,}", *lines]))
    return "\n".join([*lines, f"{out / to_web.PAGE}: {len(cards)} models, {size:,} bytes in all"])
