"""The manifest of an export: what the folder holds, with sums to verify it by."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from models.io import write_whole

NAME = "manifest.json"


def begin(out: Path) -> None:
    """Make the folder, without the files of an earlier export."""
    out.mkdir(parents=True, exist_ok=True)
    earlier = out / NAME
    if not earlier.is_file():
        return
    names = json.loads(earlier.read_bytes())["files"]
    earlier.unlink()  # what is left after this has no manifest, so it is no export
    for name in names:
        (out / name).unlink(missing_ok=True)


def finish(out: Path, names: Sequence[str], facts: Mapping[str, Any]) -> int:
    """Write `facts` with bytes and sha256 of each file; returns the bytes in all. Call it last."""
    files = {}
    for name in names:
        data = (out / name).read_bytes()
        files[name] = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    text = json.dumps({**facts, "files": files}, indent=2, allow_nan=False) + "\n"
    write_whole(out / NAME, text.encode())
    return sum(file["bytes"] for file in files.values())
