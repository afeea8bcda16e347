"""What prepared data keep when some of the files that they come from have changed."""

import os
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from common.disk.files import sha256
from common.errors import UserError
from pipelines.workloads.crypto.candles import files

if TYPE_CHECKING:
    from pipelines.workloads.crypto import Data


def unchanged(data: "Data", wanted: Sequence[str], known: Mapping[str, Any]) -> list[str]:
    """Return the coins that were prepared from the files that are there now, or whose files are gone.

    A coin that data.symbols_file names no more is none of them.
    """
    there: Sequence[str] = ()
    with suppress(UserError):
        there = files.coins(data.folder or "", data.timeframe)

    def is_same(symbol: str) -> bool:
        try:
            paths = files.find(data.folder or "", symbol, data.timeframe)
        except UserError:  # several files match, as `prepare` will tell
            return False
        names = known["coins"][symbol]["checks"]["file"]
        same = [path.name for path in paths] == ([names] if isinstance(names, str) else names)
        return same and all(known["inputs"].get(str(path)) == sha256(path) for path in paths)

    listed = [symbol for symbol in known["coins"] if symbol in wanted or not data.symbols_file]
    return [symbol for symbol in listed if symbol not in there or is_same(symbol)]


def take_over(earlier: Path, folder: Path, name: str) -> None:
    """Have a coin of the folder `earlier` in another, without copying what the file system can give two names."""
    for path in [earlier / f"{name}.json", *sorted((earlier / name).rglob("*"))]:
        if path.is_file():
            place = folder / path.relative_to(earlier)
            place.parent.mkdir(exist_ok=True)
            try:
                os.link(path, place)
            except OSError:
                shutil.copyfile(path, place)
