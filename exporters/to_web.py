"""Export a model as one HTML page that computes in the browser: it needs no server and no network, and opens as a file.

The kernels in exporters/web compute what PyTorch does. The page carries a few inputs with PyTorch's answers, runs its
kernel on them when it opens, and reports whether the answers agree; the tests open it in a browser.
"""

import base64
import gzip
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

from jinja2 import FileSystemLoader
from markupsafe import Markup

from common import browser
from common.disk.files import write_whole
from exporters import export_folder
from exporters.cards import identity, title
from exporters.web.packing import Packed, pack
from models import io

FOLDER = Path(__file__).parent / "web"
PAGE = "index.html"
HIDDEN, SHOWN = '<p class="web" hidden>', '<p class="web">'  # the link in a report.html
TEMPLATES = browser.TEMPLATES(loader=FileSystemLoader([FOLDER, browser.FOLDER]), keep_trailing_newline=True)


def export(run: Path, model_folder: Path, out: Path) -> str:
    """Write the page and the manifest; show the link in the run's report, if there is one."""
    packed = pack(model := io.load(model_folder), run)
    export_folder.begin(out, {PAGE: page(packed, run).encode()}, model_folder)
    facts = identity("web", run, model_folder, model)
    sizes = {name: len(content) for name, content in packed.files.items()}
    size = export_folder.finish(out, [PAGE], {**facts, "model_bytes": sizes, "expected": packed.expected})
    _link(run, out)
    return f"{out / PAGE}: {facts['num_parameters']:,} parameters, {size:,} bytes; open it in a browser"


def page(packed: Packed, run: Path, back: str = "") -> str:
    """Return the page, with a link `back` to others if there are any."""
    files = {name: base64.b64encode(gzip.compress(content, mtime=0)).decode() for name, content in packed.files.items()}
    about = {**packed.about, "panels": [f"{name}Panel" for name in (packed.panel, *packed.further_panels) if name]}
    carried = {"config": packed.config, "about": about, "expected": packed.expected, "files": files}
    scripts = [browser.FOLDER / f"{name}.js" for name in ("elements", packed.panel) if name]
    scripts += [FOLDER / name for name in (*packed.kernels, "page.js")]
    script = "\n".join(path.read_text() for path in scripts)
    return TEMPLATES.get_template("page.html").render(
        title=title(run),
        heading=packed.heading,
        said=packed.said,
        back=back,
        script=Markup(script),
        script_hash=f"sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}",
        # No text in it can end the element that holds it.
        model=Markup(json.dumps(carried, allow_nan=False).replace("<", "\\u003c")),
    )


def export_together(run: Path, folders: Mapping[Path, Path], out: Path) -> str:
    """Write a page for each member of a run, {member: model folder}, and one of links to them."""
    lines = [export(member, model_folder, out / member.name) for member, model_folder in folders.items()]
    page = TEMPLATES.get_template("links.html").render(title=title(run), names=[member.name for member in folders])
    write_whole(out / PAGE, page.encode())
    _link(run, out)
    return "\n".join([*lines, f"{out / PAGE}: links to {len(folders)} pages"])


def _link(run: Path, out: Path) -> None:
    report = run / "report.html"
    if out.resolve() == (run / "exports/web").resolve() and report.is_file():
        write_whole(report, report.read_bytes().replace(HIDDEN.encode(), SHOWN.encode()))
