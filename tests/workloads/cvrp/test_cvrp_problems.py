"""Reading and writing instances: what is accepted is exact, what is not is refused in one line that says why."""

import tempfile
from pathlib import Path

import numpy as np
import pytest
import torch
import vrplib
from hypothesis import given, settings
from hypothesis import strategies as st

from common.errors import UserError
from pipelines.workloads.cvrp.problems import (
    Problem,
    cost_of,
    distances,
    scaled,
    solution_text,
    standard_test_set,
    to_instances,
    write_npz,
)
from pipelines.workloads.cvrp.problems import read as read_files


def read(path):
    return [problem for problems in read_files(path).values() for problem in problems]


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
        (one.name, one.capacity, one.rounded) == (two.name, two.capacity, two.rounded)
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


# ------------------------------------------------------------------------------------------------- the standard set


@pytest.mark.parametrize(
    ("customers", "demand", "capacity"),
    [(20, [5, 3, 5, 8, 5], 30), (50, [9, 2, 7, 5, 7], 40), (100, [1, 3, 1, 4, 4], 50)],
)
def test_the_standard_test_set_holds_the_published_instances(customers, demand, capacity):
    first = standard_test_set(customers, 1)[0]
    assert first.locs[0] == pytest.approx([0.19151945, 0.62210877], abs=5e-9)
    assert first.demand[:6].tolist() == [0, *demand]
    assert (first.customers, first.capacity, first.rounded) == (customers, capacity, False)
    assert first.locs.dtype == np.float64
    assert first.demand.dtype == np.int64


def test_a_smaller_standard_test_set_is_the_beginning_of_a_larger_one():
    few, many = standard_test_set(10, 3), standard_test_set(10, 10_000)
    assert all(same(one, two) for one, two in zip(few, many, strict=False))
    assert len(many) == len({problem.name for problem in many}) == 10_000


def test_the_standard_test_set_refuses_sizes_it_does_not_have():
    with pytest.raises(UserError, match=r"no instances of 30 customers; ask for one of 10, 20, 50, 100"):
        standard_test_set(30, 1)
    with pytest.raises(UserError, match=r"holds 10,000 instances, 10,001 were asked for"):
        standard_test_set(20, 10_001)


# ------------------------------------------------------------------------------------------------ metric and scaling


def problem_of(locs, rounded: bool) -> Problem:
    locs = np.array(locs, np.float64)
    demand = np.array([0] + [1] * (len(locs) - 1))
    return Problem("made", locs, demand, 3, rounded)


def test_the_rounded_metric_rounds_halves_up_as_vrplib_defines_it():
    line = problem_of([[0, 0], [1.5, 0], [2.5, 0], [1, 1]], rounded=True)
    assert distances(line)[0].tolist() == [0, 2, 3, 1]
    assert cost_of(line, [[1], [2, 3]]) == 2 * 2 + 3 + 2 + 1


def test_the_exact_metric_does_not_round():
    triangle = problem_of([[0, 0], [3, 4], [0, 0.25]], rounded=False)
    assert cost_of(triangle, [[1], [2]]) == 10.5
    assert cost_of(triangle, []) == 0


locations = st.lists(st.tuples(*[st.floats(-1e6, 1e6, width=32)] * 2), min_size=2, max_size=9)


@settings(deadline=None)
@given(locations, st.booleans(), st.data())
def test_the_cost_is_the_sum_over_the_distance_matrix(locs, rounded, data):
    problem = problem_of(locs, rounded)
    order = data.draw(st.permutations(range(1, len(locs))))
    cut = data.draw(st.integers(0, len(order)))
    routes = [order[:cut], order[cut:]]
    matrix = distances(problem)
    expected = sum(matrix[a, b] for route in routes for a, b in zip([0, *route], [*route, 0], strict=True))
    assert cost_of(problem, routes) == pytest.approx(expected, rel=1e-12)


@settings(deadline=None)
@given(locations)
def test_scaling_keeps_the_shape_and_fills_the_unit_square(locs):
    problem = problem_of(locs, rounded=True)
    unit = scaled(problem)
    assert unit.dtype == np.float32
    assert unit.min() >= 0
    assert unit.max() <= 1
    extent = np.ptp(problem.locs, 0).max()
    if extent > 0:
        assert unit.max() == 1
    back = unit * extent + problem.locs.min(0)
    assert np.abs(back - problem.locs).max() <= 1e-6 * max(extent, 1)


def test_an_exact_instance_in_the_unit_square_is_not_moved():
    inside = problem_of([[0.25, 0.5], [0.75, 0.5]], rounded=False)
    assert scaled(inside).tolist() == inside.locs.tolist()
    outside = problem_of([[0.5, 0.5], [1.5, 0.75]], rounded=False)
    assert scaled(outside).tolist() == [[0, 0], [1, 0.25]]


def test_problems_of_one_size_become_one_batch():
    problems = standard_test_set(20, 3)
    batch = to_instances(problems, "cpu")
    assert [tuple(tensor.shape) for tensor in batch] == [(3, 21, 2), (3, 21), (3,)]
    assert {tensor.dtype for tensor in batch} == {torch.float32}
    assert batch.demand[1].tolist() == problems[1].demand.tolist()
    assert batch.capacity.tolist() == [30, 30, 30]
    with pytest.raises(AssertionError, match=r"got sizes \[10, 20\]"):
        to_instances([*problems, *standard_test_set(10, 1)], "cpu")


# ------------------------------------------------------------------------------------------------------------- .vrp


def test_a_vrp_file_is_read_as_vrplib_reads_it(tmp_path):
    path = vrp(tmp_path, SMALL)
    (problem,) = read(path)
    expected = vrplib.read_instance(path, compute_edge_weights=False)
    assert (problem.name, problem.capacity, problem.rounded) == ("small", expected["capacity"], True)
    assert problem.locs.tolist() == expected["node_coord"].tolist()
    assert problem.demand.tolist() == expected["demand"].tolist()
    assert cost_of(problem, [[1, 2], [3], [4, 5]]) == 5 + 3 + 3 + 2 * 5 + 6 + 55 + 50


@pytest.mark.parametrize(
    "text",
    [
        SMALL.replace("\n", "\r\n"),
        SMALL.replace(" : ", ":").replace(" ", "\t"),
        SMALL.replace("EOF\n", ""),
        SMALL.replace(" -1\n", ""),
        SMALL.replace("SECTION\n", "SECTION :\n").replace("CVRP", "cvrp"),
        "# made by hand\n\n" + SMALL.replace("COMMENT : (", "COMMENT : (Gröer: "),
        SMALL.replace("CAPACITY : 100", "CAPACITY : 100.0") + "anything at all\n",
    ],
)
def test_the_harmless_varieties_of_the_format_read_alike(tmp_path, text):
    expected = read(vrp(tmp_path, SMALL))[0]
    assert same(read(vrp(tmp_path, text))[0], expected)


def test_the_depot_comes_first_wherever_the_file_has_it(tmp_path):
    text = SMALL.replace("DEPOT_SECTION\n 1\n", "DEPOT_SECTION\n 3\n").replace("1 0\n", "1 7\n").replace("3 40", "3 0")
    (problem,) = read(vrp(tmp_path, text))
    assert problem.locs.tolist() == [[10, 12.5], [10, 10], [13, 14], [7, 6], [10, 4], [40, 50]]
    assert problem.demand.tolist() == [0, 7, 60, 100, 30, 25]


def test_nodes_stand_in_the_order_of_their_numbers(tmp_path):
    lines = SMALL.splitlines(keepends=True)
    lines[7:13] = reversed(lines[7:13])
    assert same(read(vrp(tmp_path, "".join(lines)))[0], read(vrp(tmp_path, SMALL))[0])


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("TYPE : CVRP", "TYPE : TSP", "TYPE is 'TSP'; only CVRP"),
        ("TYPE : CVRP\n", "", "TYPE is missing"),
        ("EUC_2D", "EXPLICIT", "EDGE_WEIGHT_TYPE is 'EXPLICIT'; only EUC_2D"),
        ("EUC_2D", "CEIL_2D", "EDGE_WEIGHT_TYPE is 'CEIL_2D'; only EUC_2D"),
        ("CAPACITY : 100\n", "", "CAPACITY is missing; add a line 'CAPACITY : ...'"),
        ("CAPACITY : 100", "CAPACITY : ", "CAPACITY is missing"),
        ("CAPACITY : 100", "CAPACITY : 99.5", "CAPACITY is '99.5'; it must be a whole number"),
        ("CAPACITY : 100", "CAPACITY : 0", "CAPACITY is 0; give a number from 1"),
        ("CAPACITY : 100", "CAPACITY : 20000000", "CAPACITY is 20000000; give a number from 1 to 16777216"),
        ("CAPACITY : 100", "CAPACITY : 99", "node 4 asks for 100 but CAPACITY is 99"),
        ("CAPACITY : 100", "CAPACITY : 100\nCAPACITY : 99", "line 7: 'CAPACITY : 99' is given a second time"),
        ("CAPACITY : 100", "CAPACITY : 100\nDISTANCE : 200", "'DISTANCE' is not part of a plain CVRP"),
        ("CAPACITY : 100", "CAPACITY : 100\nSERVICE_TIME : 10", "'SERVICE_TIME' is not part of a plain CVRP"),
        ("CAPACITY : 100", "CAPACITY 100", "line 6: 'CAPACITY 100' is neither 'KEY : VALUE' nor the title"),
        ("DEPOT_S", "TIME_WINDOW_SECTION\n1 0 9\nDEPOT_S", "'TIME_WINDOW_SECTION' is not part of a plain CVRP"),
        ("DIMENSION : 6\n", "", "DIMENSION is missing"),
        ("DIMENSION : 6", "DIMENSION : 7", "DIMENSION is 7 but NODE_COORD_SECTION has 6 rows"),
        ("DIMENSION : 6", "DIMENSION : 1", "DIMENSION is 1; a depot and at least one customer"),
        ("6 25\n", "", "DIMENSION is 6 but DEMAND_SECTION has 5 rows"),
        ("6 40 50\n", "", "DIMENSION is 6 but NODE_COORD_SECTION has 5 rows"),
        ("DEPOT_SECTION\n 1\n -1\n", "", "DEPOT_SECTION is missing; the file may be cut short"),
        (" -1\nEOF\n", "", "its end (EOF, or the -1 that closes DEPOT_SECTION) is missing"),
        (" 1\n -1", " 1\n 2\n -1", "DEPOT_SECTION holds '1 2 -1'; only one depot"),
        (" 1\n -1", " 9\n -1", "DEPOT_SECTION names node 9"),
        (" 1\n -1", " 10 10\n -1", "DEPOT_SECTION holds '10 10 -1'; only one depot"),
        ("2 60", "2 6.5", "the demand of node 2 is '6.5'; it must be a whole number"),
        ("2 60", "2 -6", "the demand of node 2 is -6; demands must be 0 or more"),
        ("2 60", "2 nan", "the demand of node 2 is 'nan'; it must be a whole number"),
        ("2 60", "2 " + "9" * 400, "the demand of node 2 is '999"),
        ("2 60", "2 6 0", "line 16: '2 6 0' in DEMAND_SECTION; each row is number and demand"),
        ("2 60", "3 60", "line 17: node 3 is given a second time in DEMAND_SECTION"),
        ("2 60", "7 60", "node 2 is in NODE_COORD_SECTION but not in DEMAND_SECTION"),
        ("2 13 14", "3 13 14", "line 10: node 3 is given a second time in NODE_COORD_SECTION"),
        ("2 13 14", "0 13 14", "node 0 is in NODE_COORD_SECTION but not in DEMAND_SECTION"),
        ("2 13 14", "2 13", "line 9: '2 13' in NODE_COORD_SECTION; each row is number, x and y"),
        ("2 13 14", "2 nan 14", "node 2 has a coordinate 'nan'; coordinates must be numbers"),
        ("2 13 14", "2 1e10 14", "node 2 has a coordinate '1e10'; coordinates must be numbers of at most 1e+09"),
        ("2 13 14", "2.5 13 14", "line 9: the node number is '2.5'; it must be a whole number"),
        ("1 0\n", "1 5\n", "the depot, node 1, has a demand of 5; set it to 0"),
    ],
)
def test_a_faulty_vrp_file_is_refused_with_its_fault(tmp_path, old, new, message):
    assert SMALL.count(old) >= 1
    assert refusal(vrp(tmp_path, SMALL.replace(old, new, 1))).startswith(message)


def test_a_vrp_file_cut_at_any_byte_is_refused_or_reads_the_same(tmp_path):
    whole = read(vrp(tmp_path, SMALL))[0]
    # With the sections the other way round, the file ends in a demand, and half of it would look like a whole one.
    lines = SMALL.splitlines(keepends=True)
    swapped = "".join(lines[:13] + lines[20:23] + lines[13:20] + lines[23:])
    for text in (SMALL, swapped):
        reads = 0
        for length in range(len(text)):
            path = vrp(tmp_path, text[:length])
            for problem in read_unless_refused(path):
                reads += 1
                assert same(problem, whole), text[:length]
        # Only the final newline, and with it EOF where the depot section ends the file, can be missed.
        assert reads == (3 if text is SMALL else 1)


@settings(deadline=None)
@given(st.data())
def test_a_vrp_file_with_a_word_changed_is_read_or_refused_but_never_crashes(data):
    words = SMALL.replace("\n", " \n ").split(" ")
    place = data.draw(st.integers(0, len(words) - 1))
    words[place] = data.draw(st.one_of(st.text(max_size=8), st.sampled_from([*words, "-1", "1e400", "0x1", "٣", ":"])))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "changed.vrp"
        path.write_bytes(" ".join(words).encode("utf-8", "surrogatepass"))
        problems = read_unless_refused(path)
    for problem in problems:
        assert problem.demand.max() <= problem.capacity
        assert np.isfinite(problem.locs).all()


@st.composite
def rounded_problems(draw) -> Problem:
    coordinate = st.one_of(st.integers(-1000, 1000), st.floats(-1e9, 1e9))
    locs = draw(st.lists(st.tuples(coordinate, coordinate), min_size=2, max_size=8))
    capacity = draw(st.integers(1, 2**24))
    demand = [0, *(draw(st.integers(0, capacity)) for _ in locs[1:])]
    return Problem("drawn", np.array(locs, np.float64), np.array(demand), capacity, rounded=True)


@settings(deadline=None)
@given(rounded_problems())
def test_a_problem_written_as_vrp_comes_back_exactly(problem):
    num = len(problem.locs)
    header = {"TYPE": "CVRP", "DIMENSION": num, "EDGE_WEIGHT_TYPE": "EUC_2D", "CAPACITY": problem.capacity}
    rows = {
        "NODE_COORD_SECTION": problem.locs.tolist(),  # vrplib numbers the rows
        "DEMAND_SECTION": problem.demand.tolist(),
        "DEPOT_SECTION": [1, -1],
    }
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "drawn.vrp"
        vrplib.write_instance(path, {**header, **rows})
        assert same(read(path)[0], problem)


# ------------------------------------------------------------------------------------------------------------- .npz


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
        ({"demand": None, "depot": None}, "depot, demand missing, it holds ['capacity', 'locs']"),
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
        Problem(f"drawn-{index}", np.array(data.draw(nodes)), np.array([0, *data.draw(loads)]), capacity, rounded=False)
        for index in range(num)
    ]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "drawn.npz"
        write_npz(path, problems)
        assert all(same(one, two) for one, two in zip(read(path), problems, strict=True))


def test_what_an_npz_file_cannot_say_is_not_written(tmp_path):
    path = tmp_path / "out.npz"
    with pytest.raises(UserError, match=r"small rounds its distances, which a \.npz file cannot say"):
        write_npz(path, read(vrp(tmp_path, SMALL)))
    with pytest.raises(UserError, match=r"holds problems of one size, got sizes \[10, 20\]"):
        write_npz(path, [*standard_test_set(10, 1), *standard_test_set(20, 1)])
    assert not path.exists()


# ---------------------------------------------------------------------------------------- files, folders, solutions


def test_a_folder_gives_its_instances_by_name(tmp_path):
    vrp(tmp_path, SMALL, "b.vrp")
    npz(tmp_path, "a.npz", **fields(num=2))
    vrp(tmp_path, SMALL, "C.VRP")
    vrp(tmp_path, "not for us", "._b.vrp")
    vrp(tmp_path, "not for us", "b.sol")
    assert {stem: len(problems) for stem, problems in read_files(tmp_path).items()} == {"C": 1, "a": 2, "b": 1}


def test_a_fault_in_a_folder_names_the_file(tmp_path):
    vrp(tmp_path, SMALL, "a.vrp")
    path = vrp(tmp_path, SMALL[:-20], "b.vrp")
    with pytest.raises(UserError, match=r"b\.vrp: DEPOT_SECTION is missing"):
        read(tmp_path)
    path.unlink()
    vrp(tmp_path, SMALL, "a.VRP")
    with pytest.raises(UserError, match=r"another file beside it is also called a; rename one"):
        read(tmp_path)


def test_what_is_no_instance_file_is_refused(tmp_path):
    assert refusal(tmp_path) == "holds no .npz or .vrp file; give the folder that holds the instances"
    assert refusal(tmp_path / "none.vrp").startswith("cannot be read (No such file or directory); check the path")
    assert refusal(tmp_path / "none.npz").startswith("cannot be read (No such file or directory); check the path")
    assert refusal(vrp(tmp_path, SMALL, "small.txt")).startswith("not an instance file; give a file ending in .npz or")
    assert refusal(vrp(tmp_path, SMALL, "text.npz")).startswith("no .npz file, or a damaged one (BadZipFile)")
    np.save(tmp_path / "array.npy", np.zeros(3))
    assert refusal((tmp_path / "array.npy").rename(tmp_path / "array.npz")).startswith("no .npz file, or a damaged one")
    npz(tmp_path, "some.npz", **fields())
    assert "is neither 'KEY : VALUE' nor" in refusal((tmp_path / "some.npz").rename(tmp_path / "binary.vrp"))


def test_a_solution_is_written_as_cvrplib_has_it(tmp_path):
    path = tmp_path / "small.sol"
    path.write_text(solution_text([[3, 5, 7], [np.int64(1)]], 375.0))
    assert path.read_text() == "Route #1: 3 5 7\nRoute #2: 1\nCost 375\n"
    assert vrplib.read_solution(path) == {"routes": [[3, 5, 7], [1]], "cost": 375}
    assert solution_text([[1]], np.float64(6.25)) == "Route #1: 1\nCost 6.25\n"
