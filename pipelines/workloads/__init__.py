"""One folder per workload: what its data, model, loss and report are. A workload is found by its folder's name."""

import importlib
from difflib import get_close_matches
from pathlib import Path

from common.errors import UserError
from pipelines.engine.workload import Workload

FOLDER = Path(__file__).resolve().parent


def names() -> list[str]:
    """The workloads in this project's folder."""
    return sorted(path.parent.name for path in FOLDER.glob("*/__init__.py"))


def find(name: str) -> Workload:
    """The workload of this name, or in the folder at this path, whose name is then the workload's.

    Raises UserError where there is none.
    """
    folder = Path(name)
    if len(folder.parts) > 1 or (name not in names() and (folder / "__init__.py").is_file()):
        folder = folder.resolve()
        if not (folder / "__init__.py").is_file() or not folder.name.isidentifier():
            raise UserError(
                f"--workload {name}: a workload of your own is a Python package with a WORKLOAD, and there is none "
                "at that path"
            )
        __path__.append(str(folder.parent))
    elif name not in names():
        near = get_close_matches(name, names(), 1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise UserError(f"unknown workload {name!r}{hint} (known: {', '.join(names())}, or the path of your own)")
    return importlib.import_module(f"{__name__}.{folder.name}").WORKLOAD
