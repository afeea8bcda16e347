"""Packages that lie outside this project, such as a workload of the user's own."""

import importlib
import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

from common.errors import UserError

RECORD = "workload_folder"  # key of a run's provenance.json


def recorded_folder(run: Path) -> Path | None:
    """Return the folder of the user's own workload that a run was trained from; None where it records none.

    Raises UserError for a folder within the run: runs that come from elsewhere must not bring code.
    """
    try:
        found = json.loads((run / "provenance.json").read_bytes()).get(RECORD)
    except (OSError, ValueError, AttributeError):
        return None
    if not isinstance(found, str):
        return None
    if Path(found).resolve().is_relative_to(run.resolve()):
        raise UserError(f"{run} brings code of its own, in {found}: move it elsewhere if you trust it, and name it")
    return Path(found)


def import_folder(folder: Path) -> ModuleType:
    """Import the package in `folder` under the folder's name. Raises UserError where Python has another one of it.

    Its parent goes to the end of sys.path, which processes of members and data loaders inherit.
    """
    if str(folder.parent) not in sys.path:
        sys.path.append(str(folder.parent))
    spec = importlib.util.find_spec(folder.name)
    if spec is None or Path(spec.origin or "").resolve() != (folder / "__init__.py").resolve():
        raise UserError(f"{folder}: Python has another package {folder.name}; give your folder another name")
    return importlib.import_module(folder.name)


def neighbour(module: str, name: str) -> ModuleType | None:
    """Return the module `name` beside the imported `module` of a package, or beside its file; None: there is none."""
    file = Path(sys.modules[module].__file__ or "").with_name(f"{name}.py")
    if not file.is_file():
        return None
    package = module.rpartition(".")[0]
    if not package and file.with_name("__init__.py").is_file():
        package = import_folder(file.resolve().parent).__name__
    if package:
        return importlib.import_module(f"{package}.{name}")
    spec = importlib.util.spec_from_file_location(f"{module}_{name}", file)
    assert spec is not None, "a name that ends in .py has a loader"
    assert spec.loader is not None, "a name that ends in .py has a loader"
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made
