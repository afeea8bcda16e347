"""The direction of dependencies, and what no file may do, read from the syntax trees of all files."""

import ast
import graphlib
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

import pytest

from tests.rooms import ROOMS, as_table, room_of
from tests.syntax import parsed, within_statement

ROOT = Path(__file__).resolve().parents[1]
OURS = ("common", "examples", "exporters", "models", "pipelines", "tests")
HEAVY = ("torch_geometric", "peft", "transformers", "pyvrp", "hygese")  # 1 to 13 seconds to import
PICKLES = ("pickle", "cPickle", "_pickle", "dill", "cloudpickle", "joblib", "shelve", "marshal")
TRAINS = tuple(f"pipelines.{room}" for room in ("distributed", "tracking", "engine", "members", "checks"))


def may_import(room: str, name: str) -> bool:
    """Whether files of a room may import this name of ours."""
    target = room_of(name)
    if target == room or (target.startswith("common") and not room.startswith("common")):
        return True
    return target in ROOMS[room] or within(name, tuple(each for each in ROOMS[room] if each not in ROOMS))


def within(name: str, packages: tuple[str, ...]) -> bool:
    return any(name == package or name.startswith(package + ".") for package in packages)


def is_for_types(test: ast.AST) -> bool:
    """Whether a condition has TYPE_CHECKING in it; all of them as text would take seconds."""
    return any("TYPE_CHECKING" in (getattr(node, "id", ""), getattr(node, "attr", "")) for node in ast.walk(test))


def imports(tree: ast.AST, module: str, is_package: bool) -> Iterator[tuple[str, int, str]]:
    """(name, line, when) of everything imported: with the module, in a call, or for types alone."""

    def visit(node: ast.AST, when: str) -> Iterator[tuple[str, int, str]]:
        for child in within_statement(node):
            if isinstance(child, ast.Import):
                yield from ((alias.name, child.lineno, when) for alias in child.names)
            elif isinstance(child, ast.ImportFrom):
                source = child.module or ""
                if child.level:
                    package = module.split(".") if is_package else module.split(".")[:-1]
                    source = ".".join([*package[: len(package) - child.level + 1], *([source] if source else [])])
                # `from models import io` imports models.io
                yield from ((f"{source}.{alias.name}", child.lineno, when) for alias in child.names)
            elif isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                yield from visit(child, "call")
            elif isinstance(child, ast.If) and is_for_types(child.test):
                yield from visit(ast.Module(child.body, []), "types")
                yield from visit(ast.Module(child.orelse, []), when)
            else:
                yield from visit(child, when)

    yield from visit(tree, "import")


def circles(graph: Mapping[str, Collection[str]]) -> list[str]:
    """Return the circles of a graph {node: nodes it points to}, each as a line."""
    sorter = graphlib.TopologicalSorter(graph)
    try:
        sorter.prepare()
    except graphlib.CycleError as error:
        nodes = error.args[1]
        rest = {node: [each for each in graph[node] if (node, each) != (nodes[1], nodes[0])] for node in graph}
        return [" <- ".join(nodes), *circles(rest)]
    return []


def file_graph(sources: Mapping[str, str]) -> dict[str, set[str]]:
    """Return {module: modules it imports, for types or in calls as well} of {path: source}."""
    modules = {path.removesuffix(".py").removesuffix("/__init__").replace("/", "."): path for path in sources}
    graph: dict[str, set[str]] = {module: set() for module in modules}
    for module, path in modules.items():
        for name, _, _ in imports(parsed(sources[path]).tree, module, path.endswith("/__init__.py")):
            while name and name not in modules:
                name = name.rpartition(".")[0]
            graph[module] |= {name} - {"", module}
    return graph


def faults(source: str, path: str) -> list[str]:
    """What is wrong in a file, as lines `path:line: fault`."""
    is_package = path.endswith("/__init__.py")
    module = path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    tree, loads = parsed(source)
    room = "" if module.startswith("tests") else room_of(module)
    found = []
    for name, line, when in imports(tree, module, is_package):
        top = name.split(".")[0]
        here = f"{path}:{line}:"
        if top in PICKLES:
            found.append(f"{here} imports {top}; files that a user could have been sent are safetensors, JSON or Arrow")
        if module.startswith("tests"):
            continue
        if top in OURS and (top == "tests" or not may_import(room, name)):
            found.append(f"{here} imports {name}; {room} may rest on {', '.join(('common', *ROOMS[room]))}")
        if top == "accelerate" and when != "types" and not within(module, TRAINS):
            found.append(f"{here} imports accelerate; only {', '.join(TRAINS)} may")
        if top in HEAVY and when == "import":
            found.append(f"{here} imports {top} when it is imported itself; import it in the function that needs it")
        if top in HEAVY and when != "types" and not within(module, ("models", "pipelines.workloads")):
            found.append(f"{here} imports {top}; only models and workloads may")
    for node in loads:
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


def test_every_room_has_a_row_and_every_row_is_a_room():
    folders = {tuple(Path(path).parent.parts) for path in files() if not path.startswith("tests/")}
    deep = {("pipelines", "workloads"): 3, ("examples", "hooks"): 1}
    rooms = {".".join(parts[: deep.get(parts[:2], 2)]) for parts in folders}
    assert rooms <= set(ROOMS), f"rows are missing: {sorted(rooms - set(ROOMS))}"
    modules = file_graph(dict.fromkeys(files(), ""))
    assert set(ROOMS) <= {*modules, *(".".join(parts) for parts in folders)}


def test_no_two_rooms_rest_on_each_other():
    assert (
        circles({room: [each for each in map(room_of, below) if each != room] for room, below in ROOMS.items()}) == []
    )


def test_the_architecture_page_has_the_table():
    page = (ROOT / "docs/architecture.md").read_text()
    assert as_table() in page, f"docs/architecture.md must have this table:\n\n{as_table()}"


def test_no_two_files_import_each_other_not_even_for_types():
    found = circles(file_graph({path: (ROOT / path).read_text() for path in files() if not path.startswith("tests/")}))
    assert not found, "\n" + "\n".join(found)


def test_circles_are_found_through_types_calls_and_packages():
    sources = {
        "a/__init__.py": "from . import b",
        "a/b.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n  from a import Name",
        "c.py": "def f():\n  import d",
        "d.py": "from c import f",
        "e.py": "import c, d",
    }
    assert sorted(circles(file_graph(sources))) == ["a <- a.b <- a", "c <- d <- c"]


def test_files_of_every_part_are_read():
    assert {"models/io.py", "exporters/__main__.py", "pipelines/train.py", "tests/conftest.py"} <= set(files())


@pytest.mark.parametrize(
    ("path", "source", "fault"),
    [
        ("models/a.py", "import pipelines.engine.loop", "imports pipelines.engine.loop; models may rest on common"),
        ("models/a.py", "from exporters import export_folder", "imports exporters.export_folder"),
        ("models/routing/a.py", "from ...pipelines import engine", "imports pipelines.engine"),
        ("models/a.py", "from accelerate import Accelerator", "imports accelerate; only pipelines.distributed"),
        ("models/a.py", "import torch_geometric.nn", "import it in the function that needs it"),
        ("models/a.py", "class A:\n  import pyvrp", "import it in the function that needs it"),
        ("models/a.py", "try:\n  import peft\nexcept ImportError:\n  pass", "import it in the function that needs it"),
        ("exporters/a.py", "def f():\n  from pipelines.engine import loop", "imports pipelines.engine.loop"),
        ("pipelines/engine/a.py", "from pipelines.workloads import cvrp", "imports pipelines.workloads.cvrp"),
        ("pipelines/engine/a.py", "from models import routing", "imports models.routing"),
        ("pipelines/engine/a.py", "def f():\n  import transformers", "only models and workloads may"),
        ("pipelines/workloads/bep/__init__.py", "from ..cvrp import task", "imports pipelines.workloads.cvrp.task"),
        (
            "pipelines/workloads/x/task.py",
            "def f():\n  import accelerate",
            "imports accelerate; only pipelines.distributed",
        ),
        ("pipelines/train.py", "import accelerate", "imports accelerate; only pipelines.distributed"),
        ("pipelines/train.py", "from models.routing.policy import RoutingPolicy", "imports models.routing.policy"),
        ("pipelines/train.py", "from pipelines.workloads import cvrp", "imports pipelines.workloads.cvrp"),
        ("models/io.py", "if TYPE_CHECKING:\n  from models.plans import chains", "imports models.plans.chains"),
        ("common/config/a.py", "from common.disk import files", "imports common.disk.files"),
        ("pipelines/run/a.py", "from pipelines.engine import config", "imports pipelines.engine.config"),
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
        ("exporters/a.py", "from exporters import export_folder\nfrom models import io"),
        ("pipelines/engine/a.py", "import accelerate\nfrom models import io\nfrom .files import write_json"),
        ("pipelines/workloads/bep/task.py", "from . import data\nfrom pipelines.engine.workload import Loss"),
        ("pipelines/workloads/bep/__init__.py", "from .task import Task\nfrom pipelines.workloads.bep.data import f"),
        ("pipelines/train.py", "from pipelines.engine import loop\nfrom pipelines import workloads"),
        ("tests/a.py", "import accelerate, pyvrp\nfrom pipelines.engine import loop\nfrom tests import b"),
        ("models/a.py", "torch.load(x, weights_only=True)\nnp.load(x, allow_pickle=False)"),
    ],
)
def test_the_reader_lets_pass(path, source):
    assert faults(source, path) == []
