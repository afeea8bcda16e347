"""The text of Word documents in the order of their body, with lists, tables, text boxes, notes and equations."""

import io
import re
import shutil
import zipfile
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from common.errors import UserError
from pipelines.workloads.bep.documents import reason, too_large

if TYPE_CHECKING:
    from docx.opc.part import Part
    from docx.oxml.xmlchemy import BaseOxmlElement

WORD = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
MATH = "{http://schemas.openxmlformats.org/officeDocument/2006/math}"
FALLBACK = "{http://schemas.openxmlformats.org/markup-compatibility/2006}Fallback"

PLAIN = {"tab": "\t", "ptab": "\t", "br": "\n", "cr": "\n", "noBreakHyphen": "-"}
NOTES = ("footnote", "endnote")
SYMBOLS = 0xF000  # where Unicode's private use has the glyphs of symbol fonts
BETWEEN = {"den": "/", "sup": "^", "sub": "_"}  # what stands before these parts of an equation
# Documents with macros, and templates, differ in this from documents that python-docx opens.
KINDS = re.compile(
    rb"application/vnd\.(?:ms-word\.(?:document|template)\.macroEnabled|openxmlformats-officedocument\."
    rb"wordprocessingml\.template)\.main\+xml"
)
DOCUMENT = b"application/vnd.openxmlformats-officedocument.wordprocessingml.document.main+xml"


def read_docx(content: bytes, maximum_bytes: int) -> tuple[str, int | None, list[str]]:
    """Return the text, None as the number of pages, and warnings.

    Raises UserError for what is not a Word document, is encrypted, or expands beyond `maximum_bytes`.
    """
    import docx

    try:
        document = docx.Document(unpacked(content, maximum_bytes))
        reader = _Reader(_notes(document.part))
        text = "\n\n".join(grouped(reader.blocks(document.element.body)))
        reader.left_out["headers and footers"] = sum(
            1 for relation in document.part.rels.values() if relation.reltype.endswith(("/header", "/footer"))
        )
    except UserError:
        raise
    except Exception as error:  # the libraries below raise a dozen unrelated types for damaged files
        raise UserError(f"cannot be read as a Word document: {reason(error)}; save it again as .docx") from error
    return text, None, [f"{what} left out: {count}" for what, count in reader.left_out.items() if count]


def _notes(part: "Part") -> dict[tuple[str, str], "BaseOxmlElement"]:
    """Return {(kind, id): element} of footnotes and endnotes."""
    from docx.oxml import parse_xml

    found = {}
    for relation in part.rels.values():
        if not relation.is_external and relation.reltype.endswith(tuple(f"/{kind}s" for kind in NOTES)):
            for note in parse_xml(relation.target_part.blob).iterchildren():
                found[note.tag.removeprefix(WORD), note.get(f"{WORD}id")] = note
    return found


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
                    if member.filename == "[Content_Types].xml":
                        target.write(KINDS.sub(DOCUMENT, source.read()))
                    else:
                        shutil.copyfileobj(source, target, 1 << 16)
    stored.seek(0)
    return stored


class _Reader:
    """Walk over a body, its notes, and everything nested in them; `left_out` counts what is skipped."""

    def __init__(self, notes: dict[tuple[str, str], "BaseOxmlElement"]):
        self.notes, self.left_out = notes, Counter[str]()

    def blocks(self, parent: "BaseOxmlElement") -> Iterator[tuple[str, str]]:
        """Yield (kind, text) of the blocks of a body, a cell, a text box or a note; kind is "", "item" or "row"."""
        for element in parent.iterchildren():
            if element.tag == f"{WORD}p":
                inner: list[BaseOxmlElement] = []
                text = "".join(self._runs(element, inner)).strip(" ")
                if text.strip():
                    item = _is_item(element)
                    yield ("item", f"\u2022 {text}") if item else ("", text)
                for box in inner:
                    yield from self.blocks(box)
            elif element.tag == f"{WORD}tbl":
                for row in self._rows(element):
                    yield "row", row
            elif element.tag in (f"{WORD}sdt", f"{WORD}sdtContent", f"{WORD}ins", f"{WORD}moveTo", f"{WORD}customXml"):
                yield from self.blocks(element)

    def _runs(self, element: "BaseOxmlElement", inner: list["BaseOxmlElement"]) -> Iterator[str]:
        """Yield a paragraph's text, also from links, content controls and insertions.

        Text boxes and notes go into `inner`: they follow the paragraph.
        """
        for child in element.iterchildren():
            if not isinstance(child.tag, str):
                continue  # a comment in the XML
            name = child.tag.removeprefix(WORD)
            if child.tag in (f"{WORD}t", f"{MATH}t"):
                yield child.text or ""
            elif name in PLAIN:
                yield PLAIN[name]
            elif name == "sym":
                code = int(child.get(f"{WORD}char", "0"), 16)
                yield chr(code if code >= SYMBOLS else SYMBOLS + code)
            elif name == "txbxContent":
                inner.append(child)
            elif name in ("footnoteReference", "endnoteReference"):
                note = self.notes.get((name.removesuffix("Reference"), child.get(f"{WORD}id")))
                self.left_out["footnotes and endnotes"] += note is None
                inner += [] if note is None else [note]
            elif name == "commentReference":
                self.left_out["comments"] += 1
            elif name == "r" and _is_hidden(child):
                self.left_out["runs of hidden text"] += 1
            elif name in ("del", "moveFrom"):
                self.left_out["deletions"] += 1
            # A fallback repeats what precedes it.
            elif child.tag != FALLBACK and name not in ("pPr", "rPr"):
                yield BETWEEN.get(child.tag.removeprefix(MATH), "")
                yield from self._runs(child, inner)

    def _rows(self, table: "BaseOxmlElement") -> Iterator[str]:
        """Yield each row's cells that have text; a merged cell appears where it begins."""
        for row in table.iter(f"{WORD}tr"):
            if next(row.iterancestors(f"{WORD}tbl")) is not table:
                continue  # a table within a cell is part of that cell's text
            if row.find(f"{WORD}trPr/{WORD}del") is not None:
                self.left_out["deletions"] += 1
                continue
            texts = []
            for cell in row.iter(f"{WORD}tc"):
                if next(cell.iterancestors(f"{WORD}tr")) is row and not _continues(cell):
                    texts.append(" ".join(" ".join(text.split()) for _, text in self.blocks(cell)))
            if any(texts):
                yield " | ".join(filter(None, texts))


def _is_hidden(run: "BaseOxmlElement") -> bool:
    """Return whether Word neither shows nor prints a run."""
    mark = run.find(f"{WORD}rPr/{WORD}vanish")
    return mark is not None and mark.get(f"{WORD}val", "true") not in ("0", "false", "off")


def grouped(blocks: Iterator[tuple[str, str]]) -> list[str]:
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


def _is_item(paragraph: "BaseOxmlElement") -> bool:
    style = (paragraph.style or "").lower()
    numbered = paragraph.pPr is not None and paragraph.pPr.numPr is not None
    return style.startswith("listbullet") or (numbered and not style.startswith("heading"))


def _continues(cell: "BaseOxmlElement") -> bool:
    """Return whether a cell is part of one that began above or to the left of it."""
    merges = cell.findall(f"{WORD}tcPr/{WORD}vMerge") + cell.findall(f"{WORD}tcPr/{WORD}hMerge")
    return any(merge.get(f"{WORD}val", "continue") == "continue" for merge in merges)
