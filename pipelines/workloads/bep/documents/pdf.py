"""The text of PDF files, page by page."""

import io
import logging
import re
import sys
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from logging.handlers import BufferingHandler
from statistics import fmean, median
from typing import TYPE_CHECKING

from common.errors import UserError
from pipelines.workloads.bep.documents import refusing, too_large

if TYPE_CHECKING:
    from pypdf import PageObject

SHOWS_TEXT = (b"Tj", b"TJ", b"'", b'"')
APART = 100  # points between the beginnings of two columns
FEWEST_ROWS = 4  # lines side by side; fewer may be a form or a letter's head
FEWEST_CHARACTERS = 20  # on average in a line of a column; cells of tables have fewer
CONTINUED = 0.25  # share of a column's lines that begin in lower case, as running text does
GAP = re.compile(r" {3,}")


def read_pdf(content: bytes, maximum_bytes: int) -> tuple[str, int | None, list[str]]:
    """Return the text with pages separated by form feeds, the number of pages, and warnings.

    Raises UserError for what is not a PDF, is encrypted, or expands beyond `maximum_bytes`.
    """
    import pypdf

    limits = ("zlib", "lzw", "run_length", "array_based_stream", "brotli")
    caps = {f"{limit}_maximum_output_length": maximum_bytes for limit in limits}
    log, messages = logging.getLogger("pypdf"), BufferingHandler(sys.maxsize)
    propagate, log.propagate = log.propagate, False  # the messages become warnings in the report
    log.addHandler(messages)
    pages: list[str] = []
    try:
        with refusing("a PDF", "print it to a new PDF"), pypdf.apply_configuration(None, **caps):
            reader = pypdf.PdfReader(io.BytesIO(content))
            opens = not reader.is_encrypted
            with suppress(pypdf.errors.DependencyError):  # AES needs a package that is not installed
                # Many are encrypted only to forbid printing, and have no password.
                opens = opens or reader.decrypt("") != pypdf.PasswordType.NOT_DECRYPTED
            if not opens:
                raise UserError("is encrypted; save it without a password")
            size = 0
            for page in reader.pages:
                pages.append(_text(page).replace("\f", "\n").strip("\n"))
                size += len(pages[-1])
                if size > maximum_bytes:
                    raise too_large(size, maximum_bytes)
    finally:
        log.removeHandler(messages)
        log.propagate = propagate
    met = [record.getMessage() for record in messages.buffer]
    warnings = [f"problems met in reading: {len(met)}, such as {met[0]!r}"] if met else []
    if empty := sum(not page.strip() for page in pages):
        warnings.append(f"pages without text (scanned, or pictures only): {empty} of {len(pages)}")
    return "\f".join(pages), len(pages), warnings


def _text(page: "PageObject") -> str:
    """Return a page's text; columns that a program drew row by row come one after the other."""
    starts: dict[int, set[int]] = defaultdict(set)  # y -> x, in points

    def note(operator: bytes, _: object, page_matrix: Sequence[float], text_matrix: Sequence[float]) -> None:
        if operator in SHOWS_TEXT:
            x, y = (text_matrix[4 + axis] * page_matrix[3 * axis] + page_matrix[4 + axis] for axis in (0, 1))
            starts[round(y)].add(round(x))

    text = page.extract_text(visitor_operand_before=note)
    side_by_side = sum(max(row) - min(row) >= APART for row in starts.values())
    return text if side_by_side < FEWEST_ROWS else _by_columns(page.extract_text(extraction_mode="layout")) or text


def _by_columns(layout: str) -> str | None:
    """Return text, laid out by spaces, with its two columns of running text in turn; None without such columns."""
    lines = [line.rstrip() for line in layout.split("\n")]
    rights = [line.rfind(parts[-1]) for line in lines if len(parts := GAP.split(line.strip())) == 2]
    done: list[str] = []
    rows: list[tuple[str, str]] = []
    found = False
    for line in [*lines, ""]:
        if row := _halves(line, median(rights) if rights else 0, within=bool(rows)):
            rows.append(row)
            continue
        columns = [[text for text in column if text] for column in zip(*rows, strict=True)]
        if columns and all(
            len(column) >= FEWEST_ROWS
            and fmean(map(len, column)) >= FEWEST_CHARACTERS
            and fmean(line[0].islower() for line in column[1:]) >= CONTINUED
            for column in columns
        ):
            found = True
            done += [*columns[0], *columns[1]]
        else:
            done += [" ".join(filter(None, each)) for each in rows]
        done.append(line)
        rows = []
    return "\n".join(done) if found else None


def _halves(line: str, middle: float, within: bool) -> tuple[str, str] | None:
    """Return a line's text in the left and in the right column, or None if it spans both or ends them.

    A line of one column alone counts to the left only `within` a pair of columns.
    """
    parts = GAP.split(line.strip())
    if len(parts) == 2:
        return parts[0], parts[1]
    if len(parts) > 2 or not line:
        return None
    if len(line) - len(line.lstrip()) >= 0.8 * middle > 0:
        return "", parts[0]
    return (parts[0], "") if within and len(line) <= middle else None
