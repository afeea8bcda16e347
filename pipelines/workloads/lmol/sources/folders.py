"""Images of a table where they lie below its folder, and what else lies in a folder."""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable
from pathlib import Path, PurePosixPath

from common.foreign_text import printable
from models.images.comparator.interface import ENDINGS


def located(names: Iterable[str], folder: Path) -> tuple[dict[str, str], list[str]]:
    """Return the paths below a folder of named images that are not where their names say, and notes about them.

    A name may lack folders at the beginning of the path, or have some that the path lacks. One that fits several files
    stays as it is.
    """
    inside = (name for name in names if name and ".." not in PurePosixPath(name).parts)
    missing = [name for name in inside if not (folder / name).is_file()]
    if not missing:
        return {}, []
    below = defaultdict(list)
    for path in sorted(folder.rglob("*")):
        if path.suffix.lower() in ENDINGS:
            below[path.name].append(path.relative_to(folder).as_posix())
    fitting = {
        name: [
            path
            for path in below[PurePosixPath(name).name]
            if f"/{path}".endswith(f"/{name}") or f"/{name}".endswith(f"/{path}")
        ]
        for name in missing
    }
    found = {name: paths[0] for name, paths in fitting.items() if len(paths) == 1}
    notes = [f"images are found below {folder}, such as {next(iter(found.values()))}"] if found else []
    unclear = [f"{name} ({', '.join(paths[:2])})" for name, paths in fitting.items() if len(paths) > 1]
    if unclear:
        notes.append(f"names that fit several files are not used: {unclear[0]}{', ...' * (len(unclear) > 1)}")
    return found, notes


def passed_over(folder: Path, used: Collection[Path], images: str) -> list[str]:
    """Return a line that counts, by kind, a folder's files not `used`, except hidden ones; `images` names images."""
    known = {path.absolute() for path in used}
    kinds: Counter[str] = Counter()
    for path in folder.rglob("*"):
        below = path.relative_to(folder)
        if path.is_file() and path.absolute() not in known and not any(part.startswith(".") for part in below.parts):
            ending = path.suffix.lower()
            kinds[images if ending in ENDINGS else printable(ending, 20) or "without an ending"] += 1
    listed = ", ".join(f"{kind} ({count:,})" for kind, count in sorted(kinds.items()))
    return [f"passed over in {folder}: {listed}"] if listed else []


def home(table: Path) -> Path:
    """Return the folder that the names in a table are relative to."""
    return table if table.is_dir() else table.parent


def within(folder: Path, name: str) -> Path:
    """Return the path of the image called `name` in a CSV of `folder`; ValueError if it lies elsewhere."""
    path = folder / name
    if not name or "\0" in name or not path.resolve().is_relative_to(folder.resolve()):
        raise ValueError(f"not below {folder}, the folder of the CSV; move the CSV to a folder above all of its images")
    return path
