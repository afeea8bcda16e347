"""One folder per workload: what its data, model, loss and report are. A workload is found by its folder's name."""

import importlib
import importlib.util
import os
import sys
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from common.errors import UserError
from common.input_files import Inputs
from pipelines.engine.workload import Workload

FOLDER = Path(__file__).resolve().parent


def names() -> list[str]:
    """The workloads in this project's folder."""
    return sorted(path.parent.name for path in FOLDER.glob("*/__init__.py"))


def name_of(word: str) -> str:
    """The name of the workload that --workload gives, be it by its name or by its folder."""
    return Path(os.path.abspath(word)).name


def own_folder(word: str) -> Path | None:
    """The folder of a workload of the user's own; None for a name, which is one of this project or unknown."""
    folder = Path(os.path.abspath(word))
    is_path = len(Path(word).parts) != 1 or (folder / "__init__.py").is_file()
    return folder if is_path and word not in names() else None


def find(word: str) -> Workload:
    """The workload of this name, or in this folder, whose name is then the workload's.

    Raises UserError where there is none.
    """
    return _package(word).WORKLOAD


def inputs(word: str) -> Inputs:
    """What the models of this workload answer: INPUTS in the module `input_files` of its package.

    Raises UserError where there is no such workload, or its models have no predictions.
    """
    module = f"{_package(word).__name__}.input_files"
    found = getattr(importlib.import_module(module), "INPUTS", None) if importlib.util.find_spec(module) else None
    if not isinstance(found, Inputs):
        raise UserError(f"--workload {word}: its models have no predictions; there is no INPUTS in {module}")
    return found


def _package(word: str) -> Any:
    """The imported package of a workload."""
    folder = own_folder(word)
    if folder is not None:
        return _import_own(word, folder)
    if word not in names():
        near = get_close_matches(word, names(), 1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise UserError(f"unknown workload {word!r}{hint} (known: {', '.join(names())}, or the path of your own)")
    return importlib.import_module(f"{__name__}.{word}")


def _import_own(word: str, folder: Path) -> Any:
    """Import a package from outside this project, under its own name.

    Its parent goes to the end of sys.path, which the processes of members and data loaders inherit.
    """
    file = folder / "__init__.py"
    if not file.is_file() or not folder.name.isidentifier():
        raise UserError(
            f"--workload {word}: a workload of your own is a Python package with a WORKLOAD, and there is none at that "
            "path"
        )
    if folder.name in names():
        raise UserError(f"--workload {word}: this project has a workload {folder.name}; give your folder another name")
    if str(folder.parent) not in sys.path:
        sys.path.append(str(folder.parent))
    spec = importlib.util.find_spec(folder.name)
    if spec is None or Path(spec.origin or "").resolve() != file.resolve():
        raise UserError(f"--workload {word}: Python has another package {folder.name}; give your folder another name")
    package = importlib.import_module(folder.name)
    if not isinstance(getattr(package, "WORKLOAD", None), Workload):
        raise UserError(f"--workload {word}: {file} defines no WORKLOAD, a pipelines.engine.workload.Workload")
    return package
