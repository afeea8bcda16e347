"""Syntax trees of all files, read once for the tests that look into them.

Not in a test's own file: pytest imports that by another name than the tests that import from it, as a second module.
"""

import ast
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

BRANCHES = ("body", "handlers", "orelse", "finalbody", "cases")  # fields of statements that hold statements


def within_statement(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the statements directly within one, or its branches; walking expressions takes most of the time."""
    for name in BRANCHES:
        yield from getattr(node, name, ())


class Parsed(NamedTuple):
    """What is asked about a file: its syntax tree less all statements without an import, and calls that load."""

    tree: ast.Module
    loads: list[ast.Call]


@cache
def parsed(source: str) -> Parsed:
    """Read a file once for several tests; whole trees of all files would make each collection of garbage slow."""
    tree = ast.parse(source)
    loads = []
    for node in ast.walk(tree) if "load" in source or "pickle" in source else ():
        if isinstance(node, ast.Call):
            last = getattr(node.func, "attr", getattr(node.func, "id", ""))
            if last in ("load", "read_pickle") or any(word.arg == "allow_pickle" for word in node.keywords):
                loads.append(node)
    leave_imports(tree)
    return Parsed(tree, loads)


def leave_imports(node: ast.AST) -> bool:
    """Drop the statements within one that import nothing; returns whether it imports anything itself."""
    found = isinstance(node, ast.Import | ast.ImportFrom)
    for name in BRANCHES:
        if statements := getattr(node, name, None):
            kept = [each for each in statements if leave_imports(each)]
            setattr(node, name, kept)
            found = found or bool(kept)
    return found
