"""Solutions in CVRPLIB's format, `.sol`: to begin with, to compare with, and to write."""

import math
import re
from collections.abc import Sequence
from pathlib import Path

from common.errors import UserError

NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)


def best_known(path: Path) -> float | None:
    """Return the cost in the `.sol` file beside an instance; None without one."""
    solution = path.with_suffix(".sol")
    if not solution.is_file():
        return None
    found = re.findall(r"^cost:?\s+(\S+)\s*$", solution.read_bytes().decode("utf-8", "replace"), re.I | re.M)
    if len(found) != 1 or not NUMBER.fullmatch(found[0]):
        raise UserError(f"{solution.name}: give it one line 'Cost NUMBER', the best known cost; correct or remove it")
    return float(found[0])


def read_routes(path: Path) -> list[list[int]]:
    """Return the routes of a `.sol` file: customers numbered from 1."""
    found = re.findall(r"^route[^:]*:(.*)$", path.read_bytes().decode("utf-8", "replace"), re.I | re.M)
    if not found:
        raise UserError(f"{path}: it must have lines such as 'Route #1: 3 1 2'; correct or remove it")
    return [[whole(f"{path}: a customer", word) for word in line.split()] for line in found]


def solution_text(routes: Sequence[Sequence[int]], cost: float) -> str:
    """Return the text of a `.sol` file, with the cost in the problem's metric."""
    lines = [f"Route #{number}: {' '.join(map(str, route))}" for number, route in enumerate(routes, 1)]
    cost = float(cost)
    lines.append(f"Cost {int(cost) if cost.is_integer() else cost}")
    return "\n".join(lines) + "\n"


def whole(what: str, word: str) -> int:
    """Parse a whole number, or raise UserError."""
    value = float(word) if NUMBER.fullmatch(word) else math.nan
    # Above 2**53 float64 skips whole numbers, and no value here may be near that. Also false for nan and inf.
    if not abs(value) < 2**53 or value != int(value):
        raise UserError(f"{what} is {word[:40]!r}; it must be a whole number")
    return int(value)
