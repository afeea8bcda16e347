"""The text of Word documents in the order of their body, with lists, tables, text boxes, notes and equations."""

from typing import TYPE_CHECKING

from pipelines.workloads.bep.documents import refusing, unpacked
from pipelines.workloads.bep.documents.markup import ASIDE, ITEM, ROW, Form

if TYPE_CHECKING:
    from docx.opc.part import Part
    from docx.oxml.xmlchemy import BaseOxmlElement

WORD = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
MATH = "{http://schemas.openxmlformats.org/officeDocument/2006/math}"
FALLBACK = "{http://schemas.openxmlformats.org/markup-compatibility/2006}Fallback"

WORD_PARTS = "a Word document", "[Content_Types].xml", "word/document.xml"
NOTES = ("footnote", "endnote")
SYMBOLS = 0xF000  # where Unicode's private use has the glyphs of symbol fonts
NAMES = {f"{WORD}{name}": name for name in ("p", "body")}
NAMES |= {f"{WORD}tbl": "table", f"{WORD}tr": ROW, f"{WORD}tc": "td"}
NAMES |= {f"{WORD}{name}": ASIDE for name in ("txbxContent", *(f"{kind}Reference" for kind in NOTES))}
SIGNS = {f"{WORD}{name}": "\t" for name in ("tab", "ptab")} | {f"{WORD}{name}": "\n" for name in ("br", "cr")}
SIGNS |= {f"{WORD}noBreakHyphen": "-"}
# What stands before these parts of an equation.
SIGNS |= {f"{MATH}den": "/", f"{MATH}sup": "^", f"{MATH}sub": "_"}
OMITTED = {f"{WORD}del": "deletions", f"{WORD}moveFrom": "deletions", f"{WORD}commentReference": "comments"}
OMITTED |= {FALLBACK: "", f"{WORD}pPr": "", f"{WORD}rPr": ""}  # a fallback repeats what precedes it
TEXTS = {f"{WORD}t", f"{MATH}t", f"{WORD}sym"}


def read_docx(content: bytes, maximum_bytes: int) -> tuple[str, int | None, list[str]]:
    """Return the text, None as the number of pages, and warnings.

    Raises UserError for what is not a Word document, is encrypted, or expands beyond `maximum_bytes`.
    """
    import docx

    with refusing("a Word document", "save it again as .docx"):
        document = docx.Document(unpacked(content, maximum_bytes, WORD_PARTS))
        missing = _put_notes(document.element.body, _notes(document.part))
        edges = sum(relation.reltype.endswith(("/header", "/footer")) for relation in document.part.rels.values())
        left_out = {"footnotes and endnotes": missing, "headers and footers": edges}
        return Form(_name, SIGNS, _omitted, TEXTS, layout=False).read(document.element.body, left_out)


def _notes(part: "Part") -> dict[tuple[str, str], "BaseOxmlElement"]:
    """Return {(kind, id): element} of footnotes and endnotes."""
    from docx.oxml import parse_xml

    found = {}
    for relation in part.rels.values():
        if not relation.is_external and relation.reltype.endswith(tuple(f"/{kind}s" for kind in NOTES)):
            for note in parse_xml(relation.target_part.blob).iterchildren():
                found[note.tag.removeprefix(WORD), note.get(f"{WORD}id")] = note
    return found


def _put_notes(body: "BaseOxmlElement", notes: dict[tuple[str, str], "BaseOxmlElement"]) -> int:
    """Move notes to their references, and symbols into their text; return the number of missing notes."""
    missing = 0
    for kind in NOTES:
        for reference in list(body.iter(f"{WORD}{kind}Reference")):
            note = notes.get((kind, reference.get(f"{WORD}id")))
            missing += note is None
            reference.extend([] if note is None else list(note))
    for symbol in body.iter(f"{WORD}sym"):
        code = int(symbol.get(f"{WORD}char", "0"), 16)
        symbol.text = chr(code if code >= SYMBOLS else SYMBOLS + code)
    return missing


def _name(element: "BaseOxmlElement") -> str:
    """Return an element's name in HTML."""
    name = NAMES.get(element.tag, "")
    return ITEM if name == "p" and _is_item(element) else name


def _omitted(element: "BaseOxmlElement") -> str | None:
    if element.tag == f"{WORD}r":
        mark = element.find(f"{WORD}rPr/{WORD}vanish")  # of runs that Word neither shows nor prints
        if mark is not None and mark.get(f"{WORD}val", "true") not in ("0", "false", "off"):
            return "runs of hidden text"
    if element.tag == f"{WORD}tr" and element.find(f"{WORD}trPr/{WORD}del") is not None:
        return "deletions"
    return "" if element.tag == f"{WORD}tc" and _continues(element) else OMITTED.get(element.tag)


def _is_item(paragraph: "BaseOxmlElement") -> bool:
    style = (paragraph.style or "").lower()
    numbered = paragraph.pPr is not None and paragraph.pPr.numPr is not None
    return style.startswith("listbullet") or (numbered and not style.startswith("heading"))


def _continues(cell: "BaseOxmlElement") -> bool:
    """Return whether a cell is part of one that began above or to the left of it."""
    merges = cell.findall(f"{WORD}tcPr/{WORD}vMerge") + cell.findall(f"{WORD}tcPr/{WORD}hMerge")
    return any(merge.get(f"{WORD}val", "continue") == "continue" for merge in merges)
