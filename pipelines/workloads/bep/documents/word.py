"""The text of Word documents in the order of their body, with lists, tables, text boxes, notes and equations."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pipelines.workloads.bep.documents import refusing, unpacked
from pipelines.workloads.bep.documents.markup import ITEM, TABLES, Form

if TYPE_CHECKING:
    from docx.opc.part import Part
    from docx.oxml.xmlchemy import BaseOxmlElement

WORD = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
WORD_PARTS = "a Word document", "[Content_Types].xml", "word/document.xml"
NOTES = ("footnote", "endnote")
SYMBOLS = 0xF000  # where Unicode's private use has the glyphs of symbol fonts
# Signs of equations precede their parts; a fallback is omitted, as it repeats the text before it.
NAMES, SIGNS, OMITTED, TEXTS = (TABLES["word"][kind] for kind in ("names", "signs", "omitted", "texts"))


def read_docx(content: bytes, maximum_bytes: int) -> tuple[str, int | None, list[str]]:
    """Return the text, None as the number of pages, and warnings.

    Raises UserError for what is not a Word document, is encrypted, or expands beyond `maximum_bytes`.
    """
    import docx

    with refusing("a Word document", "save it again as .docx"):
        document = docx.Document(unpacked(content, maximum_bytes, WORD_PARTS))
        missing = _put_notes(document.element.body, _notes(document.part))
        edges = sum(relation.reltype.endswith(("/header", "/footer")) for relation in document.part.rels.values())
        lists: dict[str | None, bool | None] = {}
        for style in document.styles.element.iter(f"{WORD}style"):
            own = [base.pPr for base in bases(style)]
            said = next((each for properties in own if (each := _is_list(properties)) is not None), None)
            lists[style.get(f"{WORD}styleId")] = False if any(map(_is_heading, own)) else said or None
        left_out = {"footnotes and endnotes": missing, "headers and footers": edges}

        def name(element: "BaseOxmlElement") -> str:
            found = NAMES.get(element.tag, "")
            return ITEM if found == "p" and _is_item(element, lists) else found

        return Form(name, SIGNS, _omitted, TEXTS, layout=False).read(document.element.body, left_out)


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


def bases(style: Any, most: int = 20) -> list[Any]:
    """Return a style and its bases, at most `most` of them, as these may be a cycle."""
    base = getattr(style, "base_style", None)
    return [style] if base is None or not most else [style, *bases(base, most - 1)]


def _omitted(element: "BaseOxmlElement") -> str | None:
    if element.tag == f"{WORD}r":
        mark = element.find(f"{WORD}rPr/{WORD}vanish")  # of runs that Word neither shows nor prints
        if mark is not None and mark.get(f"{WORD}val", "true") not in ("0", "false", "off"):
            return "runs of hidden text"
    if element.tag == f"{WORD}tr" and element.find(f"{WORD}trPr/{WORD}del") is not None:
        return "deletions"
    return "" if element.tag == f"{WORD}tc" and continues(element) else OMITTED.get(element.tag)


def _is_item(paragraph: "BaseOxmlElement", lists: Mapping[str | None, bool | None]) -> bool:
    """Return whether a paragraph is an item of a list; `lists` says which styles make items."""
    style, numbered = paragraph.style or "", _is_list(paragraph.pPr)
    if numbered is None:
        return bool(lists.get(style)) or style.lower().startswith("listbullet")
    # The style of a heading has another id in each language, but always a level.
    return numbered and lists.get(style) is not False and not style.lower().startswith("heading")


def _is_heading(properties: "BaseOxmlElement | None") -> bool:
    level = None if properties is None else properties.find(f"{WORD}outlineLvl")
    return level is not None and level.get(f"{WORD}val") != "9"  # 9 is body text


def _is_list(properties: "BaseOxmlElement | None") -> bool | None:
    """Return whether properties make a paragraph an item of a list, None where they do not say; headings are none."""
    if _is_heading(properties):
        return False
    if properties is None or (numbered := properties.numPr) is None:
        return None
    return bool(numbered.numId is None or numbered.numId.val != 0)


def continues(cell: "BaseOxmlElement") -> bool:
    """Return whether a cell is part of one that began above or to the left of it."""
    merges = cell.findall(f"{WORD}tcPr/{WORD}vMerge") + cell.findall(f"{WORD}tcPr/{WORD}hMerge")
    return any(merge.get(f"{WORD}val", "continue") == "continue" for merge in merges)
