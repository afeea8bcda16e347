"""One writer at a time: a lock file that names its process, and that a killed process releases."""

import errno
import fcntl
import json
import os
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypedDict

from common.disk.files import explained
from common.errors import UserError

# Errors of file systems without POSIX locks, such as some network ones.
NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL)
SETTLING = 0.5  # seconds after which, without such locks, the file just written is read back


class Holder(TypedDict):
    """The process that holds a lock, as the file names it."""

    host: str
    process: int
    since: str


@contextmanager
def held(path: Path, wait: bool = False) -> Iterator[None]:
    """Hold the lock file `path` within the block; while another process has it, `wait` for it or raise a UserError."""
    made = [folder for folder in path.parents if not folder.exists()]
    announced = False
    while (descriptor := _attempt(path)) is None:
        holder = _holder(path)
        if not wait:
            elsewhere = holder is not None and holder["host"] != socket.gethostname()
            hint = f"; if that machine was lost, delete {path}" if elsewhere else ""
            raise UserError(f"{path.parent} is being written by {_named(holder)}: wait for it or end it{hint}")
        if holder and not announced:
            print(f"waiting for {_named(holder)}, which writes in {path.parent}", file=sys.stderr, flush=True)
            announced = True
        time.sleep(0.2)
    try:
        yield
    finally:
        with suppress(OSError):  # a leftover file locks nobody out once this process has ended
            path.unlink()
        os.close(descriptor)
        with suppress(OSError):
            for folder in made:
                folder.rmdir()


def is_held(path: Path) -> bool:
    """Return whether a process has the lock; nothing is written."""
    try:
        descriptor = os.open(path, os.O_RDWR)
    except OSError:
        return False
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return False
    except OSError as error:
        return error.errno in (errno.EAGAIN, errno.EACCES) or _is_alive(_holder(path))
    finally:
        os.close(descriptor)


def _attempt(path: Path) -> int | None:
    """Take the lock and return its descriptor; None if another process has it."""
    with explained(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            if _taken(path, descriptor):
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)
        return None


def _taken(path: Path, descriptor: int) -> bool:
    """Lock the open file and write this process into it; return False if another process has it."""
    mine = Holder(host=socket.gethostname(), process=os.getpid(), since=time.strftime("%Y-%m-%d %H:%M:%S"))
    try:
        # The process's lock, not the open file's: a child that outlives it does not keep it. Closing the file also
        # releases it if the process opened it twice.
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EAGAIN, errno.EACCES):
            return False
        if error.errno not in NO_LOCKS:
            raise
        if _is_alive(_holder(path)):  # only the file's content can tell
            return False
        _write(descriptor, mine)
        time.sleep(SETTLING)
        return _holder(path) == mine
    if not _is_at(path, descriptor):
        return False  # its holder has removed it meanwhile
    if (before := _holder(descriptor)) and before["host"] != mine["host"]:
        print(f"{path}: {_named(before)} has released it", file=sys.stderr, flush=True)
    with suppress(OSError):  # a full disk has room for an empty file; the holder will report it
        _write(descriptor, mine)
    return True


def _write(descriptor: int, text: Holder) -> None:
    os.ftruncate(descriptor, 0)
    os.write(descriptor, json.dumps(text).encode())


def _holder(file: Path | int) -> Holder | None:
    with suppress(OSError, ValueError, TypeError, KeyError):
        holder = json.loads(file.read_bytes() if isinstance(file, Path) else os.pread(file, 1000, 0))
        return Holder(host=holder["host"], process=holder["process"], since=holder["since"])
    return None


def _is_at(path: Path, descriptor: int) -> bool:
    with suppress(FileNotFoundError):
        return os.path.samestat(os.stat(path), os.fstat(descriptor))
    return False


def _is_alive(holder: Holder | None) -> bool:
    """Return whether the process may still run, as another machine's always may."""
    import psutil

    return holder is not None and (holder["host"] != socket.gethostname() or psutil.pid_exists(holder["process"]))


def _named(holder: Holder | None) -> str:
    if holder is None:
        return "another process"
    return f"process {holder['process']} on {holder['host']} (since {holder['since']})"
