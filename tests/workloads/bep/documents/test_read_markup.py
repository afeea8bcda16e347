"""Web pages, OpenDocument texts and RTF files come as Word documents do: in order, without what is not shown."""

import time
import zipfile
from pathlib import Path

import pytest

from tests.workloads.bep.documents.reading import LIMIT, read, refusal

SPACES = " ".join(
    f'xmlns:{name}="urn:oasis:names:tc:opendocument:xmlns:{name}:1.0"' for name in ("office", "style", "table", "text")
)
PAGE = """<!DOCTYPE html><html><head><meta charset="{charset}"><title>None</title><style>p {{ top: 0 }}</style></head>
<body><nav>Home</nav><h1>1 Purpose</h1><p>Before <b>the</b>
  table, M\u00fcller &amp; Co.<p>Two<br>lines
<table><tr><th>Role<th>Name<tr><td>Lead<td><p>Ada</p><p>Wu</p></table><ul><li>first<li>second<ul>
<li>deep</ul></ul><p hidden>secret</p><span style="mso-hide: all">secret</span><!-- secret --><del>secret</del>
<script>if (1 < 2) {{}}</script>
<table><tr><td><p>Laid out</p><p>by a table</p></td></tr></table></body></html>"""
RTF = rb"""{\rtf1\ansi\ansicpg1252\deff0{\fonttbl{\f0\fcharset0 Arial;}{\f1\fcharset204 Other;}}{\colortbl;\red0;}
{\*\generator secret;}{\info{\author secret}}{\header secret\par}\pard\f0\b 1 Purpose\b0\par
Caf\'e9 \uc1\u8364?5 \uc2\u-10179\'3f?\u-8694\'3f?{\v secret}{\deleted secret} goes\~on{\footnote A note.}.\par
{\f1 \'cf\'eb\'e0\'ed}\line{\pict\bin3 }}}}{\field{\*\fldinst HYPERLINK "secret"}{\fldrslt a link}}\par
{\listtext\u8226?\tab}first\par
{\listtext\u8226?\tab}second\par
\trowd\intbl Role\cell Name\cell\row
\trowd\intbl Lead\cell Ada\par Wu\cell\row
\pard{\*\shpinst{\sp secret}{\shptxt Boxed.\par}}End.}"""


def opendocument(path: Path, body: str, manifest: str = "", body_of: str = "text") -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("mimetype", f"application/vnd.oasis.opendocument.{body_of}")
        archive.writestr(
            "content.xml",
            f'<office:document-content {SPACES}><office:automatic-styles><style:style style:name="T9">'
            '<style:text-properties text:display="none"/></style:style></office:automatic-styles>'
            f"<office:body><office:{body_of}>{body}</office:{body_of}></office:body></office:document-content>",
        )
        archive.writestr("META-INF/manifest.xml", f"<manifest>{manifest}</manifest>")
    return path


@pytest.mark.parametrize(("name", "charset"), [("a.html", "utf-8"), ("a.HTM", "windows-1252"), ("b.html", "utf-16")])
def test_a_page_comes_in_order_in_the_encoding_that_it_declares(tmp_path, name, charset):
    (tmp_path / name).write_bytes(PAGE.format(charset=charset).encode(charset))
    found = read(tmp_path / name)
    assert found.text == (
        "1 Purpose\n\nBefore the table, M\u00fcller & Co.\n\nTwo\nlines\n\nRole | Name\nLead | Ada Wu\n\n"
        "\u2022 first\n\u2022 second\n\u2022 deep\n\nLaid out\n\nby a table"
    )
    assert found.warnings == ("navigation left out: 1", "runs of hidden text left out: 2", "deletions left out: 1")


@pytest.mark.parametrize(
    ("declared", "content"),
    [
        ("iso-8859-1", "cp1252"),  # as browsers read it, and most programs write it
        ("ISO-8859-9", "cp1254"),
        ("utf-16", "cp1252"),
        ("iso-8859-1", "utf-8"),
        ("unicode", "utf-8"),
        ("no-such", "utf-8"),
    ],
)
def test_a_page_has_all_its_signs_though_it_declares_another_encoding(tmp_path, declared, content):
    text = "It\u2019s \u20ac 5 \u2013 caf\u00e9"
    (tmp_path / "a.html").write_bytes(f'<meta charset="{declared}"><p>{text}'.encode(content))
    assert read(tmp_path / "a.html").text == text


def test_a_byte_that_windows_has_no_sign_for_does_not_refuse_a_page(tmp_path):
    (tmp_path / "a.html").write_bytes(b'<meta charset="iso-8859-1"><p>It\x92s caf\xe9\x81')
    assert read(tmp_path / "a.html").text == "It\u2019s caf\u00e9"


def test_a_line_break_in_a_cell_stays_in_its_row_and_an_empty_item_is_none(tmp_path):
    (tmp_path / "a.html").write_text("<table><tr><td>Two<br>lines<td>Ada</table><ul><li></ul><p>Prose.</p>")
    assert read(tmp_path / "a.html").text == "Two lines | Ada\n\nProse."


def test_hidden_text_in_rtf_is_left_out_until_it_is_switched_off(tmp_path):
    (tmp_path / "a.rtf").write_bytes(
        rb"{\rtf1 One \v hidden \v0 two {\v {\b {\i {\ul hidden}}} hidden}{\v hidden\plain three}\par 1.\tab Four}"
    )
    found = read(tmp_path / "a.rtf")
    assert "hidden" not in found.text
    assert found.text.startswith("One two three\n\n")


def test_no_letter_is_lost_where_nothing_stands_in_for_a_unicode_sign(tmp_path):
    (tmp_path / "a.rtf").write_bytes(rb"{\rtf1\uc1 Plan\u8221\par Next\u8212\b  bold\b0\u8220\'93x\u8217\tab Tab.}")
    assert read(tmp_path / "a.rtf").text == "Plan\u201d\n\nNext\u2014 bold\u201cx\u2019\tTab."


@pytest.mark.parametrize("odd", [rb"{\pict\bin5 {{{{{}", rb"{\object{\*\objdata\bin5 }}}}}}}"])
def test_binary_parts_of_an_rtf_file_are_no_text(tmp_path, odd):
    (tmp_path / "a.rtf").write_bytes(rb"{\rtf1 " + odd + rb"Text\par}")
    assert read(tmp_path / "a.rtf").text == "Text"


def test_numbers_of_rtf_headings_stay_and_signs_of_lists_are_one(tmp_path):
    (tmp_path / "a.rtf").write_bytes(
        rb"{\rtf1 {\listtext{\f3 1}{\f2 .2}\tab}Scope\par"
        rb"{\listtext\'b7\tab}first\par{\listtext o\tab}second\par plain\par}"
    )
    assert read(tmp_path / "a.rtf").text == "1.2 Scope\n\n\u2022 first\n\u2022 second\n\nplain"


def test_a_font_of_no_code_page_has_the_documents_again(tmp_path):
    fonts = rb"{\fonttbl{\f0\fcharset0 A;}{\f1\fcharset204 B;}}"
    (tmp_path / "a.rtf").write_bytes(rb"{\rtf1\ansi\ansicpg1252" + fonts + rb"\f1\'cf\'f0 \f0 caf\'e9\par}")
    assert read(tmp_path / "a.rtf").text == "\u041f\u0440 caf\u00e9"


def test_a_text_box_in_rtf_is_read_once_without_what_older_programs_show(tmp_path):
    box = rb"{\shp{\*\shpinst{\shptxt Boxed\par}}{\shprslt\pard Boxed\par}}"
    (tmp_path / "a.rtf").write_bytes(rb"{\rtf1 " + box + rb"\pard End\par}")
    assert read(tmp_path / "a.rtf").text == "Boxed\n\nEnd"


def test_comments_of_rtf_are_counted(tmp_path):
    (tmp_path / "a.rtf").write_bytes(rb"{\rtf1\ansi Text{\*\annotation{\*\atnref 1}my comment}\par}")
    found = read(tmp_path / "a.rtf")
    assert (found.text, found.warnings) == ("Text", ("comments left out: 1",))


def test_a_number_that_is_no_sign_is_no_error_in_an_rtf_file(tmp_path):
    (tmp_path / "a.rtf").write_bytes(rb"{\rtf1 One\u99999999 y\u-999999 y\par}")
    assert read(tmp_path / "a.rtf").text.startswith("One")


def test_an_opendocument_text_comes_in_order_with_notes_after_their_paragraph(tmp_path):
    row = "<table:table-row>{}</table:table-row>".format
    cell = "<table:table-cell><text:p>{}</text:p></table:table-cell>".format
    body = (
        "<text:tracked-changes><text:p>secret</text:p></text:tracked-changes><text:table-of-content><text:p>1 Purpose 3"
        "</text:p></text:table-of-content><text:list><text:list-item><text:h>1 Purpose</text:h></text:list-item>"
        "</text:list><text:p>Before<text:note><text:note-citation>1</text:note-citation><text:note-body><text:p>A note."
        "</text:p></text:note-body></text:note> <text:span>the</text:span><text:s/>table<text:span "
        'text:style-name="T9">secret</text:span><office:annotation><text:p>secret</text:p></office:annotation>,<text:tab/>'
        "in<text:line-break/>lines.</text:p><table:table>"
        + row(cell("Role") + "<table:covered-table-cell/>" + cell("Name"))
        + row(cell("Lead") + cell("Ada"))
        + "</table:table><text:list><text:list-item><text:p>first</text:p></text:list-item>"
        "<text:list-item><text:p>second"
        '</text:p></text:list-item></text:list><text:section text:display="none"><text:p>secret</text:p></text:section>'
    )
    found = read(opendocument(tmp_path / "plan.odt", body))
    assert found.text == (
        "1 Purpose\n\nBefore the table,\tin\nlines.\n\nA note.\n\nRole | Name\nLead | Ada\n\n"
        "\u2022 first\n\u2022 second"
    )
    assert dict(each.split(" left out: ") for each in found.warnings) == {
        "lists of deletions": "1",
        "tables of contents": "1",
        "runs of hidden text": "2",
        "comments": "1",
    }


def test_rtf_comes_in_order_in_the_code_pages_of_its_fonts(tmp_path):
    (tmp_path / "plan.rtf").write_bytes(RTF)
    found = read(tmp_path / "plan.rtf")
    assert found.text == (
        "1 Purpose\n\nCaf\u00e9 \u20ac5 \U0001f60a goes\u00a0on.\n\nA note.\n\n\u041f\u043b\u0430\u043d\na link\n\n"
        "\u2022 first\n\u2022 second\n\nRole | Name\nLead | Ada Wu\n\nBoxed.\n\nEnd."
    )
    assert found.warnings == (
        "headers and footers left out: 1",
        "runs of hidden text left out: 1",
        "deletions left out: 1",
    )


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.rtf", b"Just text.", "is not a rtf file by its first bytes"),
        ("a.rtf", rb"{\rtf1 cut {off", "it ends within a group"),
        ("a.rtf", rb"{\rtf1\ansicpg12345 \'e9}", "is in an unknown code page, cp12345"),
        ("a.rtf", rb"{\rtf1 }", "is empty"),
        ("a.txt", rb"{\rtf1 text}", "is an RTF file by its first bytes, although its ending is .txt"),
        ("a.odt", b"PK\x03\x04 and then nothing", "cannot be read as an OpenDocument text"),
        ("a.html", b'<meta charset="no-such">\xe9', "cannot be decoded as no-such, which it declares"),
        ("a.html", b'<meta charset="ascii">\xe9', "cannot be decoded as ascii, which it declares"),
        ("a.html", b"<script>1</script>", "is empty"),
        ("a.html", b"PK\x03\x04" + bytes(40), "is a zip archive by its first bytes"),
    ],
)
def test_what_cannot_be_read_is_refused_in_a_line(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    assert message in refusal(tmp_path / name)


def test_an_opendocument_file_that_is_no_use_is_refused(tmp_path):
    assert "not a text; save it as .odt" in refusal(opendocument(tmp_path / "sheet.odt", "x", body_of="spreadsheet"))
    locked = opendocument(tmp_path / "locked.odt", "x", "<manifest:encryption-data/>")
    assert "is encrypted; save it without a password" in refusal(locked)
    bomb = opendocument(tmp_path / "bomb.odt", "x" * (LIMIT + 1))
    assert bomb.stat().st_size < LIMIT / 100
    assert f"more than data.maximum_bytes={LIMIT}" in refusal(bomb)
    with zipfile.ZipFile(tmp_path / "other.odt", "w") as archive:
        archive.writestr("plan.dwg", "lines")
    assert "is a zip archive but not an OpenDocument text" in refusal(tmp_path / "other.odt")


@pytest.mark.parametrize("odd", [b"<p ", b"<div>", b"<!--", b"<div></b>", b"<tr><td>", b"<li><ul>"])
def test_odd_pages_take_little_time(tmp_path, odd):
    (tmp_path / "a.html").write_bytes(b"<p>text</p>" + 20_000 * odd)
    began = time.process_time()
    assert read(tmp_path / "a.html").text
    assert time.process_time() - began < 5
