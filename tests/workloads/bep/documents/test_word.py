"""A Word document comes in the order of its body, and an archive that is a trap is refused."""

import struct
import zipfile
import zlib
from pathlib import Path

import docx
import pytest
from docx.enum.style import WD_STYLE_TYPE
from docx.oxml import OxmlElement, parse_xml
from docx.oxml.ns import nsdecls, qn

from pipelines.workloads.bep.documents import unpacked
from pipelines.workloads.bep.documents.word import WORD_PARTS
from tests.workloads.bep.documents.reading import LIMIT, read, refusal


def word(path: Path, *paragraphs: str) -> Path:
    document = docx.Document()
    for paragraph in paragraphs:
        document.add_paragraph(paragraph)
    document.save(path)
    return path


def test_a_zip_that_was_renamed_is_no_word_document(tmp_path):
    with zipfile.ZipFile(tmp_path / "drawings.docx", "w") as archive:
        archive.writestr("plan.dwg", "lines")
    assert "is a zip archive but not a Word document" in refusal(tmp_path / "drawings.docx")


def test_documents_within_a_document_are_counted(tmp_path):
    document = docx.Document()
    document.add_paragraph("Around it.")._p.addnext(parse_xml(f"<w:altChunk {nsdecls('w')}/>"))
    document.save(tmp_path / "a.docx")
    found = read(tmp_path / "a.docx")
    assert (found.text, found.warnings) == ("Around it.", ("embedded documents left out: 1",))


def test_a_word_document_comes_in_the_order_of_its_body(tmp_path):
    document = docx.Document()
    document.add_heading("1 Purpose", 1)
    document.add_paragraph("Before the table.")
    table = document.add_table(2, 2)
    for cell, text in zip(table._cells, ["Role", "Name", "Lead", "Ada"], strict=True):
        cell.text = text
    document.add_paragraph("After\tthe table,\nin two lines.")
    document.add_paragraph("first", style="List Bullet")
    document.add_paragraph("second", style="List Bullet")
    document.add_paragraph("", style="List Bullet")
    document.add_paragraph("End.")
    document.sections[0].header.paragraphs[0].text = "A header"
    document.sections[0].footer.paragraphs[0].text = "A footer"
    document.save(tmp_path / "plan.docx")
    found = read(tmp_path / "plan.docx")
    assert found.text == (
        "1 Purpose\n\nBefore the table.\n\nRole | Name\nLead | Ada\n\nAfter\tthe table,\nin two lines.\n\n"
        "\u2022 first\n\u2022 second\n\nEnd."
    )
    assert (found.pages, found.warnings) == (None, ("headers and footers left out: 2",))


def test_merged_cells_come_once_where_they_begin(tmp_path):
    document = docx.Document()
    table = document.add_table(3, 3)
    for number, cell in enumerate(table._cells):
        cell.text = f"c{number}"
    wide, tall = table.cell(0, 0).merge(table.cell(0, 1)), table.cell(1, 2).merge(table.cell(2, 2))
    wide.text, tall.text = "wide", "tall\nand\tin lines"
    # A program may leave in a cell what it had before it was merged into the one above.
    table._tbl.tr_lst[2].tc_lst[-1].p_lst[0].add_r().text = "hidden by the merge"
    inner = table.cell(1, 0).add_table(1, 2)
    inner.cell(0, 0).text, inner.cell(0, 1).text = "in", "ner"
    document.save(tmp_path / "merged.docx")
    assert read(tmp_path / "merged.docx").text == "wide | c2\nc3 in | ner | c4 | tall and in lines\nc6 | c7"


def test_what_word_wraps_around_text_is_read_and_what_was_deleted_is_not(tmp_path):
    document = docx.Document()
    paragraph = document.add_paragraph("kept")
    for xml in [
        '<w:ins {0} w:id="1"><w:r><w:t>+inserted</w:t></w:r></w:ins>',
        '<w:del {0} w:id="2"><w:r><w:delText>deleted</w:delText></w:r></w:del>',
        "<w:hyperlink {0}><w:r><w:t>+linked</w:t></w:r></w:hyperlink>",
        "<w:sdt {0}><w:sdtContent><w:r><w:t>+field</w:t></w:r></w:sdtContent></w:sdt>",
        '<w:r {0}><w:footnoteReference w:id="1"/></w:r>',
    ]:
        paragraph._p.append(parse_xml(xml.format(nsdecls("w"))))
    block = "<w:sdt {}><w:sdtContent><w:p><w:r><w:t>block</w:t></w:r></w:p></w:sdtContent></w:sdt>"
    paragraph._p.addnext(parse_xml(block.format(nsdecls("w"))))
    document.save(tmp_path / "form.docx")
    found = read(tmp_path / "form.docx")
    assert found.text == "kept+inserted+linked+field\n\nblock"
    assert found.warnings == ("deletions left out: 1", "footnotes and endnotes left out: 1")  # the note is missing


def test_a_text_box_comes_once_behind_its_paragraph(tmp_path):
    document = docx.Document()
    compatible = 'xmlns:mc="http://schemas.openxmlformats.org/markup-compatibility/2006"'
    box = "<w:txbxContent><w:p><w:r><w:t>boxed</w:t></w:r></w:p></w:txbxContent>"
    xml = (
        f"<w:r {nsdecls('w')} {compatible}><mc:AlternateContent><mc:Choice>{box}</mc:Choice>"
        f"<mc:Fallback>{box}</mc:Fallback></mc:AlternateContent></w:r>"
    )
    document.add_paragraph("anchor")._p.append(parse_xml(xml))
    document.save(tmp_path / "box.docx")
    assert read(tmp_path / "box.docx").text == "anchor\n\nboxed"


def test_a_bomb_is_refused_by_the_sizes_it_states(tmp_path):
    path = word(tmp_path / "bomb.docx", "Plan")
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("word/media/zeros.bin", bytes(5_000_000))
    assert path.stat().st_size < 100_000
    assert "bytes when expanded, more than data.maximum_bytes=1000000" in refusal(path)
    assert read(path, 10_000_000).text == "Plan"


def test_a_bomb_that_lies_about_its_sizes_is_not_expanded(tmp_path):
    """Its member states 10 bytes, and the check sum of the first 10, and has five million."""
    path = word(tmp_path / "liar.docx", "Plan")
    honest = len(unpacked(path.read_bytes(), LIMIT, WORD_PARTS).getvalue())
    name, zeros = b"word/media/zeros.bin", bytes(5_000_000)
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name.decode(), zeros)
    data = path.read_bytes()
    stated = struct.pack("<L", len(zeros))
    assert data.count(stated) == 2  # in front of the member, and in the list of all
    data = data.replace(stated, struct.pack("<L", 10))
    data = data.replace(struct.pack("<L", zlib.crc32(zeros)), struct.pack("<L", zlib.crc32(zeros[:10])))
    stored = unpacked(data, LIMIT, WORD_PARTS)
    assert len(stored.getvalue()) < honest + 1000
    with zipfile.ZipFile(stored) as archive:
        assert archive.read(name.decode()) == zeros[:10]
        assert all(member.compress_type == zipfile.ZIP_STORED for member in archive.infolist())


def test_an_encrypted_zip_is_refused(tmp_path):
    data = bytearray(word(tmp_path / "a.docx", "Plan").read_bytes())
    place = data.index(b"PK\x01\x02")
    data[place + 8] |= 1  # the flag of the first member in the list of all
    (tmp_path / "a.docx").write_bytes(data)
    assert "is encrypted; save it without a password" in refusal(tmp_path / "a.docx")


@pytest.mark.parametrize("style", ["List Number", "List Bullet 2", "Aufz\u00e4hlung"])
def test_items_whose_style_numbers_them_are_no_headings(tmp_path, style):
    document = docx.Document()
    if style not in (each.name for each in document.styles):
        document.styles.add_style(style, WD_STYLE_TYPE.PARAGRAPH).element.get_or_add_pPr().get_or_add_numPr()
    document.styles["Heading 1"].element.get_or_add_pPr().get_or_add_numPr()
    document.add_heading("Clash detection", 1)
    for text in ("Check naming by the task team", "Sign off by the client"):
        document.add_paragraph(text, style)
    plain = document.add_paragraph("Hard clashes are assigned on Friday.", style)
    plain._p.get_or_add_pPr().get_or_add_numPr().get_or_add_numId().val = 0  # as Word switches numbers off
    document.save(tmp_path / "a.docx")
    assert read(tmp_path / "a.docx").text == (
        "Clash detection\n\n\u2022 Check naming by the task team\n\u2022 Sign off by the client\n\n"
        "Hard clashes are assigned on Friday."
    )


@pytest.mark.parametrize("heading", ["Heading 1", "berschrift1", "Firm's title"])
def test_styles_inherit_whether_they_make_items(tmp_path, heading):
    document = docx.Document()
    styles = document.styles
    if heading not in (each.name for each in styles):
        styles.add_style(heading, WD_STYLE_TYPE.PARAGRAPH).base_style = styles["Heading 1"]
    styles[heading].element.get_or_add_pPr().get_or_add_numPr().get_or_add_numId().val = 1
    for name, base in (("Firm's item", "List Bullet"), ("Firm's second item", "Firm's item")):
        styles.add_style(name, WD_STYLE_TYPE.PARAGRAPH).base_style = styles[base]
    numbered = document.add_paragraph("Clash detection", heading)
    document.add_paragraph("Check naming", "Firm's item")
    document.add_paragraph("Sign off", "Firm's second item")
    second = document.add_paragraph("Handover", heading)
    for paragraph in (numbered, second):  # as the button for numbers writes it
        paragraph._p.get_or_add_pPr().get_or_add_numPr().get_or_add_numId().val = 1
    document.add_paragraph("The models are handed over.")
    document.save(tmp_path / "a.docx")
    assert read(tmp_path / "a.docx").text == (
        "Clash detection\n\n\u2022 Check naming\n\u2022 Sign off\n\nHandover\n\nThe models are handed over."
    )


def test_styles_that_are_based_on_each_other_end(tmp_path):
    document = docx.Document()
    first, second = (document.styles.add_style(name, WD_STYLE_TYPE.PARAGRAPH) for name in ("First", "Second"))
    first.base_style, second.base_style = second, first
    document.add_paragraph("Weekly.", first)
    document.save(tmp_path / "a.docx")
    assert read(tmp_path / "a.docx").text == "Weekly."


def test_the_nearest_word_on_numbers_counts_and_level_9_is_body_text(tmp_path):
    document = docx.Document()
    styles = document.styles

    def style(name, base=None, number=None, level=None):
        made = styles.add_style(name, WD_STYLE_TYPE.PARAGRAPH)
        made.base_style = base
        properties = made.element.get_or_add_pPr()
        if number is not None:
            properties.get_or_add_numPr().get_or_add_numId().val = number
        if level is not None:
            properties.append(OxmlElement("w:outlineLvl"))
            properties[-1].set(qn("w:val"), str(level))
        return made

    switched_off = style("Off", number=0)
    names = [style("On again", switched_off, 1), style("Body", level=9), switched_off]
    for made in names:
        paragraph = document.add_paragraph(made.name, made)
        if made.name != "On again":
            paragraph._p.get_or_add_pPr().get_or_add_numPr().get_or_add_numId().val = 1
    document.save(tmp_path / "a.docx")
    assert read(tmp_path / "a.docx").text == "\u2022 On again\n\u2022 Body\n\u2022 Off"
