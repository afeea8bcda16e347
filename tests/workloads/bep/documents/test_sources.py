"""Documents are found below a folder and read in their encoding; what cannot be read is said in a line."""

import os
import tempfile
from pathlib import Path

import pytest

from common.disk.files import sha256
from common.errors import UserError
from pipelines.workloads.bep.documents import sources
from tests.workloads.bep.documents.reading import read, refusal


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
        ("a.txt", b"\0\0AB" * 100, "holds binary data"),
        ("a.txt", b"PK\x03\x04" + bytes(40), "is a zip archive by its first bytes, although its ending is .txt"),
        ("a.docx", b"%PDF-1.4 ...", "is a PDF by its first bytes, although its ending is .docx"),
        ("a.docx", b"Just text.", "is not a docx file by its first bytes"),
        ("a.docx", b"", "a.docx: is empty"),
        ("a.docx", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(500), "is an old or encrypted Office file; save it as"),
        ("a.docx", b"PK\x03\x04 and then nothing", "cannot be read as a Word document"),
        ("a.pdf", b"PK\x03\x04" + bytes(40), "is a zip archive by its first bytes, although its ending is .pdf"),
        ("a.pdf", b"%PDF-1.4\nand then nothing", "cannot be read as a PDF"),
    ],
)
def test_a_file_that_is_no_use_is_refused_in_a_line_with_its_name(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    said = refusal(tmp_path / name)
    assert any(part in said for part in message.split("|")), said


def test_a_file_larger_than_the_limit_is_refused(tmp_path):
    (tmp_path / "a.txt").write_text("x" * 101)
    assert "has 101 bytes when expanded, more than data.maximum_bytes=100" in refusal(tmp_path / "a.txt", 100)
    assert len(read(tmp_path / "a.txt", 101).text) == 101


def test_a_folder_is_read_with_all_below_it_and_the_rest_is_named(tmp_path):
    for name in ["b.md", "a.txt", "z/c.DOCX", "z/deep/d.pdf", ".hidden.txt", ".git/e.txt", "~$c.docx", "f.xlsx", "g"]:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    (tmp_path / "again.txt").symlink_to("a.txt")
    (tmp_path / ".git" / "link.txt").symlink_to("/etc/hostname")
    found = sources.find(str(tmp_path))
    assert list(found.files) == ["a.txt", "b.md", "z/c.DOCX", "z/deep/d.pdf"]
    assert found.files["z/c.DOCX"] == tmp_path / "z/c.DOCX"
    assert found.refused == {}
    assert found.ignored == {
        ".git/": "hidden",
        ".hidden.txt": "hidden",
        "again.txt": "a symbolic link within the folder",
        "f.xlsx": "tables are not read; save their prose as .docx or .txt",
        "g": "files of this kind cannot be read",
        "~$c.docx": "hidden",
    }


def test_a_folder_that_cannot_be_entered_is_refused_by_name():
    with tempfile.TemporaryDirectory() as folder:  # which others may enter
        Path(folder).chmod(0o755)
        Path(folder, "a.txt").write_text("x")
        Path(folder, "locked").mkdir(0o000)
        user = os.geteuid()
        try:
            os.seteuid(user or 65534)  # root may enter any folder
            found = sources.find(folder)
        finally:
            os.seteuid(user)
    assert list(found.files) == ["a.txt"]
    assert found.refused == {"locked": "cannot be read: Permission denied"}


def test_a_name_that_is_no_text_becomes_one(tmp_path):
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/gr\xf6\xdfe.txt")).write_text("x")
    assert list(sources.find(str(tmp_path)).files) == ["gr\ufffd\ufffde.txt"]


@pytest.mark.parametrize("target", ["../outside.txt", "../outside", "/etc/hostname", "nowhere/../../gone.txt"])
def test_a_link_out_of_the_folder_is_refused_by_name(tmp_path, target):
    inside = tmp_path / "inside"
    inside.mkdir()
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside.txt").write_text("secret")
    (tmp_path / "outside" / "x.txt").write_text("secret")
    (inside / "a.txt").write_text("x")
    (inside / "link.txt").symlink_to(target)
    found = sources.find(str(inside))
    assert list(found.files) == ["a.txt"]
    assert "is a symbolic link that leads out of" in found.refused["link.txt"]


def test_a_link_to_itself_is_no_document(tmp_path):
    (tmp_path / "a.txt").write_text("x")
    (tmp_path / "loop.txt").symlink_to("loop.txt")
    found = sources.find(str(tmp_path))
    assert (list(found.files), list(found.ignored)) == (["a.txt"], ["loop.txt"])


def test_the_folder_itself_may_be_a_link_and_a_file_a_source(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "a.txt").write_text("x")
    (tmp_path / "link").symlink_to("real")
    assert list(sources.find(str(tmp_path / "link")).files) == ["a.txt"]
    assert sources.find(str(tmp_path / "real" / "a.txt")).files == {"a.txt": tmp_path / "real" / "a.txt"}


@pytest.mark.parametrize(
    ("name", "message"), [("no/where", "no such folder or file"), ("a.xlsx", "tables are not read; save their prose")]
)
def test_a_source_that_is_none_is_refused(tmp_path, name, message):
    (tmp_path / "a.xlsx").write_text("x")
    with pytest.raises(UserError, match=message):
        sources.find(str(tmp_path / name))


def test_what_is_not_read_is_named_in_a_line_for_each_kind():
    reasons = {
        "a.doc": "save it",
        "b/c.DOC": "save it",
        "d.doc": "is empty",
        ".x": "hidden",
        "~$y.docx": "hidden",
        "g": "odd",
    }
    assert sources.listed(reasons) == [
        "not read: a.doc and 1 more .doc: save it",
        "not read: d.doc: is empty",
        "not read: .x and 1 more: hidden",
        "not read: g: odd",
    ]
