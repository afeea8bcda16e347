"""Pictures made of text: a story on the emulated chip, and a completed form."""

import tempfile
import textwrap
from pathlib import Path

from common.foreign_text import from_csv
from exporters import to_rp2040
from tests.exporters.rp2040 import chip
from tests.pictures.page import document, template

MODEL = Path(__file__).resolve().parents[2] / "models/pretrained/tinystories-real"
TYPED = ("/temperature 0.5", "/seed 1", "once upon a time, there was a little dog named max")
COLUMNS, LINE = 84, 19  # characters of a terminal's line, pixels from one to the next
FORM = (
    "projectDescription",
    "bimObjectives",
    "rolesResponsibilities",
    "clashDetection",
    "cdeWorkflow",
    "asbuiltRequirements",
)


def story() -> str:
    """Draw a terminal: the UF2 of the model that ships boots on the emulated chip and is asked for a story."""
    with tempfile.TemporaryDirectory() as folder:
        to_rp2040.export(MODEL, MODEL, Path(folder))
        said = chip.run(Path(folder, "story.uf2").read_bytes(), list(TYPED)).removesuffix("> ").strip("\n")
    lines = []
    for line in said.splitlines():
        typed = line.startswith("> ")
        lines += [(part, typed) for part in textwrap.wrap(line, COLUMNS) or [""]]
    body = template("terminal.svg", lines=lines, pitch=LINE, title="UART of the RP2040, 115200 baud (emulated)")
    label = (
        f"A terminal at the serial port of an emulated RP2040: {' / '.join(line for line in said.splitlines() if line)}"
    )
    return document(760, 56 + LINE * len(lines), label, body)


def plan(run: Path) -> str:
    """Draw some fields of a form: what the user wrote in one weight, in the other what the model suggests first."""
    rows = from_csv((run / "evaluations/test.suggestions.csv").read_text())
    chosen = {row["field"]: row for row in rows if row["rank"] in ("0", "1")}  # 0: nothing fits
    width, top, fields = 760, 14, []
    for name in FORM:
        row = chosen[name]
        lines = _wrapped(f"{row['question']} ", row["suggestion"] or "nothing of yours fits", 88)
        source = f"{row['document']}, line {row['line']}" if row["document"] else ""
        fields.append({"name": name, "source": source, "top": top, "height": 16 + 20 * len(lines), "lines": lines})
        top += 24 + 16 + 20 * len(lines) + 8
    told = "; ".join(f"{chosen[name]['question']} {chosen[name]['suggestion']}" for name in FORM)
    body = template("form.svg", fields=fields, width=width)
    return document(width, top + 8, f"A form whose fields a model completed: {told}", body)


def _wrapped(prompt: str, completion: str, columns: int) -> list[list[tuple[str, bool]]]:
    """Break a field's text into lines of (text, whether the user wrote it)."""
    lines, at = [], 0
    text = (prompt + completion).replace("\n", " ")
    for line in textwrap.wrap(text, columns, drop_whitespace=False):
        own = line[: max(0, len(prompt) - at)]
        lines.append([(own, True), (line[len(own) :] if own else line.strip(), False)])
        at += len(line)
    return lines
