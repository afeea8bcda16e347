"""Prepared data: made once, and trusted only with a manifest of the files that are there."""

import json

import pytest

from common.disk.prepared import prepare
from common.errors import UserError


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


def test_files_that_changed_are_refused_or_taken_in_by_what_renews_the_data(tmp_path):
    source, folder = tmp_path / "source", tmp_path / "data"
    source.write_text("old")

    def made(word):
        def write(temporary):
            (temporary / "rows.txt").write_text(word + source.read_text())
            return {"made": word}

        return write

    first = prepare(folder, {}, made("whole "), lambda: [source])
    assert prepare(folder, {}, pytest.fail, lambda: [source], pytest.fail) == first
    source.write_text("new")
    with pytest.raises(UserError, match=r"source has changed since .* was prepared; do this"):
        prepare(folder, {}, pytest.fail, lambda: [source], remedy="do this")
    again = prepare(folder, {}, pytest.fail, lambda: [source], made("renewed "))
    assert (folder / "rows.txt").read_text() == "renewed new"
    assert prepare(folder, {}, pytest.fail, lambda: [source]) == again
    added = tmp_path / "added"
    added.write_text("more")
    assert prepare(folder, {}, pytest.fail, lambda: [source, added], made("grown "))["made"] == "grown "
