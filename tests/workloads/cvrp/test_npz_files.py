"""Reading and writing .npz files: what is accepted is exact, and any other file is refused in one line."""

import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.routing.problems import Problem, distances
from tests.properties import examples
from tests.workloads.cvrp.files import fields, npz, read, read_unless_refused, refusal, same, with_value


def test_an_npz_file_in_the_form_of_rl4co_is_read(tmp_path):
    arrays = fields(num=11)
    problems = read(npz(tmp_path, **arrays))
    assert [problem.name for problem in problems][:: len(problems) - 1] == ["some-00", "some-10"]
    for index, problem in enumerate(problems):
        assert problem.locs.tolist() == [arrays["depot"][index].tolist(), *arrays["locs"][index].tolist()]
        assert problem.demand.tolist() == [0, *arrays["demand"][index].tolist()]
        assert (problem.capacity, problem.rounding) == (30, "exact")


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
        (
            {"time_windows": np.zeros(3)},
            "['time_windows'] cannot be solved here; save it without, or as degrees, depot_hours,",
        ),
        ({"demand": np.zeros(3)}, "'demand' has shape (3,); it must be (instances, customers)"),
        ({"demand": np.zeros((0, 4))}, "'demand' has shape (0, 4)"),
        ({"locs": np.zeros((3, 8))}, "'locs' has shape (3, 8); it must be (instances, customers, 2)"),
        ({"locs": np.zeros((3, 5, 2))}, "instance 0: demands must have 5 rows"),
        ({"depot": np.zeros(2)}, "'depot' has shape (2,), but 'demand' is of 3 instances"),
        ({"capacity": np.full(2, 30)}, "'capacity' has shape (2,), but 'demand' is of 3 instances"),
        ({"capacity": np.full((3, 2), 30)}, "'capacity' has shape (3, 2), but 'demand' is of 3 instances"),
        ({"capacity": np.full(3, "30")}, "'capacity' holds <U2, not numbers"),
        ({"capacity": np.array([30, 30.5, 30])}, "instance 1: capacity: Input should be a valid integer"),
        ({"capacity": np.array([30, 30, np.nan])}, "instance 2: capacity: Input should be a finite number"),
        ({"capacity": np.array([30, 0, 30])}, "instance 1: capacity: Input should be greater than or equal to 1"),
        ({"capacity": np.array([30, 4, 30])}, "instance 1: customer 2 asks for 9, more than the capacity of 4"),
        ({"depot": np.full((3, 2), np.inf)}, "instance 0: depot: Input should be"),
        ({"locs": with_value(fields()["locs"], (2, 0, 1), np.nan)}, "instance 2: customers: Input should be"),
        ({"demand": with_value(fields()["demand"], (1, 3), np.nan)}, "instance 1: demands: Input should be"),
        ({"demand": with_value(fields()["demand"], (1, 3), -2)}, "instance 1: demands: Input should be greater than"),
        ({"demand": with_value(fields()["demand"], (1, 3), 2.5)}, "instance 1: demands: Input should be a valid int"),
        (
            {"demand": np.full((3, 4), 0.25)},
            "instance 0: customer 1 has demand 0.25, which, as a share of the capacity, comes to 7.5",
        ),
        ({"demand": np.full((3, 4), None)}, "holds Python objects (pickle), which are never loaded"),
    ],
)
def test_a_faulty_npz_file_is_refused_with_its_fault(tmp_path, changes, message):
    arrays = fields(**changes)
    if "capacity" in changes and "more than" in message:
        arrays["demand"] = with_value(np.full((3, 4), 2), (1, 1), 9)
    assert refusal(npz(tmp_path, **arrays)).startswith(message)


def test_a_share_of_a_whole_vehicle_is_a_share(tmp_path):
    shares = np.full((3, 4), 0.5, np.float32)
    shares[1, 2] = 1
    (_, one, _) = read(npz(tmp_path, **fields(demand=shares)))
    assert one.demand.tolist() == [0, 15, 15, 30, 15]


@settings(deadline=None, max_examples=examples(150))
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


def test_arrays_with_the_names_of_an_inputs_fields_go_beyond_one_capacity(tmp_path):
    roads = np.random.default_rng(0).integers(1, 9, (2, 3, 3))
    given = {"demand": np.ones((2, 2)), "capacity": 2, "distances": roads, "durations": 2 * roads}
    hours = {
        "windows": np.tile([0, 50], (2, 2, 1)),
        "hours": np.array([[0, 90], [5, 80]]),
        "service_times": np.ones((2, 2)),
    }
    others = {"num_vehicles": 2, "open_routes": True, "prizes": np.array([[np.inf, 3], [4, 5]])}
    one, two = read(npz(tmp_path, **given, **hours, **others))
    assert distances(two).tolist() == (roads[1] * (1 - np.eye(3))).tolist()
    assert two.durations.tolist() == (2 * roads[1]).tolist()
    assert two.windows.tolist() == [[5, 80], [0, 50], [0, 50]]
    assert (one.service_times.tolist(), one.vehicles[0].available, one.open_routes) == ([0, 1, 1], 2, True)
    assert (one.prizes.tolist(), two.prizes.tolist()) == ([np.inf, np.inf, 3], [np.inf, 4, 5])
    assert refusal(npz(tmp_path, **given, windows=np.zeros((2, 3, 2)))) == "instance 0: windows must have 2 rows"
