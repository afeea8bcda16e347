"""The text of web pages and of OpenDocument texts: paragraphs, lists, and tables with a line for each row."""

import json
import re
import zipfile
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from common.errors import UserError
from pipelines.workloads.bep.documents import refusing, unpacked

if TYPE_CHECKING:
    from lxml import etree

HEADINGS = ("h1", "h2", "h3", "h4", "h5", "h6")
ITEM, ROW, CELLS = "li", "tr", {"td", "th"}
ASIDE = "aside of a paragraph"  # a note or a text box, which follows it
TABLES = json.loads(Path(__file__).with_suffix(".json").read_text())  # of elements, by kinds of documents
BLOCKS = frozenset(TABLES["html"]["blocks"])
HIDDEN = re.compile(r"display:none|visibility:hidden|mso-hide:all")
COMMENT = re.compile(r"mso-element:comment")

ODT_PARTS = "an OpenDocument text", "content.xml", "mimetype"
TEXT, OFFICE, STYLE = (f"{{urn:oasis:names:tc:opendocument:xmlns:{name}:1.0}}" for name in ("text", "office", "style"))
# Elements of OpenDocument -> those of HTML, the text that they stand for, and the report's words for omitted ones.
NAMES, SIGNS, OMITTED = (TABLES["odt"][kind] for kind in ("names", "signs", "omitted"))


def read_html(text: str) -> tuple[str, int | None, list[str]]:
    """Return the text of a page, None as the number of pages, and warnings."""
    from lxml import etree

    parser = etree.HTMLParser(encoding="utf-8", huge_tree=True, remove_comments=True, remove_pis=True)
    page = etree.fromstring((text if text.strip() else "<p>").encode(), parser)
    return Form(lambda element: element.tag, {"br": "\n"}, _omitted).read(page)


def read_odt(content: bytes, maximum_bytes: int) -> tuple[str, int | None, list[str]]:
    """Return the text, None as the number of pages, and warnings.

    Raises UserError for what is no OpenDocument text, is encrypted, or expands beyond `maximum_bytes`.
    """
    from lxml import etree

    parser = etree.XMLParser(resolve_entities=False, huge_tree=True, remove_comments=True, remove_pis=True)
    with refusing("an OpenDocument text", "save it again as .odt"):
        with zipfile.ZipFile(unpacked(content, maximum_bytes, ODT_PARTS)) as packed:
            names = {"content.xml", "META-INF/manifest.xml"} & set(packed.namelist())
            parts = {name: packed.read(name) for name in names}
        if b"encryption-data" in parts.get("META-INF/manifest.xml", b""):
            raise UserError("is encrypted; save it without a password")
        root = etree.fromstring(parts["content.xml"], parser)
        if (body := root.find(f"{OFFICE}body/{OFFICE}text")) is None:
            raise UserError("is an OpenDocument file but not a text; save it as .odt")
        hidden = {
            style.get(f"{STYLE}name")
            for style in root.iter(f"{STYLE}style")
            if any(part.get(f"{TEXT}display") == "none" for part in style)
        } - {None}

        def omitted(element: "etree._Element") -> str | None:
            gone = element.get(f"{TEXT}display") == "none" or element.get(f"{TEXT}style-name") in hidden
            return "runs of hidden text" if gone else OMITTED.get(element.tag)

        return Form(lambda element: NAMES.get(element.tag, ""), SIGNS, omitted).read(body)


@dataclass(frozen=True)
class Form:
    """How a kind of document is written, in terms of HTML."""

    name: "Callable[[etree._Element], str]"  # of an element in HTML
    signs: Mapping[str, str]  # tag -> its text
    omitted: "Callable[[etree._Element], str | None]"  # the report's words for an omitted element, or ""; else None
    texts: Collection[str] = ()  # tags that hold text; (): all
    layout: bool = True  # True if a row of one cell is not a table's

    def read(
        self, body: "etree._Element", left_out: Mapping[str, int] = MappingProxyType({})
    ) -> tuple[str, int | None, list[str]]:
        """Return the text, None as the number of pages, and warnings, with those on `left_out`."""
        from lxml import etree

        blocks, counts = _Blocks(self.layout), Counter[str]()
        walk = etree.iterwalk(body, events=("start", "end"))
        for event, element in walk:
            if event == "end":
                blocks.end()
                blocks.text("" if self.texts else element.tail)
            elif (what := self.omitted(element)) is not None:
                counts[what] += bool(what)
                blocks.open.append("")
                walk.skip_subtree()
            else:
                blocks.begin(self.name(element))
                blocks.pieces.append(self.signs.get(element.tag, ""))
                blocks.text(element.text if not self.texts or element.tag in self.texts else "")
        warnings = [f"{what} left out: {count}" for what, count in [*counts.items(), *left_out.items()] if count]
        return "\n\n".join(grouped(blocks.finished())), None, warnings


class _Blocks:
    """Makes blocks of the starts and ends of elements, by their names in HTML, and of the text between them."""

    def __init__(self, layout: bool) -> None:
        self.layout = layout
        self.open: list[str] = []  # names of elements
        self.found: list[list[tuple[str, str]]] = [[]]  # blocks of the document, and of cells and asides within
        self.rows: list[list[list[tuple[str, str]]]] = []
        self.pieces: list[str] = []
        self.in_item = False
        self.after: list[tuple[str, str]] = []  # asides that follow the paragraph
        self.around: list[tuple[list[str], bool, list[tuple[str, str]]]] = []  # paragraphs around an aside

    def finished(self) -> list[tuple[str, str]]:
        self._flush()
        return self.found[0]

    def begin(self, name: str) -> None:
        """Begin an element."""
        self.open.append(name)
        if name == ASIDE:
            self.around.append((self.pieces, self.in_item, self.after))
            self.pieces, self.in_item, self.after = [], False, []
        elif name in BLOCKS:
            self._flush()
        self.in_item = name == ITEM or (self.in_item and name not in (*CELLS, *HEADINGS))
        if name == ROW:
            self.rows.append([])
        elif name in (ASIDE, *CELLS):
            self.found.append([])

    def end(self) -> None:
        """End the element that began last."""
        if (name := self.open.pop()) not in BLOCKS:
            return
        self._flush()
        self.in_item = self.in_item and name != ITEM
        if name == ASIDE:
            self.pieces, self.in_item, self.after = self.around.pop()
            self.after += self.found.pop()
        elif name in CELLS:
            blocks = self.found.pop()
            if self.rows:
                self.rows[-1].append(blocks)
            else:
                self.found[-1] += blocks
        elif name == ROW:
            cells = [cell for cell in self.rows.pop() if cell]
            if len(cells) == 1 and self.layout:  # such as all of a page that is laid out by a table
                self.found[-1] += cells[0]
            elif cells:
                texts = (" ".join(" ".join(text for _, text in cell).split()) for cell in cells)
                self.found[-1].append(("row", " | ".join(texts)))

    def text(self, text: str | None) -> None:
        """Add text, in which white space is a space."""
        self.pieces.append(re.sub(r"[ \t\r\n]+", " ", text or ""))

    def _flush(self) -> None:
        text = re.sub(r" *\n *", "\n", re.sub(" +", " ", "".join(self.pieces))).strip()
        self.pieces.clear()
        if text:
            self.found[-1].append(("item", f"\u2022 {text}") if self.in_item else ("", text))
            self.in_item = False
        self.found[-1] += self.after
        self.after.clear()


def grouped(blocks: Iterable[tuple[str, str]]) -> list[str]:
    """Return paragraphs; the items of a list, and the rows of a table, become the lines of one paragraph."""
    runs = ((kind, [text for _, text in run]) for kind, run in groupby(blocks, lambda block: block[0]))
    return [text for kind, texts in runs for text in (["\n".join(texts)] if kind else texts)]


def _omitted(element: "etree._Element") -> str | None:
    """Return the report's words for an omitted element, "" if it has no text of the page; None for any other."""
    style = re.sub(r"\s", "", element.get("style", "")).lower()
    if (what := TABLES["html"]["omitted"].get(element.tag)) is not None:
        return str(what)
    if COMMENT.search(style):
        return "comments"
    return "runs of hidden text" if "hidden" in element.attrib or HIDDEN.search(style) else None
