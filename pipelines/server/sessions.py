"""The texts of plans being written, each in a file, so that a restart of the server loses none."""

import re
import uuid
from pathlib import Path

from common.disk.files import remove, write_text
from pipelines.server.limits import Refused

MOST = 1000  # sessions kept; of more, those written to least recently go
LONGEST = 400_000  # characters of a session's text


class Sessions:
    """Sessions in a folder, which only the server's user can read."""

    def __init__(self, folder: Path):
        self.folder = folder

    def begin(self) -> str:
        """Return the name of a new session, which no one can guess."""
        return uuid.uuid4().hex

    def text(self, name: str) -> str:
        """Return a session's text. Raises Refused for an unknown one."""
        try:
            return self._path(name).read_text("utf-8")
        except FileNotFoundError:
            raise Refused(404, "there is no such session; POST /sessions begins one") from None

    def write(self, name: str, text: str) -> None:
        """Store a session's text. Raises Refused for one too long."""
        if len(text) > LONGEST:
            raise Refused(413, f"the text has {len(text):,} characters; a session takes {LONGEST:,}")
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_text(self._path(name), text)
        kept = sorted(self.folder.glob("*.txt"), key=lambda path: path.stat().st_mtime)
        for path in kept[:-MOST]:
            remove(path)

    def end(self, name: str) -> None:
        """Forget a session. Raises Refused for an unknown one."""
        self.text(name)
        remove(self._path(name))

    def _path(self, name: str) -> Path:
        if not re.fullmatch("[0-9a-f]{32}", name):
            raise Refused(404, "the name of a session is the one that POST /sessions returned")
        return self.folder / f"{name}.txt"
