"""The log of answers: a file of JSON lines to which whole lines are added, and synced."""

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from common.disk.files import explained, sync
from common.plain import Plain


class Log:
    """Answers on disk, written by one process."""

    def __init__(self, path: Path):
        self.path = path
        with explained(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("ab+") as file:
                file.seek(0)
                whole = sum(len(line) for line in file if line.endswith(b"\n"))
                file.truncate(whole)  # a line that a killed process left torn
            sync(path.parent)

    @property
    def size(self) -> int:
        """Number of bytes."""
        return self.path.stat().st_size

    def add(self, entries: Sequence[Mapping[str, Plain]]) -> None:
        """Append a line for each entry; they are on disk when this returns."""
        text = "".join(json.dumps(entry, ensure_ascii=False, allow_nan=False) + "\n" for entry in entries)
        with explained(self.path), self.path.open("ab") as file:
            file.write(text.encode())
            file.flush()
            os.fsync(file.fileno())
