"""The manifest of an export: what the folder holds, with sums to verify it by."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from common.files import sha256, write_whole

NAME = "manifest.json"


def begin(out: Path) -> None:
    """Make the folder, without the files of an earlier export: those that are still what its manifest says."""
    out.mkdir(parents=True, exist_ok=True)
    earlier = out / NAME
    if not earlier.is_file():
        return
    try:
        stored = {name: facts["sha256"] for name, facts in json.loads(earlier.read_bytes())["files"].items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{earlier} is not the manifest of an export; give another --out, or take it away") from error
    earlier.unlink()  # what is left after this has no manifest, so it is no export
    for name, digest in stored.items():
        path = out / name
        if path.resolve().is_relative_to(out.resolve()) and path.is_file() and sha256(path) == digest:
            path.unlink()


def finish(out: Path, names: Sequence[str], facts: Mapping[str, Any]) -> int:
    """Write `facts` with bytes and sha256 of each file; returns the bytes in all. Call it last."""
    files = {}
    for name in names:
        files[name] = {"bytes": (out / name).stat().st_size, "sha256": sha256(out / name)}
    text = json.dumps({**facts, "files": files}, indent=2, allow_nan=False) + "\n"
    write_whole(out / NAME, text.encode())
    return sum(file["bytes"] for file in files.values())
