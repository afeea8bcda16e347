"""A PDF comes page by page; encrypted, scanned and trapped ones are refused in a line."""

import io
from pathlib import Path

import pypdf

from tests.workloads.bep.documents.reading import read, refusal


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
