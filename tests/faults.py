"""Runs a script whose n-th change to the disk fails, or at which it is killed.

    python tests/faults.py kill 12 pipelines/train.py --workload cvrp
    python tests/faults.py ENOSPC 12 pipelines/train.py --workload cvrp
    python tests/faults.py list 0 pipelines/train.py --workload cvrp

Changes are those below the working folder: opening a file for writing, a write (of which half is made), fsync,
renaming, deleting, making and removing a folder. Of several processes only the first one is disturbed, and only once
where a launcher starts it again. `list` disturbs none and ends with a line of JSON, {"changes": [...]}. Native code,
such as Arrow's, that writes by itself is not seen.
"""

import builtins
import errno
import io
import json
import os
import runpy
import signal
import sys
from pathlib import Path

WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
EVENTS = ("os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.link", "os.symlink", "os.truncate")


class Faults:
    """Counts changes to the disk, and disturbs one of them."""

    def __init__(self, kind: str, number: int):
        self.kind, self.number = kind, number
        self.folder = os.getcwd()
        self.changes: list[str] = []
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

    def change(self, what: str, path: str, before=lambda: None) -> None:
        spared = int(os.environ.get("RANK", 0)) or int(os.environ.get("TORCHELASTIC_RESTART_COUNT", 0))
        if spared or not path.startswith(self.folder + os.sep):
            return
        self.changes.append(f"{what} {os.path.relpath(path, self.folder)}")
        if len(self.changes) != self.number:
            return
        before()
        print(f"disturbed: {self.changes[-1]}", file=sys.stderr, flush=True)  # threads do not always take turns alike
        if self.kind == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        number = getattr(errno, self.kind)
        raise OSError(number, os.strerror(number), path)

    def opened(self, file, mode="r", *arguments, **options):
        opened = self.open(file, mode, *arguments, **options)
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
        def half() -> None:
            self.file.write(content[: len(content) // 2])
            self.file.flush()

        self.faults.change("write", os.path.abspath(self.file.name), half)
        return self.file.write(content)


def main() -> None:
    kind, number, script, *words = sys.argv[1:]
    faults = Faults(kind, int(number))
    faults.install()
    sys.argv = [script, *words]
    sys.path[0] = str(Path(script).parent)
    try:
        runpy.run_path(script, run_name="__main__")
    finally:
        if kind == "list" and not int(os.environ.get("RANK", 0)):
            print(json.dumps({"changes": faults.changes}))


if __name__ == "__main__":
    main()
