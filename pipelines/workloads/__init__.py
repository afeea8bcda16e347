"""One folder per workload, with its data, model, loss and report. A workload is found by its folder's name."""

import importlib
import importlib.util
import os
from collections.abc import Callable
from difflib import get_close_matches
from pathlib import Path
from types import ModuleType

from common.errors import UserError
from common.input_files import Inputs
from common.packages import import_folder, recorded_folder
from pipelines.engine.config import BaseConfig
from pipelines.engine.workload import Feed, Workload

FOLDER = Path(__file__).resolve().parent


def names() -> list[str]:
    """Return the names of the workloads in this project's folder."""
    return sorted(path.parent.name for path in FOLDER.glob("*/__init__.py"))


def name_of(word: str) -> str:
    """Return the name of the workload that --workload gives by name or by folder."""
    return Path(os.path.abspath(word)).name


def own_folder(word: str) -> Path | None:
    """Return the folder of a workload of the user's own, by its path or its runs' name; None for any other name."""
    if word in names():
        return None
    folder = Path(os.path.abspath(word))
    return folder if (len(Path(word).parts) != 1 or (folder / "__init__.py").is_file()) else _recorded(word)


def find(word: str) -> Workload:
    """Return the workload of this name or in this folder, which names it. Raises UserError if there is none."""
    workload: Workload = _package(word).WORKLOAD
    return workload


def inputs(word: str) -> Inputs:
    """Return INPUTS, the inputs that the models answer, of the module `input_files` in the workload's package.

    Raises UserError if there is no such workload, or its models have no predictions.
    """
    module = f"{_package(word).__name__}.input_files"
    found = getattr(importlib.import_module(module), "INPUTS", None) if importlib.util.find_spec(module) else None
    if not isinstance(found, Inputs):
        raise UserError(f"--workload {word}: its models have no predictions; there is no INPUTS in {module}")
    return found


def feed(word: str) -> Callable[[BaseConfig, Path], Feed]:
    """Return `feed` in the module `following` of a workload's package: (run's config, folder of its own) -> Feed.

    Raises UserError where there is no such workload, or nothing to follow.
    """
    module = f"{_package(word).__name__}.following"
    if not importlib.util.find_spec(module):
        raise UserError(f"--workload {word}: it has nothing to follow; there is no {module}")
    opened: Callable[[BaseConfig, Path], Feed] = importlib.import_module(module).feed
    return opened


def _package(word: str) -> ModuleType:
    if (folder := own_folder(word)) is not None:
        return _import_own(word, folder)
    if word not in names():
        near = get_close_matches(word, names(), 1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise UserError(f"unknown workload {word!r}{hint} (known: {', '.join(names())}, or the path of your own)")
    return importlib.import_module(f"{__name__}.{word}")


def _recorded(name: str) -> Path | None:
    """Return the folder that a workload's runs record, None without runs; UserError for several, or if it is gone."""
    known = {folder for run in Path("runs", name).glob("*/") if (folder := recorded_folder(run))}
    there = [folder for folder in sorted(known) if (folder / "__init__.py").is_file()]
    if len(there) > 1 or (known and not there):
        places = " and ".join(map(str, there or sorted(known)))
        what = "trained from" if there else "trained from what is no longer in"
        raise UserError(f"runs of {name} were {what} {places}; give the folder, as in --workload FOLDER/{name}")
    return there[0] if there else None


def _import_own(word: str, folder: Path) -> ModuleType:
    """Import a package from outside this project, under its own name."""
    file = folder / "__init__.py"
    if not file.is_file() or not folder.name.isidentifier():
        needed = "a workload of your own is a Python package with a WORKLOAD"
        raise UserError(f"--workload {word}: {needed}, and there is none at that path")
    if folder.name in names():
        raise UserError(f"--workload {word}: this project has a workload {folder.name}; give your folder another name")
    package = import_folder(folder)
    if not isinstance(getattr(package, "WORKLOAD", None), Workload):
        raise UserError(f"--workload {word}: {file} defines no WORKLOAD, a pipelines.engine.workload.Workload")
    return package
