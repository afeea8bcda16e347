"""A template of Word comes back with a plan's texts below its headings and beside its labels, and with all it had."""

import base64
import io
import re
import shutil
import subprocess

import docx
import pytest
from docx.oxml import parse_xml
from docx.oxml.ns import nsdecls
from docx.shared import RGBColor

from common.errors import UserError
from models.plans.fields import field_of
from pipelines.workloads.bep.documents.filling import exchanged, filled
from pipelines.workloads.bep.documents.word import read_docx
from pipelines.workloads.bep.input_files import about

PLAN = """# Clash detection

Weekly.

- Hard clashes

# Project name

Alder Mill

# Catering

None.

# Lifts

Two.
"""


@pytest.fixture
def template(tmp_path):
    document = docx.Document()
    document.sections[0].header.paragraphs[0].text = "Firm's header"
    document.styles["Heading 1"].font.color.rgb = RGBColor(1, 2, 3)
    document.styles.add_style("House text", 1)
    document.add_heading("4.2 Clash Detection and Resolution")
    document.add_paragraph("", "House text")
    document.add_heading("Security")
    document.add_paragraph("Guidance stays.")
    document.add_heading("Catering")
    table = document.add_table(3, 2, "Table Grid")
    table.cell(0, 0).text, table.cell(1, 0).text, table.cell(1, 1).text = "Project name", "Project scope", "All works"
    document.save(tmp_path / "template.docx")
    return tmp_path / "template.docx"


def test_texts_go_below_headings_and_beside_labels_and_nothing_is_lost(template):
    before = docx.Document(template)
    content, left = filled(template.read_bytes(), PLAN)
    after = docx.Document(io.BytesIO(content))
    found = [(each.text, each.style.name) for each in after.paragraphs]
    assert found[:3] == [
        ("4.2 Clash Detection and Resolution", "Heading 1"),
        ("Weekly.", "House text"),
        ("- Hard clashes", "House text"),
    ]
    assert found[found.index(("Catering", "Heading 1")) + 1] == ("None.", "Normal")
    assert [[cell.text for cell in row.cells] for row in after.tables[0].rows[:2]] == [
        ["Project name", "Alder Mill"],
        ["Project scope", "All works"],
    ]
    assert left == ["Lifts"]
    kept = iter(found)
    assert all((each.text, each.style.name) in kept for each in before.paragraphs)
    assert after.sections[0].header.paragraphs[0].text == "Firm's header"
    assert after.styles["Heading 1"].font.color.rgb == RGBColor(1, 2, 3)
    assert after.tables[0].style.name == "Table Grid"
    assert {part.partname for part in before.part.package.iter_parts()} == {
        part.partname for part in after.part.package.iter_parts()
    }


def test_a_document_is_read_and_what_it_says_is_not_repeated(template):
    filled_once = exchanged(template.read_bytes(), PLAN)
    assert filled_once["left"] == ["Lifts"]
    content = base64.b64decode(filled_once["document"])
    fields = exchanged(content, None)["fields"]
    assert fields == {
        "clashDetection": "Weekly.\n- Hard clashes",
        "projectName": "Alder Mill",
        "projectScope": "All works",
        **{name: text for name, text in fields.items() if text == "Guidance stays."},
    }
    again, _ = filled(content, PLAN.replace("Weekly.", "Weekly.\nMore."))
    again = docx.Document(io.BytesIO(again))
    texts = [each.text for each in again.paragraphs]
    assert (texts.count("Weekly."), texts.count("More."), texts.count("None.")) == (1, 1, 1)


def test_without_a_template_the_document_is_the_plan():
    found = docx.Document(io.BytesIO(base64.b64decode(exchanged(b"", PLAN)["document"])))
    assert [(each.text, each.style.name) for each in found.paragraphs][:3] == [
        ("Clash detection", "Heading 1"),
        ("Weekly.", "Normal"),
        ("- Hard clashes", "Normal"),
    ]
    with pytest.raises(UserError, match="cannot be read as a Word document"):
        exchanged(b"none", PLAN)


def test_every_field_is_known_by_the_heading_that_the_page_downloads():
    form = about([])["form"]
    assert {name: field_of(each["label"]) for name, each in form.items()} == {name: name for name in form}
    labels = [each["label"] for each in form.values()]
    assert {"BIM objectives", "CDE workflow", "COBie requirements", "Health and safety"} <= set(labels)
    assert not [
        label for label in labels if re.search("Bim|Cde|Cobie|[MT]idp|Qa |[a-z][A-Z]", label.replace("COBie", ""))
    ]


@pytest.mark.exhaustive
def test_libreoffice_sees_all_that_the_template_had_and_the_texts(template):
    office = shutil.which("soffice")
    assert office, "apt-get install libreoffice-writer-nogui"
    folder = template.parent
    (folder / "filled.docx").write_bytes(filled(template.read_bytes(), PLAN)[0])
    seen = {}
    for name in ("template", "filled"):
        command = [office, "--headless", f"-env:UserInstallation=file://{folder}/profile", "--convert-to", "fodt"]
        subprocess.run([*command, "--outdir", folder, folder / f"{name}.docx"], check=True, capture_output=True)
        text = (folder / f"{name}.fodt").read_text(encoding="utf-8")
        text = re.sub(r">\s*<", ">\n<", re.sub("(<text:p [^>]*)/>", r"\1></text:p>", text))
        seen[name] = [line for line in text.split("\n") if "document-statistic" not in line and "Rsid" not in line]
    kept = iter("\n".join(seen["filled"]).replace("Alder Mill</text:p>", "\n</text:p>").split("\n"))
    assert [line for line in seen["template"] if line not in kept] == []
    for text in ("Weekly.", "- Hard clashes", "None.", "Alder Mill"):
        assert any(text in line for line in seen["filled"])


def test_a_firms_own_style_of_headings_is_a_heading():
    document = docx.Document()
    document.styles.add_style("Firm's title", 1).base_style = document.styles["Heading 2"]
    document.add_paragraph("Clash detection", "Firm's title")
    stream = io.BytesIO()
    document.save(stream)
    content, left = filled(stream.getvalue(), PLAN)
    texts = [each.text for each in docx.Document(io.BytesIO(content)).paragraphs]
    assert texts == ["Clash detection", "Weekly.", "- Hard clashes"]
    assert "Clash detection" not in left


def test_the_title_of_a_table_of_contents_is_no_topic():
    document = docx.Document()
    document.add_paragraph("Clash detection", "TOC Heading")
    stream = io.BytesIO()
    document.save(stream)
    content, _ = filled(stream.getvalue(), PLAN)
    assert "Weekly." not in [each.text for each in docx.Document(io.BytesIO(content)).paragraphs][:2]


def stored(document):
    stream = io.BytesIO()
    document.save(stream)
    return stream.getvalue()


def test_a_text_whose_cell_is_taken_is_listed_as_left():
    document = docx.Document()
    table = document.add_table(2, 2)
    table.cell(0, 0).text, table.cell(0, 1).text = "Clash detection", "Monthly."
    table.cell(1, 0).merge(table.cell(1, 1)).text = "Project name"
    content, left = filled(stored(document), PLAN)
    assert left == ["Clash detection", "Project name", "Catering", "Lifts"]
    assert exchanged(content, None)["fields"] == {"clashDetection": "Monthly."}


def test_a_label_in_a_nested_table_has_its_text_beside_it():
    document = docx.Document()
    table = document.add_table(1, 1).cell(0, 0).add_table(1, 2)
    table.cell(0, 0).text = "Project name"
    content, left = filled(stored(document), PLAN)
    assert left == ["Clash detection", "Catering", "Lifts"]
    assert exchanged(content, None)["fields"] == {"projectName": "Alder Mill"}


CONTROL = """<w:sdt {names}><w:sdtPr>{hint}</w:sdtPr><w:sdtContent>{content}</w:sdtContent></w:sdt>"""
TEXT = "<w:r><w:t>{text}</w:t><w:tab/><w:t>, every week</w:t></w:r>"


@pytest.mark.parametrize("control", [CONTROL, "<w:ins {names} w:id='1' w:author='A'>{content}</w:ins>"])
def test_what_content_controls_and_insertions_say_is_read_and_hints_are_not(control):
    document = docx.Document()
    document.add_heading("Clash detection")
    document.add_paragraph()._p.append(
        parse_xml(control.format(names=nsdecls("w"), hint="", content=TEXT.format(text="Ours")))
    )
    table = document.add_table(1, 2)
    table.cell(0, 0).text = "Project name"
    hint = CONTROL.format(names=nsdecls("w"), hint="<w:showingPlcHdr/>", content=TEXT.format(text="Click here"))
    table.cell(0, 1).paragraphs[0]._p.append(parse_xml(hint))
    assert exchanged(stored(document), None)["fields"] == {"clashDetection": "Ours\t, every week"}


def test_a_heading_in_a_content_control_has_its_text_below_it():
    document = docx.Document()
    heading = document.add_heading("Clash detection")._p
    control = parse_xml(CONTROL.format(names=nsdecls("w"), hint="", content=""))
    heading.addprevious(control)
    control[1].append(heading)
    content, left = filled(stored(document), PLAN)
    assert left == ["Project name", "Catering", "Lifts"]
    assert exchanged(content, None)["fields"] == {"clashDetection": "Weekly.\n- Hard clashes"}


def test_cells_in_content_controls_and_controls_in_cells_are_filled():
    document, empty = docx.Document(), CONTROL.format(names=nsdecls("w"), hint="", content="")
    table = document.add_table(3, 2)
    for row, label in enumerate(("Clash detection", "Project name", "Lifts")):
        table.cell(row, 0).text = label
    inside = table.cell(0, 1)._tc  # of which a control holds the paragraph
    inside.append(parse_xml(empty))
    inside[-1][1].append(inside.p_lst[0])
    for element in (table.cell(1, 1)._tc, table.rows[2]._tr):  # which a control holds
        element.addprevious(control := parse_xml(empty))
        control[1].append(element)
    content, left = filled(stored(document), PLAN)
    assert left == ["Catering"]
    assert exchanged(content, None)["fields"] == {
        "clashDetection": "Weekly.\n- Hard clashes",
        "projectName": "Alder Mill",
    }
    assert read_docx(content, 1_000_000)[0].endswith("\nLifts | Two.")


def test_a_cell_that_goes_on_from_the_row_above_is_neither_a_label_nor_a_place():
    document = docx.Document()
    table = document.add_table(2, 2)
    table.cell(0, 0).text, table.cell(1, 0).text = "Clash detection", "Project name"
    for cell, start in zip(table.columns[1].cells, ("", "w:val='restart'"), strict=True):  # the first has none above
        cell._tc.get_or_add_tcPr().append(parse_xml(f"<w:vMerge {nsdecls('w')} {start}/>"))
    content, left = filled(stored(document), PLAN)
    assert left == ["Clash detection", "Catering", "Lifts"]
    assert exchanged(content, None)["fields"] == {"projectName": "Alder Mill"}


def test_a_cell_with_a_space_is_empty():
    document = docx.Document()
    table = document.add_table(1, 2)
    table.cell(0, 0).text, table.cell(0, 1).text = "Project name", " \n\u00a0"
    table.cell(0, 1).add_paragraph()
    content, left = filled(stored(document), PLAN)
    assert "Project name" not in left
    assert exchanged(content, None)["fields"] == {"projectName": "Alder Mill"}
    first, second = docx.Document(io.BytesIO(content)).tables[0].cell(0, 1).paragraphs
    assert (first.text.strip(), second.text) == ("Alder Mill", "")


def test_a_field_that_stands_in_several_places_is_read_whole_and_not_repeated():
    document = docx.Document()
    document.add_heading("Clash detection")
    document.add_paragraph("Weekly.")
    document.add_heading("Clash detection and resolution", 2)
    document.add_paragraph("- Hard clashes\n- Soft clashes")  # of two lines
    document.add_table(1, 2).cell(0, 0).text = "Clash detection"
    fields = exchanged(stored(document), None)["fields"]
    assert fields == {"clashDetection": "Weekly.\n- Hard clashes\n- Soft clashes"}
    content, _ = filled(stored(document), f"# Clash detection\n\n{fields['clashDetection']}\nDaily.\n")
    texts = "\n".join(each.text for each in docx.Document(io.BytesIO(content)).paragraphs).split("\n")
    assert [texts.count(line) for line in ("Weekly.", "- Hard clashes", "- Soft clashes", "Daily.")] == [1, 1, 1, 1]


def test_a_plan_without_a_heading_is_refused_and_characters_that_word_cannot_hold_are_left_out():
    with pytest.raises(UserError, match="the plan begins without a heading; give one, as in '# Project scope'"):
        filled(b"", "Weekly.\n# Lifts\nTwo.")
    content, _ = filled(b"", "# Clash detection\nWeek\x00ly\x1f.")
    assert exchanged(content, None)["fields"] == {"clashDetection": "Weekly."}


def test_lines_that_a_page_parts_and_headings_that_stand_twice_lose_nothing():
    document, left = filled(b"", "\ufeff# Project scope\nA\x0bB\x0cC\n# Goals\nD\n# Project scope\nE\n")
    assert left == []
    lines = [paragraph.text for paragraph in docx.Document(io.BytesIO(document)).paragraphs]
    assert lines == ["Project scope", "A", "B", "C", "E", "Goals", "D"]
