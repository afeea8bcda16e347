"""This project as a package, its extras, and packages that lie outside it, such as a workload of the user's own."""

import importlib
import importlib.util
import json
import pkgutil
import re
import sys
import tomllib
from collections.abc import Callable
from functools import cache
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any

from common.errors import UserError

NAME = "five-workloads"
# Import name -> name of the package, where they differ.
INSTALLED_AS = {
    "docx": "python-docx",
    "PIL": "pillow",
    "pynvml": "nvidia-ml-py",
    "skimage": "scikit-image",
    "sklearn": "scikit-learn",
    "yaml": "PyYAML",
}
RECORD = "workload_folder"  # key of a run's provenance.json


def recorded_folder(run: Path) -> Path | None:
    """Return the recorded folder of a run's own workload, if any; UserError if inside the run, which holds no code."""
    try:
        found = json.loads((run / "provenance.json").read_bytes()).get(RECORD)
    except (OSError, ValueError, AttributeError):
        return None
    if not isinstance(found, str):
        return None
    if Path(found).resolve().is_relative_to(run.resolve()):
        raise UserError(f"{run} brings code of its own, in {found}: if you trust it, move it elsewhere and name it")
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
    """Return the module `name` beside the imported `module`; None: there is none."""
    if not Path(sys.modules[module].__file__ or "").with_name(f"{name}.py").is_file():
        return None
    package = module.rpartition(".")[0]
    return importlib.import_module(f"{package}.{name}" if package else name)


def version() -> str:
    """Return the version."""
    return _stated()[0]


def missing(error: ModuleNotFoundError) -> str | None:
    """Return what to install for a failed import; None for a package unknown to the project."""
    module = (error.name or "").partition(".")[0]
    package = _canonical(INSTALLED_AS.get(module, module))
    if not (extras := [extra for extra, packages in _stated()[1].items() if package in packages]):
        return None
    commands = " or ".join(f"pip install -e '.[{extra}]'" for extra in extras if extra)
    return f"the package {package} is missing; install it with {commands or 'pip install -e .'}"


@cache
def _stated() -> tuple[str, dict[str, set[str]]]:
    file = Path(__file__).resolve().parents[1] / "pyproject.toml"
    if file.is_file():
        stated = tomllib.loads(file.read_bytes().decode())["project"]
        extras = {"": stated["dependencies"], **stated["optional-dependencies"]}
        return stated["version"], {extra: {_canonical(each) for each in packages} for extra, packages in extras.items()}
    packages: dict[str, set[str]] = {}
    try:
        number, lines = metadata.version(NAME), metadata.requires(NAME) or ()
    except metadata.PackageNotFoundError:  # a copy of the code alone
        return "unknown", packages
    for line in lines:
        extra = re.search(r"extra == ['\"](\w+)['\"]", line)
        packages.setdefault(extra[1] if extra else "", set()).add(_canonical(line))
    return number, packages


def _canonical(requirement: str) -> str:
    return re.sub(r"[-_.]+", "-", re.split(r"[^\w.-]", requirement, maxsplit=1)[0]).lower()


def lazily(path: str) -> Callable[..., Any]:
    """Return a stand-in for `package.module:name`, with its `__module__`, that imports the module when it is called."""

    def call(*args: object, **kwargs: object) -> object:
        return pkgutil.resolve_name(path)(*args, **kwargs)

    call.__module__ = path.partition(":")[0]
    return call
