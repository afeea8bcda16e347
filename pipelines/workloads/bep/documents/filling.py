"""Plans as Word documents: each text goes below the heading, or beside the label in a table, of the same field.

Whatever else the document holds stays.
"""

import base64
import io
import itertools
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from common.errors import UserError
from common.plain import Plain
from models.plans.fields import field_of, significant
from pipelines.workloads.bep.documents import refusing, unpacked
from pipelines.workloads.bep.documents.word import WORD_PARTS, bases, continues

if TYPE_CHECKING:
    from docx.document import Document
    from docx.styles.style import ParagraphStyle
    from docx.table import Table, _Cell
    from docx.text.paragraph import Paragraph

LARGEST = 50_000_000  # bytes of an expanded template
HINT = "w:sdtPr/w:showingPlcHdr"  # of a content control that holds no more than a hint to click there
UNWRITABLE = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")  # characters that XML cannot hold


def exchanged(content: bytes, plan: str | None) -> dict[str, Plain]:
    """Return the texts in a Word document by `fields`; or, given a plan, the filled `document` and the headings `left`.

    The filled document is in base64; without `content` it holds the plan alone. Raises UserError for another file.
    """
    if plan is None:
        said = [(field_of(heading), line) for heading, *_, there in _places(_opened(content)) for line in there]
        texts = {field: "\n".join(line for own, line in said if own == field).strip() for field, _ in said}
        return {"fields": {field: text for field, text in texts.items() if field and text}}
    document, left = filled(content, plan)
    return {"document": base64.b64encode(document).decode(), "left": list(left)}


def filled(template: bytes, plan: str) -> tuple[bytes, list[str]]:
    """Return the filled document, and the headings of the plan that the template has no place for.

    Lines that are in their place already are not repeated. Raises UserError for a file that is no Word document.
    """
    document = _opened(template)
    plan = UNWRITABLE.sub("", re.sub("[\v\f]", "\n", f"{plan}\n").lstrip("\ufeff"))
    before, *parts = re.split(r"(?m)^#+ (.+)\n", plan)
    if before.strip():
        raise UserError("cannot be filled: the plan begins without a heading; give one, as in '# Project scope'")
    for heading in () if template else dict.fromkeys(parts[::2]):
        document.add_heading(heading)
    texts: dict[str, tuple[str, str]] = {}
    for heading, text in zip(parts[::2], parts[1::2], strict=True):  # a heading may occur twice
        texts[_topic(heading)] = heading, texts.get(_topic(heading), ("", ""))[1] + text
    places = list(_places(document))
    said = {(_topic(heading), line) for heading, *_, there in places for line in there}
    for heading, place, style, there in places:
        lines = [line.strip() for line in texts.get(_topic(heading), ("", ""))[1].splitlines()]
        new = [line for line in lines if line and (_topic(heading), line) not in said]
        if not (style is None and any(there) and new):  # nothing is added to a filled cell
            texts.pop(_topic(heading), None)
        if style is None and not any(there):
            place.add_run("\n".join(new))
        for line in reversed(new) if style is not None else ():
            place._element.addnext(document.add_paragraph(line, style)._element)
    stream = io.BytesIO()
    document.save(stream)
    return stream.getvalue(), [heading for heading, _ in texts.values()]


def _opened(content: bytes) -> "Document":
    import docx

    with refusing("a Word document", "save it again as .docx"):
        return docx.Document(unpacked(content, LARGEST, WORD_PARTS) if content else None)


def _places(document: "Document") -> Iterator[tuple[str, "Paragraph", "ParagraphStyle | str | None", list[str]]]:
    """Yield (heading, its paragraph, style of the text below, lines there) and (label, its cell's, None, lines)."""
    from docx.table import Table, _Cell
    from docx.text.paragraph import Paragraph

    # All tables, nested ones too, and the paragraphs beside them, those of content controls too.
    found = document.element.body.xpath(".//w:tbl | .//w:p[not(ancestor::w:tbl or ancestor::w:p)]")
    blocks = [(Table if each.tag.endswith("}tbl") else Paragraph)(each, document._body) for each in found]
    for number, block in enumerate(blocks):
        if isinstance(block, Table):
            for row in block._element.xpath("./w:tr | ./w:sdt/w:sdtContent/w:tr"):
                cells = [_Cell(each, block) for each in row.xpath("./w:tc | ./w:sdt/w:sdtContent/w:tc")]
                cells = [cell for cell in cells if not continues(cell._tc)]
                for label, cell in itertools.pairwise(cells):
                    there, found = _lines(cell), cell._element.xpath(f"./w:p | ./w:sdt[not({HINT})]/w:sdtContent/w:p")
                    if len(cells) == 2 or not any(there):  # in wider rows, a filled cell is no answer
                        yield _text(label), Paragraph(found[0], cell) if found else cell.add_paragraph(), None, there
        elif _is_heading(block):
            below = list(itertools.takewhile(lambda each: not _is_heading(each), blocks[number + 1 :]))
            lines = [line for each in below for line in (not isinstance(each, Table) and _lines(each)) or [""]]
            empty = bool(below) and not isinstance(below[0], Table) and not lines[0]
            yield _text(block), block, (below[0].style if empty else None) or "Normal", lines


def _lines(block: "Paragraph | _Cell") -> list[str]:
    return [line.strip() for line in _text(block).splitlines()]


def _text(block: "Paragraph | _Cell") -> str:
    """Return a block's text with that of content controls and insertions, without hints to click there."""
    shown = f".//w:t[not(ancestor::w:sdt[{HINT}])] | .//w:p | .//w:r/w:br | .//w:r/w:tab"
    signs = {"p": "\n", "br": "\n", "tab": "\t"}
    texts = (signs.get(each.tag.rpartition("}")[2]) or each.text or "" for each in block._element.xpath(shown))
    return "".join(texts).removeprefix("\n")


def _is_heading(block: "Paragraph | Table") -> bool:
    names = [each.name or "" for each in bases(block.style) if each is not None]
    return any(name.startswith("Heading") for name in names) and not names[0].startswith("TOC")


def _topic(heading: str) -> str:
    return field_of(heading) or " ".join(sorted(significant(heading))) or heading.strip()
