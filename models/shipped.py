"""The models that come with the project: folders pretrained/WORKLOAD-WHAT with a model and a run's config."""

from pathlib import Path

FOLDER = Path(__file__).resolve().parent / "pretrained"


def names(workload: str) -> list[str]:
    """Return the names of a workload's shipped models, the smallest first."""
    found = [path.parent.name for path in FOLDER.glob(f"{workload}-*/run.yaml")]
    return sorted(found, key=lambda name: (len(name), name))


def models_in(folder: Path) -> dict[str, Path]:
    """Return {name: folder} of the model in a folder, else of those in its subfolders."""
    below = {path.name: path for path in sorted((path.parent for path in folder.glob("*/config.json")), key=order)}
    return {folder.name: folder} if (folder / "config.json").is_file() or not below else below


def order(folder: Path) -> tuple[str, int]:
    """Return a folder's sort key, by the number at the end of its name, such as a fold's: the last model answers."""
    head, _, tail = folder.name.rpartition("-")
    return (head, int(tail)) if tail.isdigit() else (folder.name, 0)
