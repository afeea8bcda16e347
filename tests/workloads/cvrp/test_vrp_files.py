"""Reading .vrp files: what is accepted is exact, and any other file is refused in one line that says why."""

import tempfile
from pathlib import Path

import numpy as np
import pytest
import vrplib
from hypothesis import given, settings
from hypothesis import strategies as st

from common.errors import UserError
from models.routing.problems import Problem, cost_of
from pipelines.workloads.cvrp.instances.files import read as read_files
from pipelines.workloads.cvrp.instances.vrp_files import solution_text
from tests.workloads.cvrp.files import SMALL, read, read_unless_refused, refusal, same, vrp


def test_a_vrp_file_is_read_as_vrplib_reads_it(tmp_path):
    path = vrp(tmp_path, SMALL)
    (problem,) = read(path)
    expected = vrplib.read_instance(path, compute_edge_weights=False)
    assert (problem.name, problem.capacity, problem.rounding) == ("small", expected["capacity"], "round")
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
        ("TYPE : CVRP", "TYPE : TSP", "TYPE is 'TSP'; only CVRP, DCVRP"),
        ("TYPE : CVRP\n", "", "TYPE is missing"),
        ("EUC_2D", "EXPLICIT", "EDGE_WEIGHT_SECTION is missing; the file may be cut short"),
        ("EUC_2D", "EUC_3D", "EDGE_WEIGHT_TYPE is 'EUC_3D'; only EUC_2D, CEIL_2D"),
        ("CAPACITY : 100\n", "", "CAPACITY is missing; add a line 'CAPACITY : ...'"),
        ("CAPACITY : 100", "CAPACITY : ", "CAPACITY is missing"),
        ("CAPACITY : 100", "CAPACITY : 99.5", "CAPACITY is 99.5; give a whole number from 1 to 16777216"),
        ("CAPACITY : 100", "CAPACITY : 0", "CAPACITY is 0; give a whole number from 1"),
        ("CAPACITY : 100", "CAPACITY : 20000000", "CAPACITY is 20000000; give a whole number from 1 to 16777216"),
        ("CAPACITY : 100", "CAPACITY : 99", "node 4 asks for 100 but CAPACITY is 99"),
        ("CAPACITY : 100", "CAPACITY : 100\nCAPACITY : 99", "line 7: 'CAPACITY : 99' is given a second time"),
        ("CAPACITY : 100", "CAPACITY : 100\nDISTANCE : -200", "DISTANCE is '-200'; it must be a number from 0"),
        ("CAPACITY : 100", "CAPACITY : 100\nSERVICE_TIME : x", "SERVICE_TIME is 'x'; it must be a number from 0"),
        ("CAPACITY : 100", "CAPACITY : 100\nRELEASE_TIME : 10", "'RELEASE_TIME' cannot be solved here"),
        ("CAPACITY : 100", "CAPACITY 100", "line 6: 'CAPACITY 100' is neither 'KEY : VALUE' nor the title"),
        ("DEPOT_S", "BACKHAUL_SECTION\n1 0\nDEPOT_S", "'BACKHAUL_SECTION' cannot be solved here"),
        ("DIMENSION : 6\n", "", "DIMENSION is missing"),
        ("DIMENSION : 6", "DIMENSION : 7", "DIMENSION is 7 but NODE_COORD_SECTION has 6 rows"),
        ("DIMENSION : 6", "DIMENSION : 1", "DIMENSION is 1; a depot and at least one customer"),
        ("6 25\n", "", "DIMENSION is 6 but DEMAND_SECTION has 5 rows"),
        ("6 40 50\n", "", "DIMENSION is 6 but NODE_COORD_SECTION has 5 rows"),
        ("DEPOT_SECTION\n 1\n -1\n", "", "DEPOT_SECTION is missing; the file may be cut short"),
        (" -1\nEOF\n", "", "its end (EOF, or the -1 that closes DEPOT_SECTION) is missing"),
        (" 1\n -1", " 1\n 2\n -1", "the depot, node 2, has a demand of 60; set it to 0"),
        (" 1\n -1", " 9\n -1", "DEPOT_SECTION names node 9"),
        (" 1\n -1", " 10 10\n -1", "DEPOT_SECTION names node 10, twice or without a row"),
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
        ("2 13 14", "2 nan 14", "a coordinate of node 2 is 'nan'; it must be a number"),
        ("2 13 14", "2 1e10 14", "a coordinate of node 2 is '1e10'; it must be a number from -1e+09 to 1e+09"),
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
    return Problem("drawn", np.array(locs, np.float64), np.array(demand), capacity, rounding="round")


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


@pytest.mark.parametrize(
    ("name", "rounding", "cost"),
    [
        ("X-n6-k3", None, 9),
        ("A-n6-k3", None, 9),
        ("CMT1", None, 5 + 13**0.5),
        ("Golden_1", None, 5 + 13**0.5),
        ("tai75a", None, 5 + 13**0.5),
        ("tailor", None, 9),
        ("CMT1", "round", 9),
        ("X-n6-k3", "trunc", 8),
    ],
)
def test_a_file_is_measured_as_its_set_is(tmp_path, name, rounding, cost):
    text = SMALL.replace("6 40 50", "6 13 12").replace("3 10 12.5", "3 10 10")
    (problem,) = read_files(vrp(tmp_path, text, f"{name}.vrp"), rounding)[name]
    # 1 -> 2 is 5 long, 2 -> 6 two, 6 -> the depot sqrt(13)
    assert cost_of(problem, [[1, 5]]) == pytest.approx(cost + 2)


def test_the_best_known_cost_stands_beside_the_file(tmp_path):
    path = vrp(tmp_path, SMALL)
    assert read(path)[0].best_known is None
    path.with_suffix(".sol").write_text("Route #1: 1 2\nRoute #2: 3\nRoute #3: 4 5\nCost 135\n")
    assert read(path)[0].best_known == 135
    assert read_files(path, "exact")["small"][0].best_known is None
    path.with_suffix(".sol").write_text("Cost unknown\n")
    with pytest.raises(UserError, match="one line 'Cost NUMBER'"):
        read(path)


def test_a_solution_is_written_as_cvrplib_has_it(tmp_path):
    path = tmp_path / "small.sol"
    path.write_text(solution_text([[3, 5, 7], [np.int64(1)]], 375.0))
    assert path.read_text() == "Route #1: 3 5 7\nRoute #2: 1\nCost 375\n"
    assert vrplib.read_solution(path) == {"routes": [[3, 5, 7], [1]], "cost": 375}
    assert solution_text([[1]], np.float64(6.25)) == "Route #1: 1\nCost 6.25\n"
