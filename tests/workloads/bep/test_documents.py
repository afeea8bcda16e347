"""Text comes out of each kind of file in its order, and what cannot be read is said in a line."""

import io
import os
import struct
import zipfile
import zlib
from pathlib import Path

import docx
import pypdf
import pytest
from docx.oxml import parse_xml
from docx.oxml.ns import nsdecls

from common.errors import UserError
from common.files import sha256
from pipelines.workloads.bep import documents

LIMIT = 1_000_000


def read(path: Path, limit: int = LIMIT) -> documents.Document:
    return documents.read(path, path.name, limit)


def refusal(path: Path, limit: int = LIMIT) -> str:
    with pytest.raises(UserError) as error:
        read(path, limit)
    assert "\n" not in str(error.value)
    assert str(error.value).startswith(f"{path.name}: ")
    return str(error.value)


def word(path: Path, *paragraphs: str) -> Path:
    document = docx.Document()
    for paragraph in paragraphs:
        document.add_paragraph(paragraph)
    document.save(path)
    return path


def pdf(path: Path, *pages: str) -> Path:
    """A PDF with a page for each text, a line of it below the other."""
    count = len(pages)
    kids = " ".join(f"{4 + 2 * number} 0 R" for number in range(count))
    bodies = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Kids [{kids}] /Count {count} >>".encode(),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>",
    ]
    for number, page in enumerate(pages):
        shown = " ".join(f"({line}) Tj T*" for line in page.split("\n") if line)
        stream = f"BT /F1 11 Tf 14 TL 50 780 Td {shown} ET".encode("cp1252")
        bodies += [
            b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] /Resources << /Font << /F1 3 0 R >> >> "
            + f"/Contents {5 + 2 * number} 0 R >>".encode(),
            f"<< /Length {len(stream)} >>\nstream\n".encode() + stream + b"\nendstream",
        ]
    data, places = b"%PDF-1.4\n", []
    for number, body in enumerate(bodies, 1):
        places.append(len(data))
        data += f"{number} 0 obj\n".encode() + body + b"\nendobj\n"
    table = "".join(f"{place:010} 00000 n \n" for place in places)
    end = f"xref\n0 {len(bodies) + 1}\n0000000000 65535 f \n{table}trailer\n<< /Size {len(bodies) + 1} /Root 1 0 R >>\n"
    path.write_bytes(data + f"{end}startxref\n{len(data)}\n%%EOF\n".encode())
    return path


def encrypted(path: Path, source: Path, user: str) -> Path:
    writer = pypdf.PdfWriter(clone_from=source)
    writer.encrypt(user, "owner", algorithm="RC4-128")
    writer.write(path)
    return path


@pytest.mark.parametrize(
    ("content", "text", "warning"),
    [
        ("Plan für B\n".encode(), "Plan für B\n", None),
        (b"\xef\xbb\xbfPlan", "Plan", None),
        ("Plan € ü".encode("utf-16"), "Plan € ü", None),
        (b"\xfe\xff" + "Plan".encode("utf-16-be"), "Plan", None),
        ("Plan".encode("utf-32"), "Plan", None),
        ("Plan of the works".encode("utf-16-le"), "Plan of the works", "utf-16-le, though it has no byte order mark"),
        (b"M\xfcller \x80 5\n", "Müller € 5\n", "not UTF-8 and were read as cp1252: 1"),
        ("Größe\n".encode() + b"Gr\xf6\xdfe\n" + b"M\xfcller", "Größe\nGröße\nMüller", "read as cp1252: 2"),
    ],
)
def test_text_is_read_in_its_encoding_and_a_guess_is_a_warning(tmp_path, content, text, warning):
    path = tmp_path / "plan.txt"
    path.write_bytes(content)
    found = read(path)
    assert (found.name, found.text, found.pages) == ("plan.txt", text, None)
    assert found.sha256 == sha256(path)
    assert [warning in each for each in found.warnings] == ([True] if warning else [])


def test_form_feeds_of_a_text_file_are_its_pages(tmp_path):
    (tmp_path / "a.TXT").write_text("one\ftwo\fthree")
    assert read(tmp_path / "a.TXT").pages == 3


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.txt", b"", "is empty"),
        ("a.md", b" \n\t\f\n", "no text|is empty"),
        ("a.txt", b"caf\x81e", "cannot be decoded (neither UTF-8 nor cp1252)"),
        ("a.txt", bytes(range(256)) * 4, "holds binary data"),
        ("a.txt", b"PK\x03\x04" + bytes(40), "is a zip archive by its first bytes, whatever its ending .txt says"),
        ("a.docx", b"%PDF-1.4 ...", "is a PDF by its first bytes, whatever its ending .docx says"),
        ("a.docx", b"Just text.", "is not a docx file by its first bytes"),
        ("a.docx", b"", "is empty|cannot be read as a Word document"),
        ("a.docx", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(500), "is an old or encrypted Office file; save it as"),
        ("a.docx", b"PK\x03\x04 and then nothing", "cannot be read as a Word document"),
        ("a.pdf", b"PK\x03\x04" + bytes(40), "is a zip archive by its first bytes, whatever its ending .pdf says"),
        ("a.pdf", b"%PDF-1.4\nand then nothing", "cannot be read as a PDF"),
    ],
)
def test_a_file_that_is_no_use_is_refused_in_a_line_with_its_name(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    said = refusal(tmp_path / name)
    assert any(part in said for part in message.split("|")), said


def test_a_zip_that_was_renamed_is_no_word_document(tmp_path):
    with zipfile.ZipFile(tmp_path / "drawings.docx", "w") as archive:
        archive.writestr("plan.dwg", "lines")
    assert "is a zip archive, but no Word document" in refusal(tmp_path / "drawings.docx")


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
    document.add_paragraph("")
    document.add_paragraph("End.")
    document.sections[0].header.paragraphs[0].text = "A header"
    document.sections[0].footer.paragraphs[0].text = "A footer"
    document.save(tmp_path / "plan.docx")
    found = read(tmp_path / "plan.docx")
    assert found.text == (
        "1 Purpose\n\nBefore the table.\n\nRole | Name\nLead | Ada\n\nAfter\tthe table,\nin two lines.\n\n"
        "\u2022 first\n\u2022 second\n\nEnd."
    )
    assert (found.pages, found.warnings) == (None, ())


def test_merged_cells_come_once_where_they_begin(tmp_path):
    document = docx.Document()
    table = document.add_table(3, 3)
    for number, cell in enumerate(table._cells):
        cell.text = f"c{number}"
    wide, tall = table.cell(0, 0).merge(table.cell(0, 1)), table.cell(1, 2).merge(table.cell(2, 2))
    wide.text, tall.text = "wide", "tall"
    # A program may leave in a cell what it had before it was merged into the one above.
    table._tbl.tr_lst[2].tc_lst[-1].p_lst[0].add_r().text = "hidden by the merge"
    inner = table.cell(1, 0).add_table(1, 2)
    inner.cell(0, 0).text, inner.cell(0, 1).text = "in", "ner"
    document.save(tmp_path / "merged.docx")
    assert read(tmp_path / "merged.docx").text == "wide | c2\nc3 in | ner | c4 | tall\nc6 | c7"


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
    assert found.warnings == ("footnotes and endnotes left out: 1",)


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
    honest = len(documents._unpacked(path.read_bytes(), LIMIT).getvalue())
    name, zeros = b"word/media/zeros.bin", bytes(5_000_000)
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name.decode(), zeros)
    data = path.read_bytes()
    stated = struct.pack("<L", len(zeros))
    assert data.count(stated) == 2  # in front of the member, and in the list of all
    data = data.replace(stated, struct.pack("<L", 10))
    data = data.replace(struct.pack("<L", zlib.crc32(zeros)), struct.pack("<L", zlib.crc32(zeros[:10])))
    stored = documents._unpacked(data, LIMIT)
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


def test_a_file_larger_than_the_limit_is_refused(tmp_path):
    (tmp_path / "a.txt").write_text("x" * 101)
    assert "has 101 bytes when expanded, more than data.maximum_bytes=100" in refusal(tmp_path / "a.txt", 100)
    assert len(read(tmp_path / "a.txt", 101).text) == 101


def test_pages_of_a_pdf_are_kept_apart(tmp_path):
    found = read(pdf(tmp_path / "plan.pdf", "First page\nof the plan", "Second page"))
    assert found.text == "First page\nof the plan\fSecond page"
    assert (found.pages, found.warnings) == (2, ())


def test_an_encrypted_pdf_is_refused_unless_the_empty_password_opens_it(tmp_path):
    plain = pdf(tmp_path / "plain.pdf", "The plan")
    assert "is encrypted; save it without a password" in refusal(encrypted(tmp_path / "secret.pdf", plain, "user"))
    assert read(encrypted(tmp_path / "no_printing.pdf", plain, "")).text == "The plan"


def test_a_pdf_without_text_is_scanned_and_one_with_a_picture_page_warns(tmp_path):
    assert "has 2 pages but no text (scanned?)" in refusal(pdf(tmp_path / "scan.pdf", "", ""))
    found = read(pdf(tmp_path / "plan.pdf", "Text", "", "Text"))
    assert found.warnings == ("pages without text (scanned, or pictures only): 1 of 3",)


def test_a_damaged_pdf_that_can_be_read_tells_of_it(tmp_path, capfd):
    path = pdf(tmp_path / "plan.pdf", "The plan")
    path.write_bytes(path.read_bytes().replace(b"startxref\n", b"startxref\n9"))
    found = read(path)
    assert found.text == "The plan"
    assert "problems met in reading" in found.warnings[0]
    assert capfd.readouterr().err == ""


def test_a_pdf_whose_stream_expands_beyond_the_limit_is_refused(tmp_path):
    path = pdf(tmp_path / "plan.pdf", "The plan")
    writer = pypdf.PdfWriter(clone_from=path)
    writer.pages[0].get_contents()
    stream = pypdf.generic.StreamObject()
    stream.set_data(b"BT (x) Tj ET\n" * 200_000)
    writer.pages[0][pypdf.generic.NameObject("/Contents")] = writer._add_object(stream.flate_encode())
    buffer = io.BytesIO()
    writer.write(buffer)
    path.write_bytes(buffer.getvalue())
    assert path.stat().st_size < 50_000
    assert "cannot be read as a PDF: Limit reached" in refusal(path)


def test_a_folder_is_read_with_all_below_it_and_the_rest_is_named(tmp_path):
    for name in ["b.md", "a.txt", "z/c.DOCX", "z/deep/d.pdf", ".hidden.txt", ".git/e.txt", "~$c.docx", "f.xlsx", "g"]:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    (tmp_path / "again.txt").symlink_to("a.txt")
    (tmp_path / ".git" / "link.txt").symlink_to("/etc/hostname")
    found = documents.find(str(tmp_path))
    assert list(found.files) == ["a.txt", "b.md", "z/c.DOCX", "z/deep/d.pdf"]
    assert found.files["z/c.DOCX"] == tmp_path / "z/c.DOCX"
    assert found.refused == {}
    assert found.ignored == {
        ".git/": "hidden",
        ".hidden.txt": "hidden",
        "again.txt": "a symbolic link within the folder",
        "f.xlsx": "not a kind of file that is read",
        "g": "not a kind of file that is read",
        "~$c.docx": "hidden",
    }


def test_a_name_that_is_no_text_becomes_one(tmp_path):
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/gr\xf6\xdfe.txt")).write_text("x")
    assert list(documents.find(str(tmp_path)).files) == ["gr\ufffd\ufffde.txt"]


@pytest.mark.parametrize("target", ["../outside.txt", "../outside", "/etc/hostname", "nowhere/../../gone.txt"])
def test_a_link_out_of_the_folder_is_refused_by_name(tmp_path, target):
    inside = tmp_path / "inside"
    inside.mkdir()
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside.txt").write_text("secret")
    (tmp_path / "outside" / "x.txt").write_text("secret")
    (inside / "a.txt").write_text("x")
    (inside / "link.txt").symlink_to(target)
    found = documents.find(str(inside))
    assert list(found.files) == ["a.txt"]
    assert "is a symbolic link that leads out of" in found.refused["link.txt"]


def test_the_folder_itself_may_be_a_link_and_a_file_a_source(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "a.txt").write_text("x")
    (tmp_path / "link").symlink_to("real")
    assert list(documents.find(str(tmp_path / "link")).files) == ["a.txt"]
    assert documents.find(str(tmp_path / "real" / "a.txt")).files == {"a.txt": tmp_path / "real" / "a.txt"}


@pytest.mark.parametrize(("name", "message"), [("no/where", "no such folder or file"), ("a.xlsx", "is not read")])
def test_a_source_that_is_none_is_refused(tmp_path, name, message):
    (tmp_path / "a.xlsx").write_text("x")
    with pytest.raises(UserError, match=message):
        documents.find(str(tmp_path / name))
