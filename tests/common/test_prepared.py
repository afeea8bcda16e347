"""Prepared data: made once, and trusted only with a manifest of the files that are there."""

import json

import pytest

from common.errors import UserError
from common.prepared import prepare


def prepared(folder):
    def write(temporary):
        (temporary / "rows.txt").write_text("1\n")
        return {"rows": 1}

    return prepare(folder, {"size": 1}, write, list)


def test_data_are_prepared_once(tmp_path):
    first = prepared(tmp_path / "data")
    (tmp_path / "data/rows.txt").write_text("2\n")
    assert prepared(tmp_path / "data") == first
    assert (tmp_path / "data/rows.txt").read_text() == "2\n"


def test_data_that_need_no_files_are_prepared_too(tmp_path):
    first = prepare(tmp_path / "data", {}, lambda temporary: {"rows": 1}, list)
    assert prepare(tmp_path / "data", {}, pytest.fail, list) == first


@pytest.mark.parametrize(
    ("manifest", "said"),
    [
        ({}, "'sha256'"),
        ([], "must be"),
        ({"rows": 1, "inputs": {}, "sha256": {}}, "it lists none of the files there"),
        ({"rows": 1, "inputs": {}, "sha256": {"rows.txt": "", "more.txt": ""}}, "more.txt is not there"),
    ],
)
def test_a_manifest_that_is_none_is_refused(tmp_path, manifest, said):
    prepared(tmp_path / "data")
    (tmp_path / "data/manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(UserError, match=r"is not the manifest of prepared data .*; delete .* to prepare it") as caught:
        prepared(tmp_path / "data")
    assert said in str(caught.value)
