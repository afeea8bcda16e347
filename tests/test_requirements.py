"""requirements.txt names every package that is imported, and nothing that is not used."""

import ast
import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from importlib import metadata
from pathlib import Path

import pytest

from tests.syntax import parsed, within_statement

ROOT = Path(__file__).resolve().parents[1]
OURS = {"common", "examples", "exporters", "models", "pipelines", "tests"}
# Imported by their bare names.
HELPERS = {
    *(path.stem for path in (ROOT / "tests").glob("*.py")),
    *("candle_features", "candles", "chains", "reader", "signals"),  # copied beside the examples of exports
}

OPTIONAL = {
    "pillow_heif": "reads HEIC images, an extra; the gate has it from tests/optional.txt",
    "ccxt": "needed by data.source=ccxt of crypto alone, which says so when it is missing",
    "freqtrade": "runs an exported strategy, in an environment of its own",
    "rl4co": "a peer that training is compared with, in an environment of its own",
    "lightgbm": "a peer that the pool is compared with, in a folder of its own",
    "lightning": "comes with rl4co",
    "triton": "comes with torch for GPUs; the gate has it from tests/optional.txt",
    "_typeshed": "names of types alone, known to type checkers",
}
NOT_IMPORTED = {
    "ipykernel": "started by nbclient",
    "mypy": "a command: make lint",
    "num2words": "imported by transformers' processor of SmolVLM",
    "onnx": "used by torch.onnx.export",
    "onnxscript": "used by torch.onnx.export",
    "ruff": "a command: make lint",
    "pytest-xdist": "a plugin of pytest: -n 2",
    "types-psutil": "read by mypy",
    "types-pyyaml": "read by mypy",
}


def statements(node: ast.AST) -> Iterator[ast.AST]:
    """Yield all statements within a node."""
    for inner in within_statement(node):
        yield inner
        yield from statements(inner)


def top_level_imports(source: str) -> Iterator[str]:
    """Yield the packages that a file imports, at its top or inside functions."""
    for node in statements(parsed(source).tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            yield node.module.partition(".")[0]


@cache
def third_party() -> dict[str, list[str]]:
    """Return imported packages that are neither of the standard library nor ours, with the files that import them."""
    found = defaultdict(list)
    for folder in sorted(OURS):
        for path in sorted((ROOT / folder).rglob("*.py")):
            for name in set(top_level_imports(path.read_text())) - OURS - HELPERS - sys.stdlib_module_names:
                found[name].append(str(path.relative_to(ROOT)))
    return dict(found)


def canonical(distribution: str) -> str:
    """Return a distribution's name as package registries compare it (PEP 503)."""
    return re.sub(r"[-_.]+", "-", distribution).lower()


def pins() -> dict[str, str]:
    """Return the version of every distribution in requirements.txt."""
    lines = [line.partition("#")[0].strip() for line in (ROOT / "requirements.txt").read_text().splitlines()]
    pairs = [line.split("==") for line in lines if line]
    return {canonical(name): version for name, version in pairs}


def faults(imports: dict[str, list[str]], pinned: set[str], distributions: dict[str, list[str]]) -> list[str]:
    """Describe imports that no requirement provides, and requirements that nothing uses."""
    found, used = [], set()
    for name, paths in sorted(imports.items()):
        owners = {canonical(owner) for owner in distributions.get(name, [])}
        used |= owners
        if not owners & pinned and name not in OPTIONAL:
            found.append(f"{name} is imported by {paths[0]}; requirements.txt names no distribution of it")
    unused = pinned - used - set(NOT_IMPORTED)
    return found + [f"{name} is in requirements.txt and imported nowhere" for name in sorted(unused)]


def test_every_import_is_required_and_every_requirement_is_used():
    found = faults(third_party(), set(pins()), metadata.packages_distributions())
    assert not found, "\n" + "\n".join(found)


def test_exceptions_are_still_needed():
    assert set(OPTIONAL) <= set(third_party())
    assert not set(OPTIONAL) & set(pins())
    assert set(NOT_IMPORTED) <= set(pins())


def test_files_of_every_part_are_read():
    paths = {path for paths in third_party().values() for path in paths}
    assert {path.partition("/")[0] for path in paths} == OURS


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("import os.path, yaml", ["os", "yaml"]),
        ("from torch.nn import functional", ["torch"]),
        ("def f():\n  import pandas as pd", ["pandas"]),
        (
            "try:\n  import pynvml\nexcept ImportError:\n  import one\nelse:\n  import two\nfinally:\n  import yaml",
            ["pynvml", "one", "two", "yaml"],
        ),
        ("match x:\n  case 1:\n    with y:\n      if z:\n        pass\n      elif v:\n        import numpy", ["numpy"]),
        ("from . import data\nfrom ..y import z", []),
    ],
)
def test_the_reader_finds_imports_wherever_they_stand(source, names):
    assert list(top_level_imports(source)) == names


def test_a_missing_and_an_unused_requirement_are_found():
    found = faults({"yaml": ["models/a.py"], "docx": ["models/b.py"]}, {"pyyaml", "pypdf"}, {"yaml": ["PyYAML"]})
    assert found == [
        "docx is imported by models/b.py; requirements.txt names no distribution of it",
        "pypdf is in requirements.txt and imported nowhere",
    ]


def test_every_requirement_is_pinned_to_a_version():
    assert all(re.fullmatch(r"\d[\w.]*", version) for version in pins().values())
