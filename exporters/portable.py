"""Copies of the project's modules that need numpy alone, for artifacts that are used without the project."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
OURS = ("common", "models")
IMPORT = re.compile(rf"^from (?:{'|'.join(OURS)})\.(?:\w+\.)*(\w+) import ", re.MULTILINE)


def copies(*modules: str, prefix: str = "") -> dict[str, bytes]:
    """Return files NAME.py of modules such as models.plans.chains and of those of ours they import, in one folder.

    Imports of ours become `from NAME import ...`, the name with a `prefix` such as the dot of a package. Raises
    ValueError for a module that imports ours in another way.
    """
    found: dict[str, bytes] = {}
    wanted = list(modules)
    while wanted:
        module = wanted.pop()
        name = f"{module.rpartition('.')[2]}.py"
        if name in found:
            continue
        source = (ROOT / f"{module.replace('.', '/')}.py").read_text()
        copied = IMPORT.sub(rf"from {prefix}\1 import ", source)
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in OURS:
                wanted.append(node.module or "")
        if re.search(rf"^\s*(?:from|import) (?:{'|'.join(OURS)})\b", copied, re.MULTILINE):
            raise ValueError(
                f"{module} imports the project in a way that cannot be rewritten; write from MODULE import"
            )
        found[name] = copied.encode()
    return found
