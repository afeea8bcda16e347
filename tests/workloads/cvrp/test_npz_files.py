"""Reading and writing .npz files: what is accepted is exact, and any other file is refused in one line."""

import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.routing.problems import Problem
from tests.workloads.cvrp.files import fields, npz, read, read_unless_refused, refusal, same, with_value


def test_an_npz_file_in_the_form_of_rl4co_is_read(tmp_path):
    arrays = fields(num=11)
    problems = read(npz(tmp_path, **arrays))
    assert [problem.name for problem in problems][:: len(problems) - 1] == ["some-00", "some-10"]
    for index, problem in enumerate(problems):
        assert problem.locs.tolist() == [arrays["depot"][index].tolist(), *arrays["locs"][index].tolist()]
        assert problem.demand.tolist() == [0, *arrays["demand"][index].tolist()]
        assert (problem.capacity, problem.rounded) == (30, False)


@pytest.mark.parametrize("capacity", [np.float32(33), np.full((3, 1), 33, np.float32), np.full(3, 33), 33])
def test_demands_divided_by_the_capacity_are_multiplied_back(tmp_path, capacity):
    whole = fields()["demand"]
    problems = read(npz(tmp_path, **fields(demand=whole / np.float32(33), capacity=capacity)))
    assert [problem.demand[1:].tolist() for problem in problems] == whole.tolist()
    assert {problem.capacity for problem in problems} == {33}


def test_whole_demands_are_never_taken_for_divided_ones(tmp_path):
    problems = read(npz(tmp_path, **fields(demand=np.ones((3, 4)))))
    assert problems[0].demand.tolist() == [0, 1, 1, 1, 1]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"demand": None, "depot": None}, "depot, demand missing; it holds ['capacity', 'locs']"),
        ({"time_windows": np.zeros(3)}, "['time_windows'] not part of a plain CVRP"),
        ({"locs": np.zeros((3, 8))}, "'locs' has shape (3, 8); it must be (instances, customers, 2)"),
        ({"locs": np.zeros((0, 4, 2))}, "'locs' has shape (0, 4, 2)"),
        ({"locs": np.zeros((3, 5, 2))}, "'demand' has shape (3, 4) where 'locs' of shape (3, 5, 2) needs (3, 5)"),
        ({"depot": np.zeros(2)}, "'depot' has shape (2,) where 'locs' of shape (3, 4, 2) needs (3, 2)"),
        ({"capacity": np.full(2, 30)}, "'capacity' has shape (2,); it must be (3,), (3, 1) or a single number"),
        ({"capacity": np.full(3, "30")}, "'capacity' holds <U2, not numbers"),
        ({"capacity": np.array([30, 30.5, 30])}, "the capacity of instance 1 is 30.5"),
        ({"capacity": np.array([30, 30, np.nan])}, "the capacity of instance 2 is nan"),
        ({"capacity": np.array([30, 0, 30])}, "the capacity of instance 1 is 0.0"),
        ({"capacity": np.array([30, 4, 30])}, "customer 2 of instance 1 has demand 9, above its capacity 4"),
        ({"depot": np.full((3, 2), np.inf)}, "the depot of instance 0 has a coordinate inf"),
        ({"locs": with_value(fields()["locs"], (2, 0, 1), np.nan)}, "customer 1 of instance 2 has a coordinate nan"),
        (
            {"demand": with_value(fields()["demand"], (1, 3), np.nan)},
            "customer 4 of instance 1 has demand nan; demands",
        ),
        (
            {"demand": with_value(fields()["demand"], (1, 3), -2)},
            "customer 4 of instance 1 has demand -2; demands must",
        ),
        ({"demand": with_value(fields()["demand"], (1, 3), 2.5)}, "customer 4 of instance 1 has demand 2.5; demands"),
        (
            {"demand": np.full((3, 4), 0.25)},
            "customer 1 of instance 0 has demand 0.25, which, as a share of the capacity 30, comes to 7.5",
        ),
        ({"demand": np.full((3, 4), None)}, "holds Python objects (pickle), which are never loaded"),
    ],
)
def test_a_faulty_npz_file_is_refused_with_its_fault(tmp_path, changes, message):
    arrays = fields(**changes)
    if "capacity" in changes and "above" in message:
        arrays["demand"] = with_value(np.full((3, 4), 2), (1, 1), 9)
    assert refusal(npz(tmp_path, **arrays)).startswith(message)


@settings(deadline=None, max_examples=150)
@given(st.data())
def test_a_damaged_npz_file_is_refused_or_reads_the_same(data):
    with tempfile.TemporaryDirectory() as folder:
        path = npz(Path(folder), **fields())
        whole = read(path)
        content = bytearray(path.read_bytes())
        if data.draw(st.booleans()):
            del content[data.draw(st.integers(0, len(content) - 1)) :]
        else:
            content[data.draw(st.integers(0, len(content) - 1))] ^= data.draw(st.integers(1, 255))
        path.write_bytes(content)
        problems = read_unless_refused(path)
    assert not problems or all(same(one, two) for one, two in zip(problems, whole, strict=True))


@settings(deadline=None)
@given(st.integers(1, 4), st.integers(1, 5), st.integers(1, 2**24), st.data())
def test_problems_written_as_npz_come_back_exactly(num, customers, capacity, data):
    coordinate = st.floats(-(2.0**29), 2.0**29, width=32)
    nodes = st.lists(st.tuples(coordinate, coordinate), min_size=customers + 1, max_size=customers + 1)
    loads = st.lists(st.integers(0, capacity), min_size=customers, max_size=customers)
    problems = [
        Problem(
            f"drawn-{index}", np.array(data.draw(nodes)), np.array([0, *data.draw(loads)]), capacity, rounding="exact"
        )
        for index in range(num)
    ]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "drawn.npz"
        arrays = {
            "depot": [problem.locs[0] for problem in problems],
            "locs": [problem.locs[1:] for problem in problems],
            "demand": [problem.demand[1:] for problem in problems],
            "capacity": [problem.capacity for problem in problems],
        }
        np.savez(path, **{key: np.array(values, np.float32) for key, values in arrays.items()})
        assert all(same(one, two) for one, two in zip(read(path), problems, strict=True))
