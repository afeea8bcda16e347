"""Writing files that are complete or absent, whenever the process dies, and their SHA-256 digests."""

import errno
import hashlib
import json
import math
import os
import shutil
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

from common.errors import UserError

AT_ONCE = 2**20  # buffer in bytes: few writes, each of which releases the GIL
AGAIN = "then run the command again (training: with --resume)"
ABSENT = {  # transient, or not the file's fault: an unreadable file may still be sound
    errno.ESTALE: f"the network disk has lost it: mount the disk again, {AGAIN}",
    errno.ETIMEDOUT: f"the network disk does not answer: check it, {AGAIN}",
    errno.EMFILE: f"too many files are open: raise ulimit -n, {AGAIN}",
    errno.EACCES: f"no permission: change that, {AGAIN}",
    errno.ENFILE: f"this machine has too many files open: end other programs, {AGAIN}",
}
FAULTS = ABSENT | {
    errno.ENOSPC: f"the disk is full: free some space, {AGAIN}",
    errno.EDQUOT: f"the disk quota is used up: free some space, {AGAIN}",
    errno.EFBIG: f"the file is larger than ulimit -f or the disk allows: raise that, {AGAIN}",
    errno.EROFS: "the file system is read-only: run from a folder that can be written",
    errno.EIO: f"the disk reports an error: check it (dmesg), {AGAIN}",
}
DENIED = "no permission to write there: change it, or run from a folder of your own"
REMEDIES = FAULTS | {errno.EACCES: DENIED, errno.EPERM: DENIED}

Value = TypeVar("Value", dict[str, Any], list[Any])


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turn file-system errors that the user can fix into a `UserError` with the remedy."""
    try:
        yield
    except OSError as error:
        if error.errno not in REMEDIES:
            raise
        raise UserError(f"cannot write {path}: {REMEDIES[error.errno]}") from error


def write_hashed(path: Path, pieces: Iterable[bytes | memoryview]) -> str:
    """Write `pieces` to `path`, on disk at the end; return their SHA-256 digest."""
    digest = hashlib.sha256()
    with path.open("wb", AT_ONCE) as file:
        for piece in pieces:
            digest.update(piece)
            file.write(piece)
    sync(path)
    return digest.hexdigest()


def write_whole(path: Path, *data: bytes | memoryview, more: Iterable[bytes | memoryview] = ()) -> None:
    """Replace `path` with `data` and `more`; whenever the process dies, the old or the new file is there, complete."""
    temporary = _aside(path, "tmp")
    try:
        with temporary.open("wb", AT_ONCE) as file:
            file.writelines(data)
            file.writelines(more)
        sync(temporary)
        os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):  # on a full disk above all
            temporary.unlink()
        raise
    sync(path.parent)


def write_text(path: Path, text: str) -> None:
    """Replace `path`, or the file that it links to, by `text` in UTF-8 as `write_whole` does; make its folders.

    Raises UserError for a folder, and for devices and pipes, which would be replaced by a file.
    """
    with explained(path):
        if path.exists() and not path.is_file():
            raise UserError(f"cannot write {path}: it is a folder or a device, not a file; give another")
        path = Path(os.path.realpath(path))  # does not fail on circular links
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, text.encode(errors="backslashreplace"))  # a file's name need not be UTF-8


def write_json(path: Path, value: object) -> None:
    """Replace `path` with `value` as indented JSON. Raises ValueError for NaN and infinity, as JSON has none."""
    write_text(path, json.dumps(value, indent=1, allow_nan=False) + "\n")


@contextmanager
def folder_at_once(folder: Path) -> Iterator[Path]:
    """Yield a folder that replaces `folder`, synced, at the end; a kill leaves old or new, or `tidy` restores it."""
    temporary, old = _aside(folder, "tmp"), _aside(folder, "old")
    with explained(folder):
        shutil.rmtree(temporary, ignore_errors=True)  # of a process that was killed
        try:
            temporary.mkdir(parents=True)
            yield temporary
            for path in [*sorted(temporary.rglob("*")), temporary]:
                sync(path)
            if folder.exists():
                os.rename(folder, old)
            os.rename(temporary, folder)
            sync(folder.parent)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
            tidy(folder.parent, old.name)


def _aside(path: Path, ending: str) -> Path:
    return path.with_name(f".{path.name}.{ending}")


def tidy(folder: Path, *patterns: str) -> None:
    """As the only writer, remove a killed one's temporary files (`patterns`), and restore what it was replacing."""
    for path in [path for pattern in patterns or (".*.old", ".*.tmp") for path in folder.glob(pattern)]:
        with explained(path):
            whole = path.with_name(path.stem[1:])
            if path.suffix == ".old" and not whole.exists():
                os.rename(path, whole)
            elif path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()


def remove(path: Path) -> None:
    """Remove a file, or a folder with all that is in it, if it is there."""
    with explained(path):
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink(missing_ok=True)


def remove_folder(folder: Path) -> None:
    """Remove a folder at once: whenever the process dies, it is there, complete, or `tidy` removes the rest."""
    doomed = _aside(folder, "tmp")
    with explained(folder):
        os.rename(folder, doomed)
        shutil.rmtree(doomed)


def sync(path: Path) -> None:
    """Wait until `path`, a file or a folder's list of names, is on disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sha256(path: Path) -> str:
    """Return the hexadecimal SHA-256 digest of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def digests(folder: Path, known: Mapping[str, str] = MappingProxyType({})) -> dict[str, str]:
    """Return the SHA-256 digest of every file below `folder` by its relative path, with forward slashes."""
    names = {path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*")) if path.is_file()}
    return {name: known.get(name) or sha256(path) for name, path in names.items()}


def fault(folder: Path, manifest: str, needed: Collection[str]) -> str | None:
    """Return how a folder differs from its `manifest` of SHA-256 sums, which must list the `needed` files, or None."""
    try:
        listed = json.loads((folder / manifest).read_text())
        if unlisted := sorted(set(needed) - listed.keys()):
            return f"{manifest} does not list {unlisted[0]}"
        for name, digest in listed.items():
            if sha256(folder / name) != digest:
                return f"{name} does not match its SHA-256"
    except (OSError, ValueError, AttributeError) as error:
        if isinstance(error, OSError) and error.errno in ABSENT:
            raise UserError(f"cannot read {folder}: {ABSENT[error.errno]}") from error
        return f"{manifest} or a file it lists cannot be read ({error})"
    return None


def read_json(path: Path, kind: type[Value]) -> Value:
    """Return the dict or list in a JSON file; an empty one if it is missing, or damaged, as by an interrupted copy."""
    with suppress(FileNotFoundError, IsADirectoryError, ValueError):
        if isinstance(value := json.loads(path.read_bytes()), kind):
            return value
    return kind()


def append_json_line(path: Path, entry: Mapping[str, object]) -> None:
    """Append one object to a file of JSON lines; NaN and infinity become null."""
    finite = {key: None if isinstance(v, float) and not math.isfinite(v) else v for key, v in entry.items()}
    with explained(path), path.open("a") as file:
        file.write(json.dumps(finite) + "\n")


def read_json_lines(path: Path, start: int = 0) -> Iterator[dict[str, Any]]:
    """Yield the objects in a file of JSON lines from a byte on, if it exists; lines torn by a crash are left out."""
    if not path.exists():
        return
    with path.open("rb") as file:
        file.seek(start)
        for line in file:
            with suppress(ValueError):
                if isinstance(entry := json.loads(line), dict):
                    yield entry
