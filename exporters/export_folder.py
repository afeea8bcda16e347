"""The folder of an export: the files that may be replaced, and the manifest, with checksums of the files."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from common.disk.files import sha256, write_whole

NAME = "manifest.json"


def begin(out: Path, files: Mapping[str, bytes], *model_folders: Path) -> None:
    """Replace an earlier export's unchanged files by `files`; ValueError if a model or other files are in the way.

    Raises RuntimeError for a file that reads back differently.
    """
    stored: dict[str, str] = {}
    if out.resolve() in [folder.resolve() for folder in model_folders]:
        raise ValueError(f"--out {out} is the model's own folder; give another")
    if out.exists() and not out.is_dir():
        raise ValueError(f"--out {out} is no folder; give another")
    if (earlier := out / NAME).is_file():
        try:
            stored = {name: facts["sha256"] for name, facts in json.loads(earlier.read_bytes())["files"].items()}
            if not stored:
                raise ValueError("it lists no files")
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"{earlier} is not the manifest of an export; give another --out, or remove it") from error
    for name, data in files.items():
        if (path := out / name).is_file() and path.read_bytes() != data and sha256(path) != stored.get(name):
            raise ValueError(f"{path} is not of an earlier export, or was changed; give another --out, or remove it")
    earlier.unlink(missing_ok=True)  # first, as a folder without a manifest is no export
    for name, digest in stored.items():
        path = out / name
        if path.resolve().is_relative_to(out.resolve()) and path.is_file() and sha256(path) == digest:
            path.unlink()
    for name, data in files.items():
        (out / name).parent.mkdir(parents=True, exist_ok=True)
        write_whole(out / name, data)
        if (out / name).read_bytes() != data:
            raise RuntimeError(f"{name} differs from what was written")


def finish(out: Path, names: Sequence[str], facts: Mapping[str, object]) -> int:
    """Write `facts` with the bytes and sha256 of each file, and return the total bytes. Call it last."""
    sizes = {name: (out / name).stat().st_size for name in names}
    files = {name: {"bytes": size, "sha256": sha256(out / name)} for name, size in sizes.items()}
    write_whole(out / NAME, (json.dumps({**facts, "files": files}, indent=2, allow_nan=False) + "\n").encode())
    return sum(sizes.values())
