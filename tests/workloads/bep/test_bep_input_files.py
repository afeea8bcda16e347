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


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "cp1252", "utf-16"])
def test_lines_are_read_in_the_encodings_that_editors_write(tmp_path, encoding):
    (tmp_path / "a.txt").write_bytes("Die \u00dcbergabe\r\nGr\u00f6\u00dfe\r\n".encode(encoding))
    assert [given.input["prompt"] for given in read([tmp_path / "a.txt"])] == ["Die \u00dcbergabe", "Gr\u00f6\u00dfe"]
    (tmp_path / "b.json").write_bytes('{"projectScope": "Gr\u00f6\u00dfe"}'.encode(encoding))
    assert [given.input["prompt"] for given in read([tmp_path / "b.json"])] == ["Gr\u00f6\u00dfe"]
