"""Checks of the files that an export writes beside the weights of a vision-language comparator."""

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor


def empty(folder: Path) -> Path:
    """Return the folder; ValueError if there are files in it that might be somebody else's."""
    if folder.exists() and any(path.is_file() for path in folder.rglob("*")):
        raise ValueError(f"{folder} has files that no complete export wrote; remove them, or export to another folder")
    return folder


def files_of(folder: Path, part: str) -> list[str]:
    """Return the names of the files below `folder`/`part`, relative to `folder`."""
    return sorted(path.relative_to(folder).as_posix() for path in (folder / part).rglob("*") if path.is_file())


def check_equal(stored: Mapping[str, Tensor], expected: Mapping[str, Tensor], part: str) -> None:
    """Raise RuntimeError if the tensors read back from `part` are not exactly those expected."""
    different = sorted(stored.keys() ^ expected.keys())
    different += [name for name in stored.keys() & expected.keys() if not torch.equal(stored[name], expected[name])]
    if different:
        raise RuntimeError(f"the files written to {part} differ from the model in {different[0]}")
