"""A model of a disk whose power is cut: what was not synced is lost.

Two disks bound what file systems do. The hasty one has kept every name and every rename, but of a file's bytes only
those that were synced; the lazy one has kept a folder's names, too, only as they were when that folder was synced.
"""

import os
import shutil
from collections.abc import Callable
from pathlib import Path


class Disk:
    """Everything below `root` as of now is on the disk; from then on only what is synced, until `close`."""

    def __init__(self, root: Path, cut: Callable[[], None] = lambda: None):
        """Call `cut` before and after every rename and after every sync, when the power may be cut."""
        self.root, self.cut, self.looking = root, cut, False
        self.bytes: dict[int, bytes] = {}  # inode -> what is on the disk of a file
        self.names: dict[int, dict[str, int]] = {}  # inode -> names in a folder and their inodes
        self.pins: dict[int, int] = {}  # an open file, lest its inode be given to another
        self.folders: set[int] = set()
        self.real = {name: getattr(os, name) for name in ("fsync", "rename", "replace")}
        for path in [root, *root.rglob("*")]:
            file = os.open(path, os.O_RDONLY)
            self._settle(file)
            os.close(file)
        os.fsync = self._fsync
        for name in ("rename", "replace"):
            setattr(os, name, lambda source, target, real=self.real[name]: self._rename(real, source, target))

    def close(self) -> None:
        """Give back the functions of `os`."""
        for name, real in self.real.items():
            setattr(os, name, real)
        for pin in self.pins.values():
            os.close(pin)

    def survivors(self, out: Path) -> list[Path]:
        """Write what either disk holds after a cut into folders below `out`."""
        shutil.rmtree(out, ignore_errors=True)
        hasty, lazy = out / "hasty", out / "lazy"
        hasty.mkdir(parents=True)
        for path in sorted(self.root.rglob("*")):
            copy = hasty / path.relative_to(self.root)
            copy.mkdir() if path.is_dir() else copy.write_bytes(self.bytes.get(path.stat().st_ino, b""))
        self._restore(self.root.stat().st_ino, lazy)
        return [hasty, lazy]

    def _restore(self, inode: int, path: Path) -> None:
        if inode not in self.folders:
            path.write_bytes(self.bytes.get(inode, b""))
            return
        path.mkdir()
        for name, child in self.names.get(inode, {}).items():
            self._restore(child, path / name)

    def _settle(self, file: int) -> None:
        found = os.fstat(file)
        if found.st_ino not in self.pins:
            self.pins[found.st_ino] = os.dup(file)
        place = f"/proc/self/fd/{file}"
        if os.path.isdir(place):
            self.names[found.st_ino] = {entry.name: entry.inode() for entry in os.scandir(place)}
            for entry in os.scandir(place):
                self._pin(f"{place}/{entry.name}")
            self.folders.add(found.st_ino)
        else:
            self.bytes[found.st_ino] = Path(place).read_bytes()

    def _pin(self, path: str) -> None:
        """Keep the inode of a name that is on the disk, and know whether it is a folder."""
        inode = os.stat(path).st_ino
        if inode not in self.pins:
            self.pins[inode] = os.open(path, os.O_RDONLY)
        if os.path.isdir(path):
            self.folders.add(inode)

    def _fsync(self, file: int) -> None:
        self.real["fsync"](file)
        self._settle(file)
        self._moment()

    def _rename(self, real: Callable, source: Path, target: Path) -> None:
        self._moment()
        real(source, target)
        self._moment()

    def _moment(self) -> None:
        if not self.looking:  # `cut` may rename files of its own
            self.looking = True
            self.cut()
            self.looking = False
