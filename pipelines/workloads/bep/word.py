"""The text of Word documents in the order of their body, with lists, tables and text boxes."""

import io
import shutil
import zipfile
from collections.abc import Iterator
from typing import Any

from common.errors import UserError
from pipelines.workloads.bep.refusals import reason, too_large

WORD = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
FALLBACK = "{http://schemas.openxmlformats.org/markup-compatibility/2006}Fallback"


def read_docx(content: bytes, maximum_bytes: int) -> tuple[str, int | None, list[str]]:
    """Return the text, None as the number of pages, and warnings.

    Raises UserError for what is not a Word document, is encrypted, or expands beyond `maximum_bytes`.
    """
    import docx

    try:
        body = docx.Document(unpacked(content, maximum_bytes)).element.body
        text = "\n\n".join(_grouped(_blocks(body)))
    except UserError:
        raise
    except Exception as error:  # the libraries below raise a dozen unrelated types for damaged files
        raise UserError(f"cannot be read as a Word document: {reason(error)}; save it again as .docx") from error
    notes = sum(1 for _ in body.iter(f"{WORD}footnoteReference", f"{WORD}endnoteReference"))
    return text, None, [f"footnotes and endnotes left out: {notes}"] if notes else []


def unpacked(content: bytes, maximum_bytes: int) -> io.BytesIO:
    """Return the same archive, stored without compression.

    The sizes that the archive declares are added up before anything is expanded, and no member is expanded beyond its
    declared size. A library that reads a member in a single call would expand all of it, whatever it declares.
    """
    with zipfile.ZipFile(io.BytesIO(content)) as packed:
        members = packed.infolist()
        size = sum(member.file_size for member in members)
        if size > maximum_bytes:
            raise too_large(size, maximum_bytes)
        if any(member.flag_bits & 1 for member in members):
            raise UserError("is encrypted; save it without a password")
        if "[Content_Types].xml" not in packed.namelist() or "word/document.xml" not in packed.namelist():
            raise UserError("is a zip archive but not a Word document; rename it, or unpack it")
        stored = io.BytesIO()
        with zipfile.ZipFile(stored, "w") as copy:
            for member in members:
                with packed.open(member) as source, copy.open(member.filename, "w") as target:
                    shutil.copyfileobj(source, target, 1 << 16)
    stored.seek(0)
    return stored


def _blocks(parent: Any) -> Iterator[tuple[str, str]]:
    """Yield (kind, text) of the blocks of a body, a cell or a text box in order; kind is "", "item" or "row"."""
    for element in parent.iterchildren():
        if element.tag == f"{WORD}p":
            inner: list[Any] = []
            text = "".join(_runs(element, inner)).strip(" ")
            if text.strip():
                item = _is_item(element)
                yield ("item", f"\u2022 {text}") if item else ("", text)
            for box in inner:
                yield from _blocks(box)
        elif element.tag == f"{WORD}tbl":
            for row in _rows(element):
                yield "row", row
        elif element.tag in (f"{WORD}sdt", f"{WORD}sdtContent", f"{WORD}ins", f"{WORD}moveTo", f"{WORD}customXml"):
            yield from _blocks(element)


def _grouped(blocks: Iterator[tuple[str, str]]) -> list[str]:
    """Return paragraphs; the items of a list, and the rows of a table, become the lines of one paragraph."""
    paragraphs: list[str] = []
    before = ""
    for kind, text in blocks:
        if kind and kind == before:
            paragraphs[-1] += f"\n{text}"
        else:
            paragraphs.append(text)
        before = kind
    return paragraphs


def _runs(element: Any, boxes: list[Any]) -> Iterator[str]:
    """Yield a paragraph's text, also from links, content controls and insertions; text boxes go into `boxes`."""
    plain = {"tab": "\t", "ptab": "\t", "br": "\n", "cr": "\n", "noBreakHyphen": "-"}
    for child in element.iterchildren():
        if child.tag == f"{WORD}t":
            yield child.text or ""
        elif child.tag == f"{WORD}txbxContent":
            boxes.append(child)
        elif isinstance(child.tag, str) and child.tag.startswith(WORD) and child.tag[len(WORD) :] in plain:
            yield plain[child.tag[len(WORD) :]]
        # A fallback repeats what precedes it. Of tracked changes, text that was deleted or moved away is left out.
        elif child.tag not in (FALLBACK, f"{WORD}pPr", f"{WORD}del", f"{WORD}moveFrom"):
            yield from _runs(child, boxes)


def _is_item(paragraph: Any) -> bool:
    style = (paragraph.style or "").lower()
    numbered = paragraph.pPr is not None and paragraph.pPr.numPr is not None
    return style.startswith("listbullet") or (numbered and not style.startswith("heading"))


def _rows(table: Any) -> Iterator[str]:
    """Yield each row's cells that have text; a merged cell appears where it begins."""
    for row in table.iter(f"{WORD}tr"):
        if next(row.iterancestors(f"{WORD}tbl")) is not table:
            continue  # a table within a cell is part of that cell's text
        texts = []
        for cell in row.iter(f"{WORD}tc"):
            if next(cell.iterancestors(f"{WORD}tr")) is row and not _continues(cell):
                texts.append(" ".join(" ".join(text.split()) for _, text in _blocks(cell)))
        if any(texts):
            yield " | ".join(filter(None, texts))


def _continues(cell: Any) -> bool:
    """Return whether a cell is part of one that began above or to the left of it."""
    merges = cell.findall(f"{WORD}tcPr/{WORD}vMerge") + cell.findall(f"{WORD}tcPr/{WORD}hMerge")
    return any(merge.get(f"{WORD}val", "continue") == "continue" for merge in merges)
