"""Instance files for the tests of reading and writing: sound ones, and ways to change and compare them."""

from pathlib import Path

import numpy as np
import pytest

from common.errors import UserError
from models.routing.problems import Problem
from pipelines.workloads.cvrp.instances.files import read as read_files

SMALL = """\
NAME : small
COMMENT : (five customers: none far from the depot, see demand_section)
TYPE : CVRP
DIMENSION : 6
EDGE_WEIGHT_TYPE : EUC_2D
CAPACITY : 100
NODE_COORD_SECTION
1 10 10
2 13 14
3 10 12.5
4 7 6
5 1e1 4
6 40 50
DEMAND_SECTION
1 0
2 60
3 40
4 100
5 30
6 25
DEPOT_SECTION
 1
 -1
EOF
"""


def read(path):
    return [problem for problems in read_files(path).values() for problem in problems]


def vrp(folder: Path, text: str, name: str = "small.vrp") -> Path:
    path = folder / name
    path.write_bytes(text.encode())
    return path


def npz(folder: Path, name: str = "some.npz", **arrays) -> Path:
    path = folder / name
    np.savez(path, **arrays)
    return path


def fields(num: int = 3, customers: int = 4, **changes) -> dict[str, np.ndarray]:
    """A sound set of npz arrays, with changes; None leaves a key out."""
    random = np.random.default_rng(0)
    arrays = {
        "depot": random.random((num, 2), np.float32),
        "locs": random.random((num, customers, 2), np.float32),
        "demand": random.integers(1, 10, (num, customers)).astype(np.float32),
        "capacity": np.full(num, 30, np.float32),
    }
    return {key: value for key, value in {**arrays, **changes}.items() if value is not None}


def with_value(array: np.ndarray, index: tuple[int, ...], value: float) -> np.ndarray:
    array = array.copy()
    array[index] = value
    return array


def same(one: Problem, two: Problem) -> bool:
    return (
        (one.name, one.capacity, one.rounding) == (two.name, two.capacity, two.rounding)
        and np.array_equal(one.locs, two.locs)
        and np.array_equal(one.demand, two.demand)
    )


def refusal(path: Path) -> str:
    """The message of the UserError, after the path it must begin with."""
    with pytest.raises(UserError) as error:
        read(path)
    text = str(error.value)
    assert text.startswith(f"{path}: ")
    assert "\n" not in text
    return text.removeprefix(f"{path}: ")


def read_unless_refused(path: Path) -> list[Problem]:
    """The problems, or none if the file is refused; any other exception fails the test."""
    try:
        return read(path)
    except UserError:
        return []
