"""Prepared data: one folder per set of values that determines them, complete or absent."""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from pydantic import BaseModel

from common.disk.files import digests, folder_at_once, sha256, tidy, write_json
from common.disk.lock import held
from common.errors import UserError, as_user_error
from common.plain import Plain

MANIFEST = "manifest.json"
ANEW = (
    "delete that folder to prepare it anew (runs trained on it will then no longer match), or give the new file "
    "another name"
)


def folder_for(name: str, data: BaseModel, layout: int) -> Path:
    """Return data/<name>/<hash of the values that decide what is prepared, and of their layout on disk>."""
    text = json.dumps({**section_of(data), "layout": layout}, sort_keys=True)
    return Path("data") / name / hashlib.sha256(text.encode()).hexdigest()[:16]


def section_of(data: BaseModel) -> dict[str, object]:
    """Return the values of a config section that decide what is prepared."""
    return dict(data.model_dump(mode="json", exclude={"loader"}))


def prepare(
    folder: Path,
    section: Mapping[str, object],
    write: Callable[[Path], Mapping[str, object]],
    inputs: Callable[[], Sequence[Path]],
    renew: Callable[[Path], Mapping[str, object]] | None = None,
    remedy: str = ANEW,
) -> dict[str, Plain]:
    """Return the manifest of the data in `folder`; if there are none, `write` makes them and returns facts for it.

    `inputs` lists the user's files behind the data. If one has changed, `renew` makes the data as `write` does, reusing
    those in `folder`; without it UserError ends with `remedy`. Waits for other processes preparing the same data.
    """
    lock, parts = folder.parent / ".lock", f".{folder.name}.parts"  # finished parts that `write` keeps until the end
    if lock.exists() and (folder / MANIFEST).exists():
        with suppress(UserError), held(lock):  # left by a killed process, unless another is writing
            tidy(folder.parent, ".*.old", ".*.tmp", parts)

    def made(by: Callable[[Path], Mapping[str, object]], again: bool = False) -> bool:
        """Make the data, `again` if files changed; return False if another process did so meanwhile."""
        with held(lock, wait=True):
            tidy(folder.parent)
            if (folder / MANIFEST).exists() and not (again and _changed(_manifest(folder), inputs)):
                return False
            with folder_at_once(folder) as temporary:
                facts = by(temporary)
                known = {str(path): sha256(path) for path in inputs()}
                manifest = {"data": dict(section), **facts, "inputs": known, "sha256": digests(temporary)}
                write_json(temporary / MANIFEST, manifest)
            tidy(folder.parent, parts)
            return True

    if not (folder / MANIFEST).exists() and made(write):
        return _manifest(folder)
    if (changed := _changed(_manifest(folder), inputs)) and renew:
        made(renew, again=True)
    elif changed:
        raise UserError(f"{changed[0]} has changed since {folder} was prepared; {remedy}")
    return _manifest(folder)


def _changed(manifest: Mapping[str, Plain], inputs: Callable[[], Sequence[Path]]) -> list[str]:
    """Return the user's files that are new or changed; missing ones are fine, as evaluation needs no sources."""
    known = found if isinstance(found := manifest.get("inputs"), Mapping) else {}
    changed = [path for path, was in known.items() if Path(path).is_file() and sha256(Path(path)) != was]
    return changed + [str(path) for path in inputs() if str(path) not in known]


def _manifest(folder: Path) -> dict[str, Plain]:
    what = f"{folder / MANIFEST} is not the manifest of prepared data ("
    with as_user_error(what, f"); delete {folder} to prepare it anew", (ValueError, KeyError, TypeError)):
        manifest = json.loads((folder / MANIFEST).read_bytes())
        missing = [name for name in manifest["sha256"] if not (folder / name).is_file()]
        if missing or (not manifest["sha256"] and len(list(folder.iterdir())) > 1):  # data may need no files
            raise ValueError(f"{missing[0]} is not there" if missing else "it lists none of the files there")
    return dict(manifest)
