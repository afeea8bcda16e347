"""Export a model as one HTML page that computes in the browser: it needs no server and no network, and opens as a file.

The kernels in exporters/web compute what PyTorch does. The page carries a few questions with PyTorch's answers, asks
its kernel when it opens, and says what came out; the tests open it in a browser.
"""

import base64
import hashlib
import json
import re
from pathlib import Path

from markupsafe import Markup, escape

from common import browser
from common.files import write_whole
from exporters import manifest
from exporters.to_safetensors import require_finite, title
from exporters.web.packing import pack
from models import io

FOLDER = Path(__file__).parent / "web"
PAGE = "index.html"
HIDDEN, SHOWN = '<p class="web" hidden>', '<p class="web">'  # the link in a report.html


def export(run: Path, model_folder: Path, out: Path) -> str:
    """Write the page and the manifest; show the link in the run's report, if there is one."""
    model = io.load(model_folder)
    require_finite(model, model_folder)
    packed = pack(model, run)
    if out.resolve() == model_folder.resolve():
        raise ValueError(f"--out {out} is the model's own folder; give another")
    files = {name: base64.b64encode(content).decode() for name, content in packed.files.items()}
    about = {**packed.about, "panel": f"{packed.panel}Panel"}
    carried = {"config": packed.config, "about": about, "expected": packed.expected, "files": files}
    scripts = [browser.FOLDER / "elements.js", browser.FOLDER / f"{packed.panel}.js"]
    scripts += [FOLDER / name for name in (*packed.kernels, "page.js")]
    script = "\n".join(path.read_text() for path in scripts)
    style = "".join((browser.FOLDER / name).read_text() for name in ("base.css", "panels.css"))
    page = _filled(
        (FOLDER / "page.html").read_text(),
        title=escape(title(run)),
        heading=escape(packed.heading),
        said=escape(packed.said),
        style=Markup(style),
        script=Markup(script),
        script_hash=f"sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}",
        # No text in it can end the element that holds it.
        model=Markup(json.dumps(carried, allow_nan=False).replace("<", "\\u003c")),
    )
    manifest.begin(out)
    write_whole(out / PAGE, page.encode())
    num_parameters = sum(parameter.numel() for parameter in model.parameters())
    facts = {
        "format": "web",
        "run": title(run),
        "source": model_folder.relative_to(run).as_posix(),
        "num_parameters": num_parameters,
        "model_bytes": {name: len(content) for name, content in packed.files.items()},
        "expected": packed.expected,
    }
    size = manifest.finish(out, [PAGE], facts)
    report = run / "report.html"
    if out.resolve() == (run / "exports/web").resolve() and report.is_file():
        write_whole(report, report.read_bytes().replace(HIDDEN.encode(), SHOWN.encode()))
    return f"{out / PAGE}: {num_parameters:,} parameters, {size:,} bytes; open it in a browser"


def _filled(template: str, **values: str) -> str:
    return re.sub(r"\{\{ (\w+) \}\}", lambda found: values[found[1]], template)
