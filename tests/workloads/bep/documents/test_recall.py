"""Of documents as people write them, nearly every word is read, in order, and what is left out is named."""

import io
import zipfile
from collections.abc import Callable
from difflib import SequenceMatcher
from pathlib import Path

import docx
import pytest
from docx.oxml import parse_xml
from docx.oxml.ns import nsdecls
from reportlab.lib.styles import getSampleStyleSheet
from reportlab.pdfgen.canvas import Canvas
from reportlab.platypus import BaseDocTemplate, Frame, PageTemplate, Paragraph, Table

from pipelines.workloads.bep.documents.cleaning import clean
from tests.workloads.bep.documents.reading import read

LEFT = """The appointed party shall deliver models at each stage, and shall check them before they are shared with
others in the common data environment. The lead confirms that all clashes were resolved and writes down who did so."""
RIGHT = """Responsibilities are set out in the matrix, which names a person for each element of a model. It is reviewed
every month by the information manager, who tells all parties about changes to it before these come into force."""
MATH = 'xmlns:m="http://schemas.openxmlformats.org/officeDocument/2006/math"'
MAIN = "application/vnd.openxmlformats-officedocument.wordprocessingml.document.main+xml"
NOTES = "http://schemas.openxmlformats.org/officeDocument/2006/relationships/footnotes"


def recall(expected: str, text: str) -> float:
    """The share of the expected words that stand in the text in their order."""
    wanted, found = expected.split(), text.split()
    matcher = SequenceMatcher(None, wanted, found, autojunk=False)
    return sum(block.size for block in matcher.get_matching_blocks()) / len(wanted)


def run(inner: str) -> str:
    return f"<w:r {nsdecls('w')}>{inner}</w:r>"


def ticks(path: Path) -> str:
    document = docx.Document()
    for symbol in ('w:font="Wingdings" w:char="F0FC"', 'w:font="Wingdings" w:char="00FC"'):
        paragraph = document.add_paragraph("Clash detection ")
        paragraph._p.append(parse_xml(run(f"<w:sym {symbol}/>")))
        paragraph.add_run(" done")
    document.save(path.with_suffix(".docx"))
    return "Clash detection \u2713 done Clash detection \u2713 done"


def equation(path: Path) -> str:
    def part(name: str, text: str) -> str:
        return f"<m:{name}><m:r><m:t>{text}</m:t></m:r></m:{name}>"

    document = docx.Document()
    paragraph = document.add_paragraph("The tolerance is ")
    fraction = f"<m:f>{part('num', 'L')}{part('den', '500')}</m:f>"
    power = f"<m:sSup>{part('e', 'm')}{part('sup', '2')}</m:sSup>"
    paragraph._p.append(parse_xml(f"<m:oMath {MATH}>{fraction}{power}</m:oMath>"))
    paragraph.add_run(" at most")
    document.save(path.with_suffix(".docx"))
    return "The tolerance is L/500m^2 at most"


def notes_and_hidden_text(path: Path) -> str:
    document = docx.Document()
    paragraph = document.add_paragraph("Models are issued weekly")
    paragraph._p.append(parse_xml(run('<w:footnoteReference w:id="2"/>')))
    paragraph._p.append(parse_xml(run("<w:rPr><w:vanish/></w:rPr><w:t>SECRET</w:t>")))
    paragraph._p.append(parse_xml(run('<w:rPr><w:vanish w:val="0"/></w:rPr><w:t> as agreed.</w:t>')))
    document.add_paragraph("Next.")
    note = '<w:footnote w:id="2"><w:p><w:r><w:t>Except in August.</w:t></w:r></w:p></w:footnote>'
    content = f"<w:footnotes {nsdecls('w')}>{note}</w:footnotes>".encode()
    name = docx.opc.packuri.PackURI("/word/footnotes.xml")
    part = docx.opc.part.Part(name, "application/xml", content, document.part.package)
    document.part.relate_to(part, NOTES)
    document.save(path.with_suffix(".docx"))
    return "Models are issued weekly as agreed. Except in August. Next."


def tracked_rows(path: Path) -> str:
    document = docx.Document()
    table = document.add_table(3, 1)
    for cell, text in zip(table._cells, ("Role", "Gone", "Lead"), strict=True):
        cell.text = text
    row = table._tbl.tr_lst[1]
    row.insert(0, parse_xml(f'<w:trPr {nsdecls("w")}><w:del w:id="1"/></w:trPr>'))
    document.save(path.with_suffix(".docx"))
    return "Role Lead"


def with_macros(path: Path, kind: bytes = b"application/vnd.ms-word.document.macroEnabled.main+xml") -> str:
    plain = io.BytesIO()
    document = docx.Document()
    document.add_paragraph(LEFT)
    document.save(plain)
    ending = ".docm" if b"document" in kind else ".dotx"
    with zipfile.ZipFile(plain) as source, zipfile.ZipFile(path.with_suffix(ending), "w") as target:
        for name in source.namelist():
            target.writestr(name, source.read(name).replace(MAIN.encode(), kind))
    return LEFT


def template(path: Path) -> str:
    return with_macros(path, b"application/vnd.openxmlformats-officedocument.wordprocessingml.template.main+xml")


def field_errors(path: Path) -> str:
    document = docx.Document()
    document.add_paragraph("See section Error! Reference source not found. for roles.")
    document.add_paragraph("Stages\tError! Bookmark not defined.")
    document.save(path.with_suffix(".docx"))
    return "See section for roles. Stages"


def markdown(path: Path) -> str:
    picture = "data:image/png;base64," + "iVBORw0KGgo" * 40
    pictures = (
        f"Before ![a site]({picture}) after\n\n[logo]: {picture}\n---\n<img alt='x' src='{picture}'> End of it.\n"
    )
    path.with_suffix(".md").write_text(f"---\ntitle: Plan\ntags: [a, b]\n---\n# Purpose\n\n{pictures}")
    return "Before after End of it."


def wrapped(text: str, width: int) -> list[str]:
    lines = [""]
    for word in text.split():
        lines[-1:] = [f"{lines[-1]} {word}".strip()] if len(lines[-1]) + len(word) < width else [lines[-1], word]
    return lines


def columns_row_by_row(path: Path) -> str:
    canvas = Canvas(str(path.with_suffix(".pdf")))
    canvas.drawString(60, 800, "Execution plan for the northern building, third issue")
    for number, (left, right) in enumerate(zip(wrapped(LEFT, 40), wrapped(RIGHT, 40), strict=True)):
        canvas.drawString(60, 770 - 14 * number, left)
        canvas.drawString(320, 770 - 14 * number, right)
    canvas.save()
    return f"Execution plan for the northern building, third issue {LEFT} {RIGHT}"


def columns_in_turn(path: Path) -> str:
    frames = [Frame(60, 60, 230, 740), Frame(310, 60, 230, 740)]
    template = BaseDocTemplate(str(path.with_suffix(".pdf")))
    template.addPageTemplates([PageTemplate(frames=frames)])
    body = getSampleStyleSheet()["BodyText"]
    template.build([Paragraph(text, body) for text in [LEFT, RIGHT] * 8])
    return f"{LEFT} {RIGHT} " * 8


def table_in_a_pdf(path: Path) -> str:
    rows = [[f"Role number {i}", f"Person {i} of the team", f"Company {i} Limited"] for i in range(8)]
    template = BaseDocTemplate(str(path.with_suffix(".pdf")))
    template.addPageTemplates([PageTemplate(frames=[Frame(60, 60, 480, 740)])])
    template.build([Table(rows)])
    return " ".join(" ".join(row) for row in rows)


def hyphens(path: Path) -> str:
    canvas = Canvas(str(path.with_suffix(".pdf")))
    lines = [
        "The information require-",
        "ments of the client are in",
        "an annex, which is issu-",
        "ed with the plan as such.",
    ]
    for number, line in enumerate(lines):
        canvas.drawString(60, 800 - 14 * number, line)
    canvas.save()
    return "The information requirements of the client are in an annex, which is issued with the plan as such."


@pytest.mark.parametrize(
    ("write", "left_out"),
    [
        (ticks, ()),
        (equation, ()),
        (notes_and_hidden_text, ("runs of hidden text left out: 1",)),
        (tracked_rows, ("deletions left out: 1",)),
        (with_macros, ()),
        (template, ()),
        (field_errors, ()),
        (markdown, ("front matter left out: 1", "pictures within the text left out: 3")),
        (columns_row_by_row, ()),
        (columns_in_turn, ()),
        (table_in_a_pdf, ()),
        (hyphens, ()),
    ],
)
def test_the_words_are_read_in_their_order(write: Callable[[Path], str], left_out: tuple[str, ...], tmp_path: Path):
    expected = write(tmp_path / "document")
    (path,) = tmp_path.iterdir()
    found = read(path)
    cleaned = clean(found.text, mask=False, wrapped=path.suffix == ".pdf")
    assert recall(expected, cleaned.text.replace(" |", "")) >= 0.99, cleaned.text
    assert found.warnings == left_out
    for word in ("SECRET", "Gone", "Error!", "base64", "title:"):
        assert word not in cleaned.text


def test_a_table_is_not_taken_for_two_columns(tmp_path):
    """Cells of one line each are read row by row, however long they are."""
    canvas = Canvas(str(tmp_path / "table.pdf"))
    for number in range(8):
        canvas.drawString(60, 770 - 14 * number, f"Deliverable number {number} of the stage")
        canvas.drawString(320, 770 - 14 * number, f"Responsible person number {number}")
    canvas.save()
    words = " ".join(read(tmp_path / "table.pdf").text.split())
    assert words.startswith("Deliverable number 0 of the stage Responsible person number 0 Deliverable number 1")
