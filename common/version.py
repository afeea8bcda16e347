"""The project's version and extras, from its pyproject.toml or installation."""

import re
import tomllib
from functools import cache
from importlib import metadata
from pathlib import Path

NAME = "five-workloads"
# Packages that are imported by another name than they are installed by.
INSTALLED_AS = {
    "docx": "python-docx",
    "PIL": "pillow",
    "pynvml": "nvidia-ml-py",
    "skimage": "scikit-image",
    "sklearn": "scikit-learn",
    "yaml": "PyYAML",
}


def version() -> str:
    """Return the version."""
    return _stated()[0]


def missing(error: ModuleNotFoundError) -> str | None:
    """Return what to install for a failed import; None for a package unknown to the project."""
    module = (error.name or "").partition(".")[0]
    package = _canonical(INSTALLED_AS.get(module, module))
    extras = [extra for extra, packages in _stated()[1].items() if package in packages]
    if not extras:
        return None
    commands = " or ".join(f"pip install -e '.[{extra}]'" for extra in extras if extra)
    return f"the package {package} is missing; install it with {commands or 'pip install -e .'}"


@cache
def _stated() -> tuple[str, dict[str, set[str]]]:
    """Return the version, and the names of the packages of each extra; those of "" are needed by all."""
    file = Path(__file__).resolve().parents[1] / "pyproject.toml"
    if file.is_file():
        stated = tomllib.loads(file.read_text())["project"]
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
    """Return the package that a requirement names, as registries compare names (PEP 503)."""
    name = re.split(r"[^\w.-]", requirement, maxsplit=1)[0]
    return re.sub(r"[-_.]+", "-", name).lower()
