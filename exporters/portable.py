"""Code and arrays for artifacts that work without the project: copies of modules that need numpy alone."""

import io
import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
IMPORT = re.compile(r"^from ((?:common|models)\.(?:\w+\.)*(\w+)) import ", re.MULTILINE)


def copies(*modules: str, prefix: str = "") -> dict[str, bytes]:
    """Return {NAME.py: source} of modules such as models.plans.chains and of the project's modules they import.

    These imports become `from NAME import ...`, with a `prefix` such as the dot of a package.
    """
    found: dict[str, bytes] = {}
    wanted = list(modules)
    while wanted:
        module = wanted.pop()
        if (name := f"{module.rpartition('.')[2]}.py") in found:
            continue
        source = (ROOT / f"{module.replace('.', '/')}.py").read_text()
        wanted += [module for module, _ in IMPORT.findall(source)]
        copied = IMPORT.sub(rf"from {prefix}\2 import ", source)
        left = re.search(r"^\s*(from|import) (common|models)\b", copied, re.MULTILINE)
        assert not left, f"rewrite {module}'s imports"
        found[name] = copied.encode()
    return found


def packed(arrays: Mapping[str, np.ndarray]) -> bytes:
    """Return arrays as a file that `np.load` reads."""
    file = io.BytesIO()
    np.savez_compressed(file, **arrays)  # type: ignore[arg-type]
    return file.getvalue()
