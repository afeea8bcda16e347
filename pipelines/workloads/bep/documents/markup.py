"""The text of web pages and of OpenDocument texts: paragraphs, lists, and tables with a line for each row."""

import io
import re
import zipfile
from collections import Counter
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from common.errors import UserError
from pipelines.workloads.bep.documents import reason, too_large
from pipelines.workloads.bep.documents.word import grouped

if TYPE_CHECKING:
    from lxml import etree

HEADINGS = ("h1", "h2", "h3", "h4", "h5", "h6")
ITEM, ROW, CELLS = "li", "tr", {"td", "th"}
BLOCKS = {
    "address", "article", "aside", "blockquote", "body", "caption", "center", "dd", "details", "div", "dl", "dt",
    "fieldset", "figcaption", "figure", "footer", "form", "header", "hr", "html", *HEADINGS, ITEM, "main", "ol", "p",
    "pre", ROW, "section", "summary", "table", "tbody", *CELLS, "tfoot", "thead", "ul",
}  # fmt: skip
NO_TEXT = {
    "iframe", "noscript", "object", "script", "select", "style", "svg", "template", "textarea", "title",
}  # fmt: skip
HIDDEN = re.compile(r"display:none|visibility:hidden|mso-hide:all")
COMMENT = re.compile(r"mso-element:comment")

TEXT, OFFICE, STYLE, TABLE = (
    f"{{urn:oasis:names:tc:opendocument:xmlns:{name}:1.0}}" for name in ("text", "office", "style", "table")
)
SAME = {  # elements of OpenDocument by those of HTML
    f"{TEXT}h": "h1",
    f"{TEXT}p": "p",
    f"{TEXT}list-item": ITEM,
    f"{TABLE}table-row": ROW,
    f"{TABLE}table-cell": "td",
}
SIGNS = {f"{TEXT}line-break": "\n", f"{TEXT}tab": "\t", f"{TEXT}s": " "}
OMITTED = {
    f"{OFFICE}annotation": "comments",
    f"{TEXT}tracked-changes": "lists of deletions",
    f"{TEXT}table-of-content": "tables of contents",
    f"{TEXT}hidden-text": "runs of hidden text",
    f"{TABLE}covered-table-cell": "",
    f"{TEXT}note-citation": "",
    "{urn:oasis:names:tc:opendocument:xmlns:svg-compatible:1.0}title": "",
    "{urn:oasis:names:tc:opendocument:xmlns:svg-compatible:1.0}desc": "",
}


def read_html(text: str) -> tuple[str, int | None, list[str]]:
    """Return the text of a page, None as the number of pages, and warnings."""
    from lxml import etree

    parser = etree.HTMLParser(encoding="utf-8", huge_tree=True, remove_comments=True, remove_pis=True)
    page = etree.fromstring((text if text.strip() else "<p>").encode(), parser)
    return _read(page, {}, {"br": "\n"}, _omitted)


def read_odt(content: bytes, maximum_bytes: int) -> tuple[str, int | None, list[str]]:
    """Return the text, None as the number of pages, and warnings.

    Raises UserError for what is no OpenDocument text, is encrypted, or expands beyond `maximum_bytes`.
    """
    from lxml import etree

    parser = etree.XMLParser(resolve_entities=False, huge_tree=True, remove_comments=True, remove_pis=True)
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as packed:
            if not {"content.xml", "mimetype"} <= set(packed.namelist()):
                raise UserError("is a zip archive but not an OpenDocument text; rename it, or unpack it")
            parts = {}
            for name in {"content.xml", "META-INF/manifest.xml"} & set(packed.namelist()):
                with packed.open(name) as part:  # declared sizes may be wrong
                    parts[name] = part.read(maximum_bytes + 1)
                if len(parts[name]) > maximum_bytes:
                    raise too_large(max(len(parts[name]), packed.getinfo(name).file_size), maximum_bytes)
        if b"encryption-data" in parts.get("META-INF/manifest.xml", b""):
            raise UserError("is encrypted; save it without a password")
        root = etree.fromstring(parts["content.xml"], parser)
        body = root.find(f"{OFFICE}body/{OFFICE}text")
        if body is None:
            raise UserError("is an OpenDocument file but not a text; save it as .odt")
        hidden = {
            style.get(f"{STYLE}name")
            for style in root.iter(f"{STYLE}style")
            if any(part.get(f"{TEXT}display") == "none" for part in style)
        } - {None}

        def omitted(element: "etree._Element") -> str | None:
            gone = element.get(f"{TEXT}display") == "none" or element.get(f"{TEXT}style-name") in hidden
            return "runs of hidden text" if gone else OMITTED.get(element.tag)

        _move_notes(body)
        return _read(body, SAME, SIGNS, omitted)
    except UserError:
        raise
    except (zipfile.BadZipFile, etree.XMLSyntaxError, OSError, ValueError, EOFError) as error:
        raise UserError(f"cannot be read as an OpenDocument text: {reason(error)}; save it again as .odt") from error


def _move_notes(body: "etree._Element") -> None:
    """Put notes behind the paragraphs that they stand in."""
    from lxml import etree

    for note in reversed(list(body.iter(f"{TEXT}note"))):
        paragraph = next(note.iterancestors(f"{TEXT}p", f"{TEXT}h"), None)
        if paragraph is not None:
            place = etree.Element(f"{TEXT}span")
            place.tail, note.tail = note.tail, None
            note.getparent().replace(note, place)
            paragraph.addnext(note)


def _read(
    body: "etree._Element",
    names: Mapping[str, str],
    signs: Mapping[str, str],
    omitted: "Callable[[etree._Element], str | None]",
) -> tuple[str, int | None, list[str]]:
    """Return the text, None as the number of pages, and warnings; `names` are the elements' in HTML if they differ."""
    from lxml import etree

    blocks = _Blocks()
    for event, element in etree.iterwalk(body, events=("start", "end")):
        if event == "start":
            blocks.begin(names.get(element.tag, element.tag), omitted(element))
            blocks.sign(signs.get(element.tag, ""))
            blocks.text(element.text)
        else:
            blocks.end()
            blocks.text(element.tail)
    return blocks.finished()


class _Blocks:
    """Blocks made of begins and ends of elements, by their names in HTML, and of the text between them."""

    def __init__(self) -> None:
        self.left_out = Counter[str]()
        self.open: list[tuple[str, bool]] = []  # names, and whether their text is left out
        self.found: list[list[tuple[str, str]]] = [[]]  # blocks of the document, and of cells within cells
        self.rows: list[list[list[tuple[str, str]]]] = []
        self.pieces: list[str] = []
        self.in_item = False

    def finished(self) -> tuple[str, int | None, list[str]]:
        self._flush()
        warnings = [f"{what} left out: {count}" for what, count in self.left_out.items() if count]
        return "\n\n".join(grouped(iter(self.found[0]))), None, warnings

    def begin(self, name: str, omitted: str | None = None) -> None:
        """Begin an element; the text of `omitted` ones, named for the report or "", is left out."""
        within = bool(self.open) and self.open[-1][1]
        if omitted and not within:
            self.left_out[omitted] += 1
        self.open.append((name, within or omitted is not None))
        if self.open[-1][1]:
            return
        if name in BLOCKS:
            self._flush()
        self.in_item = name == ITEM or (self.in_item and name not in (*CELLS, *HEADINGS))
        if name == ROW:
            self.rows.append([])
        elif name in CELLS:
            self.found.append([])

    def end(self) -> None:
        """End the element that began last."""
        name, omitted = self.open.pop()
        if omitted or name not in BLOCKS:
            return
        self._flush()
        if name in CELLS:
            blocks = self.found.pop()
            if self.rows:
                self.rows[-1].append(blocks)
            else:
                self.found[-1] += blocks
        elif name == ROW:
            cells = [cell for cell in self.rows.pop() if cell]
            if len(cells) == 1:  # such as all of a page that is laid out by a table
                self.found[-1] += cells[0]
            elif cells:
                self.found[-1].append(("row", " | ".join(" ".join(text for _, text in cell) for cell in cells)))

    def text(self, text: str | None) -> None:
        """Add text, in which white space is a space."""
        self.sign(re.sub(r"[ \t\r\n]+", " ", text or ""))

    def sign(self, text: str) -> None:
        """Add text as it is."""
        if not (self.open and self.open[-1][1]):
            self.pieces.append(text)

    def _flush(self) -> None:
        text = re.sub(r" *\n *", "\n", re.sub(" +", " ", "".join(self.pieces))).strip()
        self.pieces.clear()
        if text:
            self.found[-1].append(("item", f"\u2022 {text}") if self.in_item else ("", text))
            self.in_item = False


def _omitted(element: "etree._Element") -> str | None:
    """Return what an element is called in the report if its text is left out: "" for what is no text, else None."""
    tag, style = element.tag, re.sub(r"\s", "", element.get("style", "")).lower()
    if tag in NO_TEXT:
        return ""
    if tag == "del" or tag == "nav":
        return {"del": "deletions", "nav": "navigation"}[tag]
    if COMMENT.search(style):
        return "comments"
    return "runs of hidden text" if "hidden" in element.attrib or HIDDEN.search(style) else None
