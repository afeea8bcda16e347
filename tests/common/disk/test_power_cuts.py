"""Whenever the power is cut, what was written as a whole is the old or the new; once the call has ended, the new."""

import os
from pathlib import Path

import pytest
import torch

from common.disk import files
from pipelines.engine.checkpoints import FILES, MANIFEST, Snapshot
from tests.power import Disk

OLD, NEW = {"a": b"old", "in/b": b"old too"}, {"a": b"new" * 1000, "in/b": b"newer", "in/c": b""}


def contents(folder):
    files.tidy(folder)
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def cut_anywhere(root, write, allowed, after):
    """Call `write`; after a cut at any moment one of `allowed`, and after its end `after`, is what a disk holds."""
    cuts = []

    def check():
        for survivor in disk.survivors(root.with_name("survivors")):
            cuts.append(contents(survivor))
            assert cuts[-1] in allowed, survivor.name

    disk = Disk(root, check)
    try:
        write()
        for survivor in disk.survivors(root.with_name("survivors")):
            assert contents(survivor) == after, survivor.name
    finally:
        disk.close()
    assert len(cuts) >= 6


@pytest.fixture
def root(tmp_path):
    (tmp_path / "root").mkdir()
    return tmp_path / "root"


@pytest.mark.parametrize("old", [{}, {"notes": b"old"}])
def test_a_file_is_the_old_or_the_new_one(root, old):
    for name, data in old.items():
        (root / name).write_bytes(data)
    new = {"notes": b"new\n"}
    cut_anywhere(root, lambda: files.write_text(root / "notes", "new\n"), [old, new], new)


@pytest.mark.parametrize("old", [{}, OLD])
def test_a_folder_is_the_old_or_the_new_one(root, old):
    below = lambda tree: {f"step/{name}": data for name, data in tree.items()}  # noqa: E731 (beside its only uses)
    fill(root / "step", old)

    def write():
        with files.folder_at_once(root / "step") as temporary:
            fill(temporary, NEW)

    cut_anywhere(root, write, [below(old), below(NEW)], below(NEW))


def fill(folder: Path, tree):
    for name, data in tree.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)


def test_a_checkpoint_is_complete_or_absent(root):
    best = root.with_name("best")
    fill(best, {"model.safetensors": b"best", "config.json": b"{}"})
    weights = {"w": torch.arange(100.0)}
    folder = root / "checkpoints"
    folder.mkdir()
    whole = []

    def check():
        for survivor in disk.survivors(root.with_name("survivors")):
            files.tidy(survivor / "checkpoints")
            for step in (survivor / "checkpoints").glob("step-*"):
                assert files.fault(step, MANIFEST, FILES) is None
                whole.append(step.name)

    disk = Disk(root, check)
    try:
        for step in (1, 2, 3):
            Snapshot(step, weights, weights, {}, {}, {"step": step, "best": 1.0}).write(folder, 2, best)
            check()
            assert f"step-{step:06d}" in whole[-4:]
    finally:
        disk.close()
    assert sorted(path.name for path in folder.iterdir()) == ["step-000002", "step-000003"]


def test_a_file_written_in_pieces_is_on_disk_at_the_end(root):
    disk = Disk(root, lambda: None)
    try:
        files.write_hashed(root / "weights", [b"new", b"er"])
        files.sync(root)
        found = [contents(survivor) for survivor in disk.survivors(root.with_name("survivors"))]
    finally:
        disk.close()
    assert found
    assert all(each == {"weights": b"newer"} for each in found)


@pytest.mark.parametrize("left_out", ["file", "folder"])
def test_a_write_that_leaves_out_a_sync_is_found(root, left_out, monkeypatch):
    (root / "notes").write_bytes(b"old")

    def unsynced():
        (root / "aside").write_bytes(b"new")
        for path in {"file": [], "folder": [root / "aside"]}[left_out]:
            files.sync(path)
        os.replace(root / "aside", root / "notes")
        if left_out == "file":
            files.sync(root)

    with pytest.raises(AssertionError, match=r"hasty|lazy"):
        cut_anywhere(root, unsynced, [{"notes": b"old"}, {"notes": b"new"}], {"notes": b"new"})
