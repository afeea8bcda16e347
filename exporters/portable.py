"""Code in artifacts, which are used without the project: copies of modules that need numpy alone, and trying it out."""

import importlib
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parents[1]
IMPORT = re.compile(r"^from ((?:common|models)\.(?:\w+\.)*(\w+)) import ", re.MULTILINE)


def copies(*modules: str, prefix: str = "") -> dict[str, bytes]:
    """Return files NAME.py of modules such as models.plans.chains and of those of ours they import, in one folder.

    Imports of ours become `from NAME import ...`, with a `prefix` such as the dot of a package.
    """
    found: dict[str, bytes] = {}
    wanted = list(modules)
    while wanted:
        module = wanted.pop()
        name = f"{module.rpartition('.')[2]}.py"
        if name in found:
            continue
        source = (ROOT / f"{module.replace('.', '/')}.py").read_text()
        wanted += [module for module, _ in IMPORT.findall(source)]
        copied = IMPORT.sub(rf"from {prefix}\2 import ", source)
        assert not re.search(r"^\s*(from|import) (common|models)\b", copied, re.MULTILINE), (
            f"rewrite {module}'s imports"
        )
        found[name] = copied.encode()
    return found


@contextmanager
def imported(path: Path) -> Iterator[ModuleType]:
    """Yield a file of an artifact as a module; it and its neighbours leave no bytecode and are forgotten after."""
    neighbours = {each.stem for each in path.parent.glob("*.py")}
    hidden = {name: sys.modules.pop(name) for name in neighbours & sys.modules.keys()}
    sys.path.insert(0, str(path.parent))
    writes, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    importlib.invalidate_caches()
    try:
        yield importlib.import_module(path.stem)
    finally:
        sys.path.remove(str(path.parent))
        sys.dont_write_bytecode = writes
        for name in neighbours & sys.modules.keys():
            del sys.modules[name]
        sys.modules.update(hidden)
