"""Files of every convention of VRPLIB are measured as it defines, and all methods keep to it."""

from dataclasses import replace

import numpy as np
import pytest

from models.routing.edge_weight_types import LAYOUTS, METRICS, in_a_plane
from models.routing.fleet import plan
from models.routing.inputs import RoutingInput, problem_of
from models.routing.problems import Problem, Vehicles, cost_of, distances, scaled
from pipelines.workloads.cvrp.input_files import as_input
from pipelines.workloads.cvrp.solvers import heuristics
from pipelines.workloads.cvrp.solvers.heuristics import savings
from pipelines.workloads.cvrp.solvers.pyvrp_search import pyvrp, pyvrp_plan
from pipelines.workloads.cvrp.solvers.reference import hgs
from pipelines.workloads.cvrp.solvers.validator import InvalidTourError, check
from tests.workloads.cvrp.files import SMALL, read, refusal, vrp

# The first six towns of ulysses16 (TSPLIB), latitude and longitude, and their distances as its matrix has them.
TOWNS = "1 38.24 20.42\n2 39.57 26.15\n3 40.56 25.32\n4 36.26 23.12\n5 33.48 10.54\n6 37.56 12.19\n"
FROM_THE_FIRST = [0, 509, 501, 312, 1019, 736]


def with_metric(folder, metric, name="small.vrp"):
    return vrp(folder, SMALL.replace("EUC_2D", metric), name)


@pytest.mark.parametrize(
    ("metric", "from_the_depot"),  # to (3, 4), (0, 2.5), (-3, -4), (0, -6) and (30, 40) of it
    [
        ("EUC_2D", [0, 5, 3, 5, 6, 50]),
        ("CEIL_2D", [0, 5, 3, 5, 6, 50]),
        ("MAN_2D", [0, 7, 3, 7, 6, 70]),
        ("MAX_2D", [0, 4, 3, 4, 6, 40]),
        ("ATT", [0, 2, 1, 2, 2, 16]),
    ],
)
def test_each_type_measures_as_tsplib_defines_it(tmp_path, metric, from_the_depot):
    (problem,) = read(with_metric(tmp_path, metric))
    assert distances(problem)[0].tolist() == from_the_depot
    assert cost_of(problem, [[1], [4]]) == 2 * from_the_depot[1] + 2 * from_the_depot[4]


def test_a_ceiling_is_no_rounding(tmp_path):
    text = SMALL.replace("3 10 12.5", "3 10 12.1")
    rounded = read(vrp(tmp_path, text))[0]
    raised = read(vrp(tmp_path, text.replace("EUC_2D", "CEIL_2D"), "raised.vrp"))[0]
    assert [distances(problem)[0, 2] for problem in (rounded, raised)] == [2, 3]


def test_geographic_distances_are_those_of_ulysses16(tmp_path):
    text = SMALL.replace("EUC_2D", "GEO")
    begin, end = text.index("1 10 10"), text.index("DEMAND")
    (problem,) = read(vrp(tmp_path, text[:begin] + TOWNS + text[end:]))
    assert distances(problem)[0].tolist() == FROM_THE_FIRST
    # In the plane, where networks and pictures see them, the towns keep their distances but for the curvature.
    away = np.linalg.norm(problem.locs - problem.locs[0], axis=1)
    assert away == pytest.approx(FROM_THE_FIRST, rel=0.02)
    assert scaled(problem).max() == 1


def explicit(matrix, layout, numbers=None) -> str:
    """SMALL with its distances written out, seven numbers a line."""
    numbers = [f"{matrix[i, j]:g}" for i, j in zip(*LAYOUTS[layout](6), strict=True)] if numbers is None else numbers
    lines = "\n".join(" ".join(numbers[i : i + 7]) for i in range(0, len(numbers), 7))
    head, rest = SMALL.replace("EUC_2D", f"EXPLICIT\nEDGE_WEIGHT_FORMAT : {layout}").split("NODE_COORD_SECTION")
    return f"{head}EDGE_WEIGHT_SECTION\n{lines}\nDEMAND_SECTION{rest.split('DEMAND_SECTION')[1]}"


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_matrix_reads_alike_in_every_layout(tmp_path, layout):
    whole = distances(read(vrp(tmp_path, SMALL))[0])
    (problem,) = read(vrp(tmp_path, explicit(whole + 9 * np.eye(6), layout), "explicit.vrp"))
    assert distances(problem).tolist() == whole.tolist()
    assert problem.rounding == "round"
    moved = explicit(whole, layout).replace("DEPOT_SECTION\n 1", "DEPOT_SECTION\n 3").replace("1 0\n", "1 4\n")
    (problem,) = read(vrp(tmp_path, moved.replace("3 40", "3 0"), "moved.vrp"))
    order = [2, 0, 1, 3, 4, 5]
    assert distances(problem).tolist() == whole[np.ix_(order, order)].tolist()
    assert problem.demand.tolist() == [0, 4, 60, 100, 30, 25]


def test_distances_that_are_given_as_fractions_are_meant_so(tmp_path):
    exact = np.sqrt(np.arange(36.0)).reshape(6, 6)
    (problem,) = read(vrp(tmp_path, explicit(exact + exact.T, "UPPER_ROW")))
    assert problem.rounding == "exact"
    assert distances(problem)[1, 2] == pytest.approx(exact[1, 2] + exact[2, 1], rel=1e-5)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda text: text.replace("0\nDEMAND", "DEMAND"), "EDGE_WEIGHT_SECTION holds 35 numbers, but FULL_MATRIX"),
        (lambda text: text.replace("FULL_MATRIX", "FUNCTION"), "EDGE_WEIGHT_FORMAT is 'FUNCTION'; only FULL_MATRIX"),
        (lambda text: text.replace("EDGE_WEIGHT_FORMAT : FULL_MATRIX\n", ""), "EDGE_WEIGHT_FORMAT is missing"),
        (lambda text: text.replace("0 1 1", "0 -1 1", 1), "line 9: a distance is '-1'; it must be a number from 0"),
        (lambda text: text.replace("0 1 1", "0 nan 1", 1), "line 9: a distance is 'nan'; it must be a number from 0"),
        (lambda text: text.replace("DIMENSION : 6", "DIMENSION : 5002"), "DIMENSION is 5002; a matrix of EXPLICIT"),
        (lambda text: text.replace("EDGE_WEIGHT_SECTION", "OTHER_SECTION"), "'OTHER_SECTION' cannot be solved"),
    ],
)
def test_a_faulty_matrix_is_refused_with_its_fault(tmp_path, change, message):
    text = explicit(1 - np.eye(6), "FULL_MATRIX")
    assert change(text) != text
    assert refusal(vrp(tmp_path, change(text))).startswith(message)


def without_coordinates(num: int = 25) -> Problem:
    """Distances of a random metric that no plane has, as a file of type EXPLICIT gives them."""
    random = np.random.default_rng(0)
    places = random.random((num + 1, 5))
    matrix = np.rint(1000 * np.linalg.norm(places[:, None] - places, axis=-1))
    demand = np.array([0, *random.integers(1, 10, num)])
    return Problem("made", in_a_plane(matrix), demand, 30, "round", None, "EXPLICIT", matrix)


SOLVERS = {
    "savings": savings,
    "HGS": lambda problem: hgs(problem, iterations=20),
    "PyVRP": lambda problem: pyvrp(problem, 0.05, seed=0),
}


@pytest.mark.parametrize("solver", SOLVERS)
def test_every_solver_keeps_to_a_matrix(solver):
    problem = without_coordinates()
    free = SOLVERS[solver](problem)
    check(problem, free)
    # Whoever measured places in the plane instead of the matrix would be far worse than the best of them.
    best = cost_of(problem, SOLVERS["HGS"](problem))
    assert cost_of(problem, free) < 1.08 * best


def test_limits_are_kept_to_in_the_exact_metric_too():
    random = np.random.default_rng(1)
    limits = {"fleet": (Vehicles(30, limit=3.0),), "services": np.full(31, 0.05)}
    problem = Problem("made", random.random((31, 2)), np.ones(31, np.int64), 30, "exact", **limits)
    problem.demand[0] = 0
    with pytest.raises(InvalidTourError, match="the limit is 3"):  # so that the limit matters
        check(problem, savings(problem))
    for found in (pyvrp_plan(problem, 0.05, 0), plan(problem, rounds=100)):
        check(problem, *found)


def test_a_route_that_is_too_long_is_found_out(tmp_path):
    (problem,) = read(vrp(tmp_path, SMALL.replace("CAPACITY", "DISTANCE : 107\nSERVICE_TIME : 3\nCAPACITY")))
    check(problem, [[1, 2], [3], [4], [5]])  # the last takes 50 + 50 + 3
    with pytest.raises(InvalidTourError, match="route 3 takes 117; the limit is 107"):
        check(problem, [[1, 2], [3], [4, 5]])


def test_a_customer_beyond_the_limit_is_refused(tmp_path):
    text = SMALL.replace("CAPACITY", "DISTANCE : 99\nCAPACITY")
    with pytest.raises(ValueError, match="customer 5 cannot be served, even on a route of its own, within"):
        plan(read(vrp(tmp_path, text))[0], rounds=1)
    assert refusal(vrp(tmp_path, text.replace("99", "much"))).startswith("DISTANCE is 'much'; it must be a number")


def test_a_large_matrix_has_savings_of_near_pairs(monkeypatch):
    problem = without_coordinates(300)
    whole = cost_of(problem, savings(problem))
    monkeypatch.setattr(heuristics, "ALL_PAIRS", 200)
    routes = savings(problem)
    check(problem, routes)
    assert cost_of(problem, routes) <= 1.02 * whole


def test_places_in_a_plane_keep_distances_of_a_plane():
    places = np.random.default_rng(0).random((30, 2))
    found = in_a_plane(METRICS["EUC_2D"].lengths(places[:, None], places))
    assert METRICS["EUC_2D"].lengths(found[:, None], found) == pytest.approx(
        METRICS["EUC_2D"].lengths(places[:, None], places), abs=1e-6
    )
    assert in_a_plane(np.zeros((3, 3))) == pytest.approx(0)


NINE = (Vehicles(3, limit=9.0),)


@pytest.mark.parametrize("changed", [{"fleet": NINE}, {"metric": "CEIL_2D"}, {"fleet": NINE, "metric": "CEIL_2D"}])
def test_an_input_says_how_a_file_measures_and_what_it_limits(changed):
    problem = replace(Problem("made", np.eye(3, 2) * 1.1, np.array([0, 1, 1]), 3, "round"), **changed)
    asked = problem_of(RoutingInput.model_validate(as_input(problem)))
    assert cost_of(asked, [[1, 2]]) == cost_of(problem, [[1, 2]])
    assert asked.vehicles == problem.vehicles


def test_an_input_carries_the_distances_that_its_places_lack():
    plain = Problem("made", np.eye(3, 2), np.array([0, 1, 1]), 3, "round")
    assert as_input(plain)["customers"] == [[0, 1], [0, 0]]
    assert "distances" not in as_input(plain)
    for problem in (replace(plain, metric="CEIL_2D"), without_coordinates()):
        given = RoutingInput(**as_input(problem))
        assert distances(problem_of(given)).tolist() == distances(problem).tolist()
