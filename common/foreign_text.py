"""Untrusted text, such as names of files: escaped for terminals and for spreadsheets."""

import codecs
import csv
import io
import re
from collections.abc import Iterable
from pathlib import Path

# Cells that a spreadsheet would evaluate, with any leading apostrophes, so that `unguarded` undoes `to_csv`.
FORMULA = re.compile("'*[=+\\-@\t\r\n\uff1d\uff0b\uff0d\uff20]")


def printable(text: str, most: int | None = None) -> str:
    """Return `text`, cut to `most` characters, with escapes for those that a terminal does not print."""
    if most is not None and len(text) > most:
        text = f"{text[: most - 3]}..."
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def to_csv(columns: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    """Return a CSV whose cells no spreadsheet runs: text that looks like a formula gets an apostrophe before it."""
    text = io.StringIO()
    for row in (columns, *rows):
        cells = [f"'{cell}" if isinstance(cell, str) and _is_formula(cell) else cell for cell in row]
        # Python leaves a carriage return without quotes, which ends the row for a spreadsheet.
        returns = any(isinstance(cell, str) and "\r" in cell for cell in cells)
        writer = csv.writer(text, lineterminator="\n", quoting=csv.QUOTE_NONNUMERIC if returns else csv.QUOTE_MINIMAL)
        writer.writerow(cells)
    return text.getvalue()


def from_csv(text: str) -> list[dict[str, str]]:
    """Return the rows of a CSV of `to_csv`, by column."""
    columns, *rows = [[unguarded(cell) for cell in row] for row in csv.reader(io.StringIO(text, newline=""))]
    return [dict(zip(columns, row, strict=True)) for row in rows]


def unguarded(cell: str) -> str:
    """Return a cell's text without the apostrophe that `to_csv` puts before formulas."""
    return cell[1:] if cell.startswith("'") and _is_formula(cell) else cell


def _is_formula(cell: str) -> bool:
    if not FORMULA.match(cell):
        return False
    try:
        float(cell.lstrip("'"))
    except ValueError:
        return True
    return False


def other_encoding(path: Path) -> str | None:
    """Return a text file's encoding: utf-16, by its BOM, cp1252 if no non-ASCII letter is valid UTF-8, else None."""
    decoder, is_ascii = codecs.getincrementaldecoder("utf-8")("ignore"), True
    with path.open("rb") as file:
        if file.read(2) in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
            return "utf-16"
        file.seek(0)
        while chunk := file.read(1 << 20):  # a whole file would be twice its size in memory
            if not decoder.decode(chunk).isascii():
                return None
            is_ascii = is_ascii and chunk.isascii()
    return None if is_ascii else "cp1252"
