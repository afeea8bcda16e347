"""Mutation testing: small changes of the code, one at a time, each of which some test should notice.

    make mutants                                          # all rooms below, a sample of each
    .venv/bin/python tests/mutants.py common/disk/files.py --most 0 --minutes 30
    .venv/bin/python tests/mutants.py models/images/ranking.py --tests tests/models/images/test_ranking.py

It works in copies of the checkout. A mutant is killed if a test of its room fails or takes too long; those that live
are printed as the line before and after. `--most 0` tries every mutant of a file, otherwise a sample drawn by --seed.
"""

import argparse
import ast
import contextlib
import importlib
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from textwrap import shorten

sys.path[0] = str(Path(__file__).resolve().parents[1])

from tests.stages import ROOT, copy_checkout  # noqa: E402 (a script sets its import path before it imports)

# What is changed, as a pattern of files, and the tests that should notice.
ROOMS = {
    "common/disk/*.py": ["tests/common/disk"],
    "pipelines/engine/*.py": ["tests/engine"],
    "pipelines/workloads/crypto/**/backtest.py": ["tests/workloads/crypto/**/test_backtest*.py"],
    "models/routing/environment.py": ["tests/models/routing", "tests/workloads/cvrp/test_rules.py"],
    "models/routing/search.py": ["tests/models/routing"],
    "models/stories/integer_transformer.py": ["tests/models/stories"],
    "exporters/rp2040/layout.py": ["tests/exporters/rp2040"],
}
LIBRARIES = ("torch", "numpy", "pandas", "scipy.stats", "pydantic", "accelerate", "datasets", "pytest", "hypothesis")
SWAPS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.And: ast.Or,
    ast.Or: ast.And,
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
}
DROPPED = (ast.Expr, ast.Assign, ast.AugAssign, ast.Raise, ast.Continue, ast.Break)
SLOWEST = 3, 20  # a mutant may take so many times as long as the tests without it, and so many seconds more


def mutants(source: str) -> Iterator[tuple[int, str]]:
    """Yield (line, changed source) of every mutant."""
    tree = ast.parse(source)
    seen = {ast.unparse(tree)}
    for node in list(_changeable(tree)):
        for change, undo in _changes(node):
            change()
            changed = ast.unparse(tree)
            undo()
            if changed not in seen:
                seen.add(changed)
                yield getattr(node, "lineno", 0), changed


def _changeable(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes that run: no annotations, docstrings, or imports for types."""
    yield node
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list", "type_params"):
            continue
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        if isinstance(node, ast.JoinedStr):  # what a message says
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from _changeable(child)


def _changes(node: ast.AST) -> Iterator[tuple]:
    """Yield (change, undo) for each way to change a node."""

    def put(owner, name, value):
        before = getattr(owner, name)
        return lambda: setattr(owner, name, value), lambda: setattr(owner, name, before)

    if isinstance(node, ast.BinOp | ast.AugAssign | ast.BoolOp) and type(node.op) in SWAPS:
        yield put(node, "op", SWAPS[type(node.op)]())
    if isinstance(node, ast.Compare):
        for i, op in enumerate(node.ops):
            if type(op) in SWAPS:
                yield put(node, "ops", [*node.ops[:i], SWAPS[type(op)](), *node.ops[i + 1 :]])
    if isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield put(node, "value", not node.value)
    elif isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        yield put(node, "value", node.value + 1)
        yield put(node, "value", node.value - 1)
    if isinstance(node, ast.If | ast.While | ast.IfExp):
        yield put(node, "test", ast.UnaryOp(ast.Not(), node.test))
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield put(node, "operand", ast.UnaryOp(ast.Not(), node.operand))
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        yield put(node, "op", ast.UAdd())
    for name in ("body", "orelse", "finalbody"):
        body = getattr(node, name, None)
        if isinstance(body, list) and not isinstance(node, ast.ClassDef | ast.Module):
            for i, statement in enumerate(body):
                text = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant | ast.Yield)
                if isinstance(statement, DROPPED) and not text:
                    yield put(node, name, [*body[:i], ast.copy_location(ast.Pass(), statement), *body[i + 1 :]])


def difference(source: str, changed: str) -> str:
    """Return the first line in which a mutant differs."""
    before, after = ast.unparse(ast.parse(source)).splitlines(), changed.splitlines()
    index = next(i for i, pair in enumerate(zip(before, after, strict=False)) if pair[0] != pair[1])
    return "  ->  ".join(shorten(lines[index], 110) for lines in (before, after))


class Tree:
    """A copy of the checkout in which tests run on changed files."""

    def __init__(self, folder: Path):
        self.folder = folder / "tree"
        copy_checkout(self.folder)

    def passes(self, tests: list[str], seconds: float) -> tuple[bool, float]:
        """Return whether the tests pass within `seconds`, and how long they took."""
        began = time.monotonic()
        pid = os.fork()
        if pid == 0:
            self._test(tests)
        while time.monotonic() - began < seconds:
            if os.waitpid(pid, os.WNOHANG)[0]:
                break
            time.sleep(0.05)
        else:
            os.killpg(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            return False, seconds
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)  # what the tests left running
        done = self.folder.parent / "passed"
        passed = done.exists()
        done.unlink(missing_ok=True)
        return passed, time.monotonic() - began

    def _test(self, tests: list[str]) -> None:
        """Run the tests in this child, which has imported the libraries already, and end it."""
        os.setsid()
        output = os.open(self.folder.parent / "output", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        for stream in (1, 2):
            os.dup2(output, stream)
        os.chdir(self.folder)
        sys.path[0] = str(self.folder)
        for name in [name for name in sys.modules if name.partition(".")[0] == "tests"]:
            del sys.modules[name]
        import pytest

        options = ["-x", "-q", "-o", "addopts=", "-m", "not slow and not exhaustive", "-p", "no:cacheprovider"]
        status = 1
        with contextlib.suppress(BaseException):
            status = pytest.main([*options, f"--basetemp={self.folder.parent}/temporary", *tests])
        if status == 0:
            (self.folder.parent / "passed").touch()
        os._exit(0)


def examine(tree: Tree, path: str, chosen: list[tuple[int, str]], tests: list[str], until: float) -> list[dict]:
    """Try mutants of a file until the time is up; return what came of each."""
    file = tree.folder / path
    source = file.read_text()
    passed, seconds = tree.passes(tests, 1000)
    if not passed:
        raise SystemExit(f"{path}: the tests fail without a change\n{(tree.folder.parent / 'output').read_text()}")
    found = []
    for line, changed in chosen:
        if time.monotonic() > until:
            break
        file.write_text(changed)
        lives, _ = tree.passes(tests, SLOWEST[0] * seconds + SLOWEST[1])
        found.append({"file": path, "line": line, "change": difference(source, changed), "lives": lives})
        if lives:
            print(f"{path}:{line}: {found[-1]['change']}", flush=True)
    file.write_text(source)
    if not tree.passes(tests, 1000)[0]:  # or all that was killed may have died of something else
        raise SystemExit(f"{path}: the tests fail without a change after the mutants")
    return found


def main() -> None:
    """Change files, run their tests, and say how many changes these notice."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", help="files that ROOMS names, by default all; with --tests, any file")
    parser.add_argument("--most", type=int, default=60, help="mutants of a file; 0: all")
    parser.add_argument("--minutes", type=float, default=15, help="for each file")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--tests", nargs="+", help="in place of those that ROOMS names")
    parser.add_argument("--out", type=Path, help="write what came of each mutant as JSON lines")
    args = parser.parse_args()
    os.environ |= {"PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    sys.dont_write_bytecode = True  # two changes within a second could share one file of bytecode
    for library in LIBRARIES:
        importlib.import_module(library)
    rooms = {
        path.relative_to(ROOT).as_posix(): args.tests
        or [str(test.relative_to(ROOT)) for pattern in tests for test in sorted(ROOT.glob(pattern))]
        for pattern, tests in ROOMS.items()
        for path in sorted(ROOT.glob(pattern))
    }
    if args.tests:
        rooms |= dict.fromkeys(args.files, args.tests)
    if unknown := set(args.files) - set(rooms):
        parser.error(f"{', '.join(unknown)}: not among {', '.join(rooms)}")
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        trees = [Tree(Path(folder) / str(index)) for index in range(args.processes)]
        total: Counter[bool] = Counter()
        for path in args.files or rooms:
            known = list(mutants((ROOT / path).read_text()))
            random.Random(args.seed).shuffle(known)
            chosen = known[: args.most or None]
            until = time.monotonic() + 60 * args.minutes
            with ProcessPoolExecutor(args.processes, get_context("fork")) as pool:
                jobs = [
                    pool.submit(examine, tree, path, chosen[index :: args.processes], rooms[path], until)
                    for index, tree in enumerate(trees)
                ]
                found = [each for job in jobs for each in job.result()]
            killed = Counter(not each["lives"] for each in found)
            total += killed
            print(f"{path}: {killed[True]} of {len(found)} killed, of {len(known)} that there could be", flush=True)
            if args.out:
                with args.out.open("a") as file:
                    file.writelines(json.dumps(each) + "\n" for each in found)
    print(f"killed: {total[True]} of {total.total()} ({total[True] / max(total.total(), 1):.0%})")


if __name__ == "__main__":
    main()
