"""Files that are replaced as a whole, and errors that say what to do about them."""

import errno
import os
import re
import shutil
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
        (errno.ENOSPC, f"the disk is full: free some space, {files.AGAIN}"),
        (errno.EDQUOT, "the disk quota is used up"),
        (errno.EACCES, "no permission to write there"),
        (errno.EROFS, "the file system is read-only"),
        (errno.ESTALE, "the network disk has lost it"),
        (errno.ETIMEDOUT, "the network disk does not answer"),
        (errno.EFBIG, "the file is larger than ulimit -f or the disk allows"),
        (errno.EMFILE, f"too many files are open: raise ulimit -n, {files.AGAIN}"),
    ],
)
def test_an_error_that_the_user_can_fix_says_how(number, remedy):
    with pytest.raises(UserError, match=re.escape(f"cannot write runs/a: {remedy}")), files.explained(Path("runs/a")):
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
    second = path.read_bytes().index(b"\n") + 1
    assert list(files.read_json_lines(path, second)) == [{"step": 3, "loss": None}]


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


def test_a_link_leads_to_what_is_replaced_and_what_is_no_file_stays(tmp_path):
    (tmp_path / "a").write_text("old")
    (tmp_path / "link").symlink_to("a")
    files.write_text(tmp_path / "link", "new")
    assert ((tmp_path / "link").is_symlink(), (tmp_path / "a").read_text()) == (True, "new")
    (tmp_path / "circle").symlink_to("circle")
    files.write_text(tmp_path / "circle", "new")
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "device").symlink_to("/dev/null")
    for name in ("folder", "pipe", "device"):
        with pytest.raises(UserError, match=f"cannot write .*/{name}: it is a folder or a device, not a file"):
            files.write_text(tmp_path / name, "text")
    assert ((tmp_path / "pipe").is_fifo(), (tmp_path / "device").is_char_device()) == (True, True)


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


@pytest.mark.parametrize("number", [errno.ESTALE, errno.ETIMEDOUT, errno.EMFILE, errno.EACCES])
def test_files_that_cannot_be_read_for_now_are_not_taken_for_damaged(tmp_path, monkeypatch, number):
    files.write_text(tmp_path / "a", "a")
    files.write_json(tmp_path / "manifest.json", files.digests(tmp_path))

    def unread(path):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(files, "sha256", unread)
    with pytest.raises(UserError, match=r"^cannot read .*, then run the command again \(training: with --resume\)$"):
        files.fault(tmp_path, "manifest.json", ["a"])


def test_what_is_written_in_pieces_is_there_in_their_order_with_its_digest(tmp_path):
    pieces = [b"a", memoryview(b"b" * files.AT_ONCE), b"c"]
    assert files.write_hashed(tmp_path / "hashed", iter(pieces)) == files.sha256(tmp_path / "hashed")
    files.write_whole(tmp_path / "whole", b"first ", b"second ", more=iter(pieces))
    assert (tmp_path / "hashed").read_bytes() == b"".join(pieces)
    assert (tmp_path / "whole").read_bytes() == b"first second " + b"".join(pieces)


def test_syncing_leaves_no_file_open(tmp_path):
    before = os.listdir("/proc/self/fd")
    for _ in range(3):
        files.sync(tmp_path)
    assert len(os.listdir("/proc/self/fd")) == len(before)


def test_what_a_killed_writer_left_is_restored_where_nothing_replaced_it_and_else_removed(tmp_path):
    for name in (".a.old", ".b.old", "b", ".c.tmp"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "from").write_text(name)
    for name in (".d.old", ".e.tmp", ".f.parts", "g"):
        (tmp_path / name).write_text(name)
    files.tidy(tmp_path)
    assert names(tmp_path) == [".f.parts", "a", "b", "d", "g"]
    assert [(tmp_path / name / "from").read_text() for name in "ab"] == [".a.old", "b"]
    assert (tmp_path / "d").read_text() == ".d.old"
    (tmp_path / ".h.tmp").touch()
    files.tidy(tmp_path, ".f.*")
    assert names(tmp_path) == [".h.tmp", "a", "b", "d", "g"]


def test_a_folder_that_is_being_removed_is_not_there_in_part(tmp_path, monkeypatch):
    for name in ("gone", "half"):
        files.write_text(tmp_path / name / "inner/file", "text")
    files.remove_folder(tmp_path / "gone")
    assert names(tmp_path) == ["half"]

    def killed(path):
        raise KeyboardInterrupt

    monkeypatch.setattr(shutil, "rmtree", killed)
    with pytest.raises(KeyboardInterrupt):
        files.remove_folder(tmp_path / "half")
    assert not (tmp_path / "half").exists()
    monkeypatch.undo()
    files.tidy(tmp_path)
    assert names(tmp_path) == []


def test_a_folder_is_compared_with_the_sums_of_its_manifest(tmp_path):
    for name in ("a", "in/b"):
        files.write_text(tmp_path / name, name)
    files.write_json(tmp_path / "sums", files.digests(tmp_path))
    assert files.fault(tmp_path, "sums", ["a", "in/b"]) is None
    assert files.fault(tmp_path, "sums", ["a", "c"]) == "sums does not list c"
    files.write_text(tmp_path / "in/b", "other")
    assert files.fault(tmp_path, "sums", []) == "in/b does not match its SHA-256"
    (tmp_path / "a").unlink()
    assert files.fault(tmp_path, "sums", []).startswith("sums or a file it lists cannot be read")
    for text in ("{", "[]", "null"):
        files.write_text(tmp_path / "sums", text)
        assert files.fault(tmp_path, "sums", ["a"]).startswith("sums or a file it lists cannot be read")


def test_a_digest_that_is_known_is_not_computed_again(tmp_path):
    for name in ("a", "b"):
        files.write_text(tmp_path / name, name)
    assert files.digests(tmp_path, {"a": "known"}) == {"a": "known", "b": files.sha256(tmp_path / "b")}
