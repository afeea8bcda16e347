"""Files that are replaced as a whole, and errors that say what to do about them."""

import errno
import os
from pathlib import Path

import pytest

from common.disk import files
from common.errors import UserError


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_file_is_replaced_and_nothing_else_is_left(tmp_path):
    path = tmp_path / "new" / "notes.txt"
    files.write_text(path, "first\n")
    files.write_text(path, "sécond\n")
    assert path.read_bytes() == "sécond\n".encode()
    assert names(path.parent) == ["notes.txt"]


def test_a_write_that_fails_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "notes.txt"
    files.write_text(path, "old")

    def fails(descriptor):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "fsync", fails)
    with pytest.raises(UserError, match=r"cannot write .*notes\.txt: the disk reports an error"):
        files.write_text(path, "new")
    assert path.read_text() == "old"
    assert names(tmp_path) == ["notes.txt"]


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_json_without_a_number_for_it_is_refused(tmp_path, value):
    with pytest.raises(ValueError, match="not JSON compliant"):
        files.write_json(tmp_path / "a.json", {"loss": value})
    assert names(tmp_path) == []


def test_json_is_read_back(tmp_path):
    files.write_json(tmp_path / "a.json", {"loss": 0.1, "none": None})
    assert (tmp_path / "a.json").read_text() == '{\n "loss": 0.1,\n "none": null\n}\n'


@pytest.mark.parametrize(
    ("number", "remedy"),
    [
        (errno.ENOSPC, "the disk is full: free some space, then continue with --resume"),
        (errno.EDQUOT, "the disk quota is used up"),
        (errno.EACCES, "no permission to write there"),
        (errno.EROFS, "the file system is read-only"),
        (errno.ESTALE, "the network disk has lost it"),
        (errno.ETIMEDOUT, "the network disk does not answer"),
        (errno.EFBIG, "the file is larger than ulimit -f or the disk allows"),
        (errno.EMFILE, "too many files are open: raise ulimit -n, then continue with --resume"),
    ],
)
def test_an_error_that_the_user_can_fix_says_how(number, remedy):
    with pytest.raises(UserError, match=f"^cannot write runs/a: {remedy}"), files.explained(Path("runs/a")):
        raise OSError(number, os.strerror(number))


def test_any_other_error_stays_as_it_is():
    with pytest.raises(IsADirectoryError), files.explained(Path("runs/a")):
        raise IsADirectoryError(errno.EISDIR, "is a directory")


def test_a_folder_appears_complete_and_replaces_the_old_one(tmp_path):
    folder = tmp_path / "step-1"
    folder.mkdir()
    (folder / "old").touch()
    with files.folder_at_once(folder) as temporary:
        (temporary / "inner").mkdir()
        (temporary / "inner" / "weights").write_bytes(b"1")
        assert names(folder) == ["old"]
    assert files.digests(folder) == {"inner/weights": files.sha256(folder / "inner" / "weights")}
    assert names(tmp_path) == ["step-1"]


def test_a_folder_that_fails_to_fill_leaves_nothing(tmp_path):
    def fill():
        with files.folder_at_once(tmp_path / "step-1") as temporary:
            (temporary / "weights").write_bytes(b"1")
            raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        fill()
    assert names(tmp_path) == []


def test_a_digest_is_the_published_sha256(tmp_path):
    (tmp_path / "abc").write_bytes(b"abc")
    assert files.sha256(tmp_path / "abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"


def test_lines_torn_by_crashes_are_left_out_wherever_they_are(tmp_path):
    path = tmp_path / "metrics.jsonl"
    assert list(files.read_json_lines(path)) == []
    files.append_json_line(path, {"step": 1, "loss": 0.5})
    with path.open("a") as file:
        file.write('{"step": 2, "lo\n\x00\x00\n')
    files.append_json_line(path, {"step": 3, "loss": float("nan")})
    with path.open("a") as file:
        file.write('{"step": 4')
    assert list(files.read_json_lines(path)) == [{"step": 1, "loss": 0.5}, {"step": 3, "loss": None}]


def test_a_file_that_cannot_be_replaced_is_no_success(tmp_path, monkeypatch):
    def fails(source, target):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "replace", fails)
    with pytest.raises(OSError, match=os.strerror(errno.EIO)):
        files.write_whole(tmp_path / "notes.txt", b"new")
    assert names(tmp_path) == []


def test_folders_above_a_text_are_made(tmp_path):
    files.write_text(tmp_path / "a/b/c", "text")
    assert (tmp_path / "a/b/c").read_text() == "text"


def test_what_is_removed_is_gone_but_for_what_a_link_points_to(tmp_path):
    for name in ("kept", "folder"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").touch()
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to(tmp_path / "kept")
    for name in ("folder", "file", "link", "absent"):
        files.remove(tmp_path / name)
    assert names(tmp_path) == ["kept"]
    assert names(tmp_path / "kept") == ["file"]


def test_what_a_killed_process_left_of_a_folder_is_no_part_of_the_next(tmp_path):
    (tmp_path / ".step-1.tmp").mkdir()
    (tmp_path / ".step-1.tmp/stale").touch()
    with files.folder_at_once(tmp_path / "step-1") as temporary:
        (temporary / "weights").touch()
    assert names(tmp_path / "step-1") == ["weights"]
    with files.folder_at_once(tmp_path / "in/new/folders") as temporary:
        (temporary / "weights").touch()
    assert names(tmp_path / "in/new") == ["folders"]


@pytest.mark.parametrize("number", [errno.ESTALE, errno.ETIMEDOUT, errno.EMFILE])
def test_files_that_cannot_be_read_for_now_are_not_taken_for_damaged(tmp_path, monkeypatch, number):
    files.write_text(tmp_path / "a", "a")
    files.write_json(tmp_path / "manifest.json", files.digests(tmp_path))

    def unread(path):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(files, "sha256", unread)
    with pytest.raises(UserError, match=r"^cannot read .*, then continue with --resume"):
        files.fault(tmp_path, "manifest.json", ["a"])
