"""Prepared data: made once, and trusted only with a manifest of the files that are there."""

import json
from contextlib import contextmanager

import pytest
from pydantic import BaseModel

from common.disk import prepared as module
from common.disk.prepared import folder_for, prepare
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


class Ordered(BaseModel):
    size: int = 3
    loader: int = 1
    kind: str = "a"


class Reordered(BaseModel):
    kind: str = "a"
    size: int = 3


def test_the_folder_depends_on_the_values_that_decide_the_data_and_on_nothing_else():
    folder = folder_for("toy", Ordered(), 1)
    assert folder.parts[:2] == ("data", "toy")
    assert len(folder.name) == 16
    assert {folder_for("toy", Ordered(loader=9), 1), folder_for("toy", Reordered(), 1)} == {folder}
    assert len({folder, folder_for("toy", Ordered(size=4), 1), folder_for("toy", Ordered(), 2)}) == 3


def test_data_that_are_there_are_read_without_a_lock(tmp_path, monkeypatch):
    first = prepared(tmp_path / "data")
    monkeypatch.setattr(module, "held", pytest.fail)
    assert prepared(tmp_path / "data") == first


def test_data_are_read_while_others_beside_them_are_being_prepared(tmp_path, monkeypatch):
    first = prepared(tmp_path / "data")
    (tmp_path / ".lock").touch()

    @contextmanager
    def of_another(path):
        raise UserError(f"{path.parent} is being written by another process")
        yield

    monkeypatch.setattr(module, "held", of_another)
    assert prepared(tmp_path / "data") == first


def test_files_that_are_gone_have_not_changed(tmp_path):
    source = tmp_path / "source.txt"
    source.touch()
    first = prepare(tmp_path / "data", {}, lambda temporary: {}, lambda: [source])
    source.unlink()
    assert prepare(tmp_path / "data", {}, pytest.fail, list) == first


def leave_behind(tmp_path):
    (tmp_path / ".lock").touch()
    for name in (".data.tmp", ".data.parts"):
        (tmp_path / name).mkdir()


def test_what_killed_processes_left_is_removed_with_the_parts_of_the_data(tmp_path):
    leave_behind(tmp_path)

    def write(temporary):
        assert (tmp_path / ".data.parts").exists()  # to go on with
        assert not (tmp_path / ".other.tmp").exists()
        return {}

    (tmp_path / ".other.tmp").mkdir()
    prepare(tmp_path / "data", {}, write, list)
    assert [path.name for path in tmp_path.iterdir()] == ["data"]
    leave_behind(tmp_path)
    prepare(tmp_path / "data", {}, pytest.fail, list)
    assert [path.name for path in tmp_path.iterdir()] == ["data"]


def test_a_manifest_without_inputs_counts_every_file_as_new(tmp_path):
    (tmp_path / "source").touch()
    prepared(tmp_path / "data")
    manifest = json.loads((tmp_path / "data/manifest.json").read_text())
    (tmp_path / "data/manifest.json").write_text(json.dumps({**manifest, "inputs": None}))
    assert prepared(tmp_path / "data")["rows"] == 1
    with pytest.raises(UserError, match="source has changed since"):
        prepare(tmp_path / "data", {}, pytest.fail, lambda: [tmp_path / "source"])


def test_data_that_another_process_made_meanwhile_are_not_made_again_but_checked(tmp_path, monkeypatch):
    source, folder = tmp_path / "source", tmp_path / "data"
    source.write_text("old")
    held = module.held

    @contextmanager
    def late(path, wait=False):
        assert wait
        monkeypatch.setattr(module, "held", held)
        prepare(folder, {}, lambda temporary: {}, lambda: [source])
        source.write_text("new")
        yield

    monkeypatch.setattr(module, "held", late)
    with pytest.raises(UserError, match="source has changed since"):
        prepare(folder, {}, pytest.fail, lambda: [source])
