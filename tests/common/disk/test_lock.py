"""Locks between processes: who has one is named, and a killed process has none."""

import errno
import fcntl
import json
import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from common.disk import lock
from common.errors import UserError

ROOT = Path(__file__).resolve().parents[3]
HOLD = """
import sys, time
from pathlib import Path
from common.disk.lock import held
with held(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(float(sys.argv[2]))
"""


@pytest.fixture
def path(tmp_path):
    return tmp_path / "runs/a/.lock"


@pytest.fixture
def hold(path):
    """Let another process hold the lock for so many seconds; returns that process."""
    processes = []

    def start(seconds):
        words = [sys.executable, "-c", HOLD, str(path), str(seconds)]
        process = subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, text=True)
        processes.append(process)
        assert process.stdout.readline() == "held\n"
        return process

    yield start
    for process in processes:
        process.kill()
        process.communicate()


@pytest.fixture
def without_locks(monkeypatch):
    """A file system that has no locks, as some shared ones."""

    def refuses(descriptor, how):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "lockf", refuses)
    monkeypatch.setattr(lock, "SETTLING", 0.01)


def test_a_lock_says_who_holds_it_and_leaves_nothing(path, tmp_path):
    opened = len(os.listdir("/proc/self/fd"))
    with lock.held(path):
        assert json.loads(path.read_text()).items() >= {"host": socket.gethostname(), "process": os.getpid()}.items()
        assert not path.stat().st_mode & 0o133  # nobody else may write it, nobody execute it
    assert list(tmp_path.iterdir()) == []
    assert len(os.listdir("/proc/self/fd")) == opened


def test_what_else_is_in_the_folder_stays(path):
    with lock.held(path):
        (path.parent / "config.yaml").touch()
    assert [entry.name for entry in path.parent.iterdir()] == ["config.yaml"]


def test_another_process_is_named_and_keeps_what_it_has(path, hold):
    process = hold(60)
    named = re.escape(f"process {process.pid} on {socket.gethostname()} (since ")
    message = f"^{re.escape(str(path.parent))} is being written by {named}[^)]*\\): wait for it or end it$"
    opened = len(os.listdir("/proc/self/fd"))
    for _ in range(2):
        with pytest.raises(UserError, match=message), lock.held(path):
            pytest.fail("there are two")
        assert lock.is_held(path)
    assert len(os.listdir("/proc/self/fd")) == opened


def test_a_lock_of_a_killed_process_is_taken_over(path, hold, capsys):
    process = hold(60)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert path.exists()
    with lock.held(path):
        assert json.loads(path.read_text())["process"] == os.getpid()
    assert not path.exists()
    assert capsys.readouterr().err == ""


def test_a_process_that_is_waited_for_is_named(path, hold, capsys):
    process = hold(0.5)
    with lock.held(path, wait=True):
        assert process.wait() == 0
    said = capsys.readouterr().err
    assert f"waiting for process {process.pid} on " in said
    assert said.count("waiting for") == 1


def test_a_lock_of_another_machine_that_is_free_is_taken_over_and_that_is_said(path, capsys):
    path.parent.mkdir(parents=True)
    since = "yesterday, or long before"  # longer than what is written over it
    path.write_text(json.dumps({"host": "elsewhere" * 9, "process": 5, "since": since}))
    with lock.held(path):
        assert json.loads(path.read_text())["host"] == socket.gethostname()
    assert f"process 5 on {'elsewhere' * 9} (since {since}) has released it" in capsys.readouterr().err


@pytest.mark.usefixtures("without_locks")
def test_without_locks_of_the_file_system_the_text_decides(path, hold):
    process = hold(60)
    with pytest.raises(UserError, match=f"process {process.pid} on "), lock.held(path):
        pytest.fail("there are two")
    assert lock.is_held(path)
    process.kill()
    process.wait()
    assert not psutil.pid_exists(process.pid)
    assert not lock.is_held(path)
    with lock.held(path):
        assert json.loads(path.read_text())["process"] == os.getpid()
    assert not path.exists()


@pytest.mark.usefixtures("without_locks")
def test_without_locks_another_machines_process_counts_as_alive_and_the_way_out_is_said(path):
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({"host": "elsewhere", "process": 5, "since": "yesterday"}))
    with pytest.raises(UserError, match=f"if that machine was lost, delete {re.escape(str(path))}$"), lock.held(path):
        pytest.fail("there are two")


@pytest.mark.parametrize("text", ["", "[]", "{", '{"host": 1}'])
def test_a_lock_file_that_says_nothing_keeps_nobody_out(path, text):
    path.parent.mkdir(parents=True)
    path.write_text(text)
    with lock.held(path):
        assert json.loads(path.read_text())["process"] == os.getpid()


def test_a_folder_that_cannot_be_written_is_said(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="file"), lock.held(tmp_path / "file/.lock"):
        pytest.fail("there is no such folder")


def test_a_lock_file_that_nobody_holds_is_not_held_and_is_left_as_it_is(path):
    assert not lock.is_held(path)
    path.parent.mkdir(parents=True)
    path.write_text("text")
    assert not lock.is_held(path)
    assert path.read_text() == "text"


def test_a_lock_that_was_removed_while_it_was_taken_is_taken_again(path, monkeypatch):
    take, taken = fcntl.lockf, []

    def late(descriptor, how):
        if not taken:
            path.unlink()  # by who held it until now
        taken.append(descriptor)
        return take(descriptor, how)

    monkeypatch.setattr(fcntl, "lockf", late)
    monkeypatch.setattr(lock.time, "sleep", lambda seconds: None)
    with lock.held(path, wait=True):
        assert json.loads(path.read_text())["process"] == os.getpid()
    assert len(taken) == 2


@pytest.mark.usefixtures("without_locks")
def test_without_locks_of_two_that_write_at_once_the_last_one_has_it(path, monkeypatch):
    def other(seconds):
        path.write_text(json.dumps({"host": "elsewhere", "process": 5, "since": "now"}))

    monkeypatch.setattr(lock.time, "sleep", other)
    with pytest.raises(UserError, match="process 5 on elsewhere"), lock.held(path):
        pytest.fail("there are two")


def test_a_full_disk_has_room_for_a_lock_that_leaves_nothing(path, tmp_path, monkeypatch):
    def fails(descriptor, text):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "write", fails)  # which an empty file does not need
    with lock.held(path):
        assert path.read_text() == ""
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_fails_to_lock_is_no_lock(path, monkeypatch):
    def fails(descriptor, how):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(fcntl, "lockf", fails)
    opened = len(os.listdir("/proc/self/fd"))
    with pytest.raises(UserError, match="the disk reports an error"), lock.held(path):
        pytest.fail("it is not held")
    assert not lock.is_held(path)
    assert len(os.listdir("/proc/self/fd")) == opened
