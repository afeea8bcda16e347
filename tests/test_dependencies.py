"""The direction of dependencies, and what no file may do, read from the syntax trees of all files."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
OURS = ("common", "examples", "exporters", "models", "pipelines", "tests")
HEAVY = ("torch_geometric", "peft", "transformers", "pyvrp", "hygese")  # 1 to 13 seconds to import
PICKLES = ("pickle", "cPickle", "_pickle", "dill", "cloudpickle", "joblib", "shelve", "marshal")

# What the rooms of pipelines/ may import from, beside common and themselves.
ROOMS = {
    "distributed": (),
    "run": ("pipelines.engine",),
    "tracking": ("pipelines.distributed", "pipelines.engine", "pipelines.run"),
    "engine": ("models.io", "pipelines.distributed", "pipelines.run", "pipelines.tracking"),
    "members": ("pipelines.distributed", "pipelines.engine", "pipelines.run"),
    "checks": ("pipelines.engine", "pipelines.run"),
    "report": ("pipelines.engine", "pipelines.members", "pipelines.run"),
}
TRAINS = tuple(f"pipelines.{room}" for room in ("distributed", "tracking", "engine", "members", "checks"))


def allowed(module: str) -> tuple[str, ...]:
    """Which of our packages `module` may import from."""
    parts = module.split(".")
    if parts[0] == "common":
        return ("common",)
    if parts[0] in ("models", "exporters"):
        return ("common", "models") if parts[0] == "models" else ("common", "models", "exporters")
    if parts[0] == "examples":
        return ("common", "examples", "models", "pipelines")
    if parts[0] == "pipelines" and len(parts) > 2 and parts[1] in ROOMS:
        return ("common", *ROOMS[parts[1]], ".".join(parts[:2]))
    if parts[:2] == ["pipelines", "workloads"]:
        rooms = ("distributed", "engine", "members", "report", "run")
        return ("common", "models", *(f"pipelines.{room}" for room in rooms), ".".join(parts[:3]))
    return ("common", "models.io", "pipelines")  # the entry points


def within(name: str, packages: tuple[str, ...]) -> bool:
    return any(name == package or name.startswith(package + ".") for package in packages)


def imports(tree: ast.AST, module: str, is_package: bool) -> Iterator[tuple[str, int, bool]]:
    """(name, line, whether it runs when the module is imported) of everything imported."""

    def visit(node: ast.AST, at_import: bool) -> Iterator[tuple[str, int, bool]]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.Import):
                yield from ((alias.name, child.lineno, at_import) for alias in child.names)
            elif isinstance(child, ast.ImportFrom):
                source = child.module or ""
                if child.level:
                    package = module.split(".") if is_package else module.split(".")[:-1]
                    source = ".".join([*package[: len(package) - child.level + 1], *([source] if source else [])])
                # `from models import io` imports models.io
                yield from ((f"{source}.{alias.name}", child.lineno, at_import) for alias in child.names)
            elif isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
                yield from visit(child, False)
            elif isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
                for statement in child.orelse:
                    yield from visit(statement, at_import)
            else:
                yield from visit(child, at_import)

    yield from visit(tree, True)


def faults(source: str, path: str) -> list[str]:
    """What is wrong in a file, as lines `path:line: fault`."""
    is_package = path.endswith("/__init__.py")
    module = path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    tree = ast.parse(source)
    found = []
    for name, line, at_import in imports(tree, module, is_package):
        top = name.split(".")[0]
        here = f"{path}:{line}:"
        if top in PICKLES:
            found.append(f"{here} imports {top}; files that a user could have been sent are safetensors, JSON or Arrow")
        if module.startswith("tests"):
            continue
        if top in OURS and not within(name, allowed(module)):
            found.append(f"{here} imports {name}; {module} may import from {', '.join(allowed(module))}")
        if top == "accelerate" and not within(module, TRAINS):
            found.append(f"{here} imports accelerate; only {', '.join(TRAINS)} may")
        if top in HEAVY and at_import:
            found.append(f"{here} imports {top} when it is imported itself; import it in the function that needs it")
        if top in HEAVY and not within(module, ("models", "pipelines.workloads")):
            found.append(f"{here} imports {top}; only models and workloads may")
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        called = ast.unparse(node.func)
        words = {word.arg: ast.unparse(word.value) for word in node.keywords}
        if called == "torch.load" and words.get("weights_only") != "True":
            found.append(f"{path}:{node.lineno}: torch.load without weights_only=True reads pickle")
        if words.get("allow_pickle", "False") != "False" or called.endswith("read_pickle"):
            found.append(f"{path}:{node.lineno}: {called} reads pickle")
    return found


def files() -> list[str]:
    paths = [path for folder in OURS for path in (ROOT / folder).rglob("*.py")]
    return sorted(str(path.relative_to(ROOT)) for path in paths)


def test_dependencies_point_one_way_and_nothing_reads_pickle():
    found = [fault for path in files() for fault in faults((ROOT / path).read_text(), path)]
    assert not found, "\n" + "\n".join(found)


def test_files_of_every_part_are_read():
    assert {"models/io.py", "exporters/__main__.py", "pipelines/train.py", "tests/conftest.py"} <= set(files())


@pytest.mark.parametrize(
    ("path", "source", "fault"),
    [
        ("models/a.py", "import pipelines.engine.loop", "models.a may import from common, models"),
        ("models/a.py", "from exporters import manifest", "imports exporters.manifest"),
        ("models/routing/a.py", "from ...pipelines import engine", "imports pipelines.engine"),
        ("models/a.py", "from accelerate import Accelerator", "imports accelerate; only pipelines.distributed"),
        ("models/a.py", "import torch_geometric.nn", "import it in the function that needs it"),
        ("models/a.py", "class A:\n  import pyvrp", "import it in the function that needs it"),
        ("models/a.py", "try:\n  import peft\nexcept ImportError:\n  pass", "import it in the function that needs it"),
        ("exporters/a.py", "def f():\n  from pipelines.engine import loop", "imports pipelines.engine.loop"),
        ("pipelines/engine/a.py", "from pipelines.workloads import cvrp", "imports pipelines.workloads.cvrp"),
        ("pipelines/engine/a.py", "from models import routing", "imports models.routing"),
        ("pipelines/engine/a.py", "def f():\n  import transformers", "only models and workloads may"),
        ("pipelines/workloads/x/__init__.py", "from ..y import task", "imports pipelines.workloads.y.task"),
        (
            "pipelines/workloads/x/task.py",
            "def f():\n  import accelerate",
            "imports accelerate; only pipelines.distributed",
        ),
        ("pipelines/train.py", "import accelerate", "imports accelerate; only pipelines.distributed"),
        ("pipelines/train.py", "from models.routing.policy import RoutingPolicy", "imports models.routing.policy"),
        ("tests/a.py", "import pickle", "imports pickle"),
        ("models/a.py", "def f(x):\n  torch.load(x)", "torch.load without weights_only=True"),
        ("models/a.py", "torch.load(x, weights_only=False)", "torch.load without weights_only=True"),
        ("pipelines/workloads/x/a.py", "np.load(x, allow_pickle=True)", "np.load reads pickle"),
        ("pipelines/workloads/x/a.py", "pd.read_pickle(x)", "pd.read_pickle reads pickle"),
    ],
)
def test_the_reader_finds(path, source, fault):
    found = faults(source, path)
    assert len(found) >= 1
    assert any(fault in line for line in found), found


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("models/a.py", "from models.io import load\nfrom . import counter"),
        ("models/a.py", "def f():\n  import torch_geometric"),
        ("models/a.py", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n  import transformers"),
        ("exporters/a.py", "from exporters import manifest\nfrom models import io"),
        ("pipelines/engine/a.py", "import accelerate\nfrom models import io\nfrom .files import write_json"),
        ("pipelines/workloads/x/task.py", "from . import data\nfrom pipelines.engine.workload import Loss"),
        ("pipelines/workloads/x/__init__.py", "from .task import Task\nfrom pipelines.workloads.x.data import f"),
        ("pipelines/train.py", "from pipelines.engine import loop\nfrom pipelines.workloads import cvrp"),
        ("tests/a.py", "import accelerate, pyvrp\nfrom pipelines.engine import loop\nfrom tests import b"),
        ("models/a.py", "torch.load(x, weights_only=True)\nnp.load(x, allow_pickle=False)"),
    ],
)
def test_the_reader_lets_pass(path, source):
    assert faults(source, path) == []
