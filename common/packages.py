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
    """Return the recorded folder of a run's own workload, if any; UserError if within the run, which brings no code."""
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
    """Import the package in `folder`, whose parent goes to the end of sys.path; UserError if its name is taken."""
    if str(folder.parent) not in sys.path:
        sys.path.append(str(folder.parent))
    spec = importlib.util.find_spec(folder.name)
    if spec is None or Path(spec.origin or "").resolve() != (folder / "__init__.py").resolve():
        raise UserError(f"{folder}: Python has another package {folder.name}; give your folder another name")
    return importlib.import_module(folder.name)


def neighbour(module: str, name: str) -> ModuleType | None:
    """Return the module `name` beside the imported `module` or its file; None: there is none."""
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
