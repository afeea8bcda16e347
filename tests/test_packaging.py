"""pyproject.toml and requirements.txt agree, and what is installed by default binds nobody to its licence."""

import re
import tomllib
from importlib import metadata
from pathlib import Path

import pytest

from common import packages

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
APART = {"heif"}  # extras that requirements.txt leaves out
# Licences that ask for no more than a notice, or bind only changes of the package itself, as packages state them.
FREE = (
    r"apache|bsd|mit\b|\bisc\b|psf|python software foundation|mpl|mozilla|hpnd|unlicense|zlib|0bsd|cc0|boost|bsl-1"
    r"|public domain|historical permission"
)
# Under the LGPL, which lets anybody import them as they are.
IMPORTED_UNCHANGED = {"num2words", "pyppmd"}
# Their metadata say BSD, but their wheels hold code under the GPL: tests alone use one, an extra asks for the other.
BUNDLES = {"unicorn": "dev", "pillow-heif": "heif"}


def name_of(requirement: str) -> str:
    return re.sub(r"[-_.]+", "-", re.match(r"[\w.-]+", requirement)[0]).lower()


def stated() -> dict[str, str]:
    """Return each requirement of pyproject.toml with its lower bound, those of extras that are apart left out."""
    extras = PROJECT["optional-dependencies"]
    lines = [*PROJECT["dependencies"], *(line for extra in extras if extra not in APART for line in extras[extra])]
    return {name_of(line): re.search(r">=([\d.]+)", line)[1] for line in lines}


def pinned() -> dict[str, str]:
    lines = [line.partition("#")[0].strip() for line in (ROOT / "requirements.txt").read_text().splitlines()]
    return {name_of(line): line.partition("==")[2] for line in lines if line}


def test_requirements_pin_what_the_project_asks_for_at_its_lower_bounds():
    assert set(stated()) == set(pinned()) - {"pydantic-core"}  # which pydantic asks for at one version
    for name, lower in stated().items():
        assert (pinned()[name] + ".").startswith(lower + "."), f"{name}: >={lower} and =={pinned()[name]}"


def licence(distribution: metadata.Distribution) -> str:
    """Return what a distribution says of its licence: the expression, else the classifiers, else the first line."""
    about = distribution.metadata
    if about.get("License-Expression"):
        return about["License-Expression"]
    classifiers = [each for each in about.get_all("Classifier") or () if each.startswith("License ::")]
    named = [each.rpartition("::")[2].strip() for each in classifiers if each.count("::") > 1]
    text = (about.get("License") or "").strip()
    return ", ".join(named) or text.partition("\n")[0] or " ".join(first_lines(distribution))


def first_lines(distribution: metadata.Distribution) -> list[str]:
    files = [file for file in distribution.files or () if re.match(r"licen[cs]e|copying", file.name, re.IGNORECASE)]
    return [line.strip() for file in files[:1] for line in file.read_text().splitlines()[:3]]


def needed(names: set[str]) -> set[str]:
    """Return the installed distributions that `names` need, themselves included."""
    found: set[str] = set()
    wanted = list(names)
    while wanted:
        name = wanted.pop()
        if name in found:
            continue
        try:
            requires = metadata.distribution(name).requires or []
        except metadata.PackageNotFoundError:
            continue
        found.add(name)
        wanted += [name_of(line) for line in requires if "extra ==" not in line]
    return found


def test_nothing_installed_by_default_binds_the_project_to_its_licence():
    strange = {}
    for name in sorted(needed(set(pinned()))):
        text = licence(metadata.distribution(name))
        free = re.search(FREE, text, re.IGNORECASE) and not re.search(r"\b[al]?gpl|gnu", text, re.IGNORECASE)
        if not free and name not in IMPORTED_UNCHANGED:
            strange[name] = text
    assert not strange


def test_exceptions_are_what_they_are_said_to_be():
    for name in IMPORTED_UNCHANGED:
        assert re.search("lgpl|lesser", licence(metadata.distribution(name)), re.IGNORECASE), name
    for package, extra in BUNDLES.items():
        extras = PROJECT["optional-dependencies"]
        asking = [each for each in extras if package in map(name_of, extras[each])]
        assert asking == [extra]
        assert package not in map(name_of, PROJECT["dependencies"])


@pytest.mark.parametrize(
    ("module", "said"),
    [
        ("docx.oxml", "the package python-docx is missing; install it with pip install -e '.[bep]'"),
        ("sklearn", "pip install -e '.[crypto]' or pip install -e '.[bep]' or pip install -e '.[lmol]'"),
        ("yaml", "the package pyyaml is missing; install it with pip install -e ."),
    ],
)
def test_a_missing_package_is_named_with_what_brings_it(module, said):
    assert said in packages.missing(ModuleNotFoundError(name=module))


def test_a_module_of_nobody_has_no_remedy():
    assert packages.missing(ModuleNotFoundError(name="nonsense")) is None
