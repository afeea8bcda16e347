"""Runs a script and lists its changes to the disk, keeps the disk's state at each, or disturbs one of them.

    python tests/faults.py kill 12 pipelines/train.py --workload cvrp
    python tests/faults.py ENOSPC 12 pipelines/train.py --workload cvrp
    python tests/faults.py list FILE pipelines/train.py --workload cvrp
    python tests/faults.py keep FOLDER pipelines/train.py --workload cvrp

Changes are those below the working folder: opening a file for writing, a write (half of which is made), fsync,
renaming, deleting, making and removing a folder. Of several processes only the first one is disturbed, and only once
where a launcher starts it again; members' processes are forked, one by one, and count as the one that starts them.
`list` writes a line for each change, with a digest of the stack of code lines that make it. `keep` copies the working
folder before each change, and halfway through each write: what a process killed there leaves. Writes by native code,
such as Arrow's, are not seen.
"""

import builtins
import errno
import hashlib
import io
import multiprocessing
import os
import runpy
import shutil
import signal
import sys
import threading
from pathlib import Path
from typing import Any

WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
EVENTS = ("os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.link", "os.symlink", "os.truncate")


class Faults:
    """Counts changes to the disk, and lists, keeps or disturbs them."""

    def __init__(self, kind: str, what: str):
        self.kind, self.what = kind, what
        self.folder = os.getcwd()
        self.spared = int(os.environ.get("RANK", 0)) or int(os.environ.get("TORCHELASTIC_RESTART_COUNT", 0))
        self.count = multiprocessing.get_context("fork").Value("q", 0)  # of this process and those of members
        self.lock = threading.RLock()  # one change at a time
        self.known: dict[tuple, str] = {}  # digests of files that have been read
        self.fsync, self.open = os.fsync, io.open

    def install(self) -> None:
        sys.addaudithook(self.audit)
        io.open = builtins.open = self.opened
        os.fsync = lambda file: self.change("fsync", self.path_of(file)) or self.fsync(file)

    def path_of(self, place, folder: int = -1) -> str:
        """The absolute path of a name, of one in an open folder, or of an open file."""
        if isinstance(place, int):
            return os.readlink(f"/proc/self/fd/{place}")
        within = os.readlink(f"/proc/self/fd/{folder}") if folder >= 0 else self.folder
        return os.path.normpath(os.path.join(within, os.fsdecode(place)))

    def audit(self, event: str, arguments: tuple) -> None:
        if event == "open" and isinstance(arguments[0], str | bytes | os.PathLike) and arguments[2] & WRITING:
            self.change("open", self.path_of(arguments[0]))
        elif event in EVENTS:
            folder = arguments[-1] if event != "os.rename" and isinstance(arguments[-1], int) else -1
            self.change(event.removeprefix("os."), self.path_of(arguments[0], folder))

    def change(self, what: str, path: str, half=lambda: None) -> None:
        """Count a change that is about to be made, and list, keep or disturb it; `half` makes half of it."""
        if self.spared or not path.startswith(self.folder + os.sep):
            return
        line = f"{what} {os.path.relpath(path, self.folder)}"
        with self.lock:
            self.count.value += 1
            if self.kind == "list":
                with self.open(self.what, "a") as file:
                    file.write(f"{line}\t{origin()}\n")
            elif self.kind == "keep":
                self.keep(line)
                half()
                self.keep(line)
            elif self.count.value == int(self.what):
                half()
                self.disturb(line, path)

    def disturb(self, line: str, path: str) -> None:
        print(f"disturbed: {line}", file=sys.stderr, flush=True)  # threads take turns differently each time
        if self.kind == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        number = getattr(errno, self.kind)
        raise OSError(number, os.strerror(number), path)

    def keep(self, line: str) -> None:
        """Copy the working folder as it is, unless such a copy is there already, and write `line` beside it."""
        before, now = None, self.tree()
        while before != now or now is None:  # until no other thread has changed it meanwhile
            before, now = now, self.tree()
        there = Path(self.what) / key(now)
        if not there.is_dir():
            shutil.copytree(self.folder, there)
            with self.open(f"{there}.change", "w") as file:
                file.write(line)

    def tree(self) -> dict[str, str] | None:
        """The content of the working folder, {path: digest}; None if it was changed while it was read."""
        found = {}
        try:
            for path in Path(self.folder).rglob("*"):
                about = path.stat()
                version = path, about.st_ino, about.st_size, about.st_mtime_ns
                if version not in self.known:
                    self.known[version] = "" if path.is_dir() else hashlib.sha256(path.read_bytes()).hexdigest()
                found[str(path.relative_to(self.folder))] = self.known[version]
        except FileNotFoundError:
            return None
        return found

    def opened(self, file, mode="r", buffering=-1, *arguments, **options):
        if buffering > 1 and "b" in mode:  # what the buffer gathers is one change
            return io.BufferedWriter(self.opened(file, mode, 0), buffering)
        opened = self.open(file, mode, buffering, *arguments, **options)
        return Written(opened, self) if set(mode) & set("wxa+") and not isinstance(file, int) else opened


class Written:
    """A file that is open for writing."""

    def __init__(self, file, faults: Faults):
        self.file, self.faults = file, faults

    def __getattr__(self, name):
        return getattr(self.file, name)

    def __enter__(self):
        self.file.__enter__()
        return self

    def __exit__(self, *error):
        return self.file.__exit__(*error)

    def write(self, content):
        rest, size = content, len(content)

        def half() -> None:
            nonlocal rest
            self.file.write(content[: size // 2])
            self.file.flush()
            rest = content[size // 2 :]

        self.faults.change("write", os.path.abspath(self.file.name), half)
        self.file.write(rest)
        return size


def key(tree: dict[str, Any]) -> str:
    """A digest of a folder's content; of temporary files and folders, only of whether they exist and hold something.

    The next start removes these unread, by name (`common.disk.files.tidy`), so their content makes no case of its own.
    """
    found = {standing_for(name): None if is_temporary(name) else content for name, content in tree.items()}
    return hashlib.sha256(repr(sorted(found.items())).encode()).hexdigest()[:16]


def standing_for(name: str | Path) -> str:
    """The name itself, or one name for everything in a temporary folder."""
    parts = Path(name).parts
    depth = next((depth for depth, part in enumerate(parts, 1) if is_temporary(part)), len(parts))
    return str(Path(*parts[:depth], *["..."] * (depth < len(parts))))


def origin() -> str:
    """A digest of the call stack, line by line."""
    frame, places = sys._getframe(2), []
    while frame is not None:
        places.append((frame.f_code.co_filename, frame.f_lineno))
        frame = frame.f_back
    return hashlib.sha256(repr(places).encode()).hexdigest()[:16]


def is_temporary(name: str | Path) -> bool:
    return any(part.startswith(".") and part.endswith(".tmp") for part in Path(name).parts)


def main() -> None:
    kind, what, script, *words = sys.argv[1:]
    sys.path[0] = str(Path(__file__).resolve().parents[1])
    from common import workers
    from pipelines.members import fanout

    # Members' processes inherit what is installed here, and need no imports of their own. They run one by one.
    workers.start_server = lambda *_: multiprocessing.get_context("fork")
    fanout.cores = lambda: 1
    Faults(kind, what).install()
    sys.argv = [script, *words]
    sys.path[0] = str(Path(script).parent)
    runpy.run_path(script, run_name="__main__")


if __name__ == "__main__":
    main()
