"""Files of texts to complete."""

import pytest

from pipelines.workloads.bep.input_files import read


@pytest.mark.parametrize("name", ["plan.docx", "plan.pdf", "plan.odt"])
def test_a_document_given_by_name_is_no_text_to_complete(tmp_path, name):
    (tmp_path / name).write_bytes(b"PK\x03\x04 words\n more words\n")
    (given,) = read([tmp_path / name])
    assert given.input is None
    assert "a document is no text to complete; give field=NAME" in given.error


def test_lines_of_text_and_fields_of_forms_are_read(tmp_path):
    (tmp_path / "a.txt").write_text("The client\n\nThe team\n")
    (tmp_path / "b.json").write_text('{"projectScope": "The"}')
    found = [given.input for given in read([tmp_path])]
    assert [each["prompt"] for each in found] == ["The client", "The team", "The"]
    assert found[2]["field"] == "projectScope"
