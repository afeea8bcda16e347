"""Problems beyond the plain CVRP: plans keep to all that is asked, and cost what other code says they cost."""

from dataclasses import replace

import numpy as np
import pytest
import pyvrp as solver

from models.routing import native
from models.routing.fleet import keeps, plan, schedule
from models.routing.problems import Plan, Problem, Vehicles, cost_of, pace_of
from pipelines.workloads.cvrp.solvers.pyvrp_search import pyvrp_model, pyvrp_plan
from pipelines.workloads.cvrp.solvers.validator import InvalidTourError, check
from tests.workloads.cvrp.variants import KINDS, drawn, least_cost

pytestmark = pytest.mark.skipif(native.unavailable() is not None, reason="needs a C++ compiler")


def solution_of(data, plan):
    """Return a plan as PyVRP's solution, which knows its cost and whether it is feasible."""
    visits = [[solver.Activity(solver.ActivityType.CLIENT, node - 1) for node in route] for route in plan.routes]
    routes = [solver.Route(data, each, kind) for each, kind in zip(visits, plan.kinds, strict=True)]
    return solver.Solution(data, routes)


def agree(problem, found, data):
    """Check that PyVRP and the validator say the same of a plan, and that its cost is the same to both."""
    try:
        check(problem, *found)
        valid = True
    except InvalidTourError:
        valid = False
    solution = solution_of(data, found)
    assert solution.is_feasible() == valid, (problem.name, found)
    whole = solution.distance_cost() + solution.fixed_vehicle_cost() + solution.uncollected_prizes()
    assert whole == pytest.approx(cost_of(problem, *found), abs=1e-9)
    return valid


@pytest.mark.parametrize("bounds", [{}, {"rounds": 5, "seconds": 0.01}])
def test_a_search_is_bounded_by_rounds_or_by_seconds(bounds):
    with pytest.raises(ValueError, match=r"rounds is .* and seconds .*; give one of them"):
        plan(drawn(KINDS[0], 0), **bounds)


def compare(kind, seeds):
    solved = wrong = 0
    for seed in seeds:
        problem, random = drawn(kind, seed), np.random.default_rng(seed)
        data, _ = pyvrp_model(problem)
        try:
            found = plan(problem, rounds=100, seed=seed)
            check(problem, *found)
            solved += agree(problem, found, data)
        except ValueError:
            assert pyvrp_plan(problem, 0.01, seed) is None, problem.name
        routes = np.split(
            random.permutation(problem.customers) + 1, [1, problem.customers // 2][: problem.customers // 2]
        )
        kinds = [int(random.integers(len(problem.vehicles))) for _ in routes]
        at_random = [(route.tolist(), k) for route, k in zip(routes, kinds, strict=True) if len(route)]
        if all(kinds.count(k) <= (each.available or 9) for k, each in enumerate(problem.vehicles)):
            wrong += not agree(problem, Plan(*map(list, zip(*at_random, strict=True))), data)
    return solved, wrong


@pytest.mark.parametrize("kind", KINDS)
def test_plans_and_random_routes_are_to_pyvrp_what_they_are_here(kind):
    assert compare(kind, range(2))[0]


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_thousand_plans_and_random_routes_are_to_pyvrp_what_they_are_here(kind):
    solved, wrong = compare(kind, range(1000))
    assert solved > 800
    assert wrong > 10 or kind in ("open routes", "prizes", "one-way roads")


@pytest.mark.parametrize("kind", KINDS)
def test_of_few_customers_the_cheapest_plan_is_found(kind):
    for seed in range(3):
        problem = drawn(kind, seed, 4)
        try:
            found = cost_of(problem, *plan(problem, rounds=300, seed=seed))
        except ValueError:
            found = np.inf
        assert found == least_cost(problem), problem.name


def line(**parts):
    """Return customers at 1, 2 and 3 on a line from the depot."""
    locs = np.array([[0, 0], [1, 0], [2, 0], [3, 0]], float)
    return Problem("line", locs, np.array([0, 1, 1, 1]), 3, "exact", **parts)


HOURS = np.array([[0, 20], [0, 2], [0, 3], [9, 12]], float)


@pytest.mark.parametrize(
    ("parts", "routes", "kinds", "fault"),
    [
        ({"windows": HOURS}, [[1, 2, 3]], [], None),
        ({"windows": HOURS}, [[2, 1, 3]], [], "route 1 reaches customer 1 at 3, after 2"),
        ({"windows": HOURS, "services": np.array([0, 9, 0, 0.0])}, [[1, 2, 3]], [], "reaches customer 2 at 11"),
        (
            {"windows": np.array([[0, 11.6], *HOURS[1:]])},
            [[1, 2], [3]],
            [],
            "route 2 reaches its depot at 12, after 11.6",
        ),
        (
            {"windows": HOURS, "fleet": (Vehicles(3, limit=10.5),)},
            [[1, 2, 3]],
            [],
            "route 1 takes 11; the limit is 10.5",
        ),
        ({"windows": HOURS, "fleet": (Vehicles(3, limit=11),)}, [[1, 2, 3]], [], None),
        ({"fleet": (Vehicles(3, longest=5),)}, [[1, 2, 3]], [], "route 1 is 6 long; the limit is 5"),
        ({"fleet": (Vehicles(3, longest=5),), "open_routes": True}, [[1, 2, 3]], [], None),
        ({"fleet": (Vehicles(3, 1),)}, [[1], [2, 3]], [], "2 vehicles of kind 0 are used; there are 1"),
        ({"fleet": (Vehicles(3, 1), Vehicles(1))}, [[1], [2, 3]], [0, 1], "route 2 carries 2; the capacity is 1"),
        ({"fleet": (Vehicles(3),)}, [[1, 2, 3]], [1], "route 1 has a vehicle of kind 1; there are 1"),
        ({"prizes": np.array([np.inf, 1, 1, np.inf])}, [[3]], [], None),
        ({"prizes": np.array([np.inf, 1, 1, np.inf])}, [[1, 2]], [], "customer 3 is on no route"),
    ],
)
def test_the_validator_names_what_a_route_breaks(parts, routes, kinds, fault):
    if fault is None:
        check(line(**parts), routes, kinds)
        return
    with pytest.raises(InvalidTourError, match=fault):
        check(line(**parts), routes, kinds)


def test_costs_are_those_of_vehicles_prizes_and_open_ways():
    vans = Vehicles(3, fixed=10, rate=2)
    assert cost_of(line(), [[1, 2, 3]]) == 6
    assert cost_of(line(open_routes=True), [[1, 2, 3]]) == 3
    assert cost_of(line(fleet=(Vehicles(3), vans)), [[1], [2, 3]], [0, 1]) == 2 + 10 + 12
    assert cost_of(line(prizes=np.array([np.inf, 5, 7, np.inf])), [[3]]) == 6 + 5 + 7
    one_way = np.array([[0, 1, 1], [9, 0, 1], [1, 9, 0]], float)
    roads = Problem("roads", np.zeros((3, 2)), np.array([0, 1, 1]), 2, "exact", metric="EXPLICIT", matrix=one_way)
    assert (cost_of(roads, [[1, 2]]), cost_of(roads, [[2, 1]])) == (3, 19)


def test_vehicles_leave_as_late_as_costs_no_delay():
    assert schedule(line(windows=HOURS), [1, 2, 3]) == [1.0, 2.0, 3.0, 9.0, 12.0]
    assert schedule(line(windows=HOURS), [3]) == [6.0, 9.0, 12.0]
    assert schedule(line(windows=HOURS, open_routes=True), [1, 2, 3]) == [1.0, 2.0, 3.0, 9.0, 9.0]


def test_an_open_route_may_be_as_long_as_its_limit_without_its_way_home():
    for most, closed, opened in ((6, True, True), (5, False, True), (3, False, True), (2, False, False)):
        fleet = (Vehicles(3, longest=most),)
        assert keeps(line(fleet=fleet), [1, 2, 3]) is closed
        assert keeps(line(fleet=fleet, open_routes=True), [1, 2, 3]) is opened


def test_what_cannot_be_served_is_named():
    late = line(windows=HOURS - [[0, 0], [0, 0], [0, 1.5], [0, 0]])
    with pytest.raises(ValueError, match="customer 2 cannot be served, even on a route of its own"):
        plan(late, rounds=10)
    with pytest.raises(ValueError, match="1 customers are left over"):
        plan(line(fleet=(Vehicles(2, 1),)), rounds=100)


def test_a_plan_given_is_kept_or_improved_and_rounds_decide_all():
    problem = drawn("windows", 7, 30)
    first = plan(problem, rounds=50, seed=1)
    assert plan(problem, rounds=50, seed=1) == first
    later = plan(problem, rounds=1, seed=2, start=first)
    assert cost_of(problem, *later) <= cost_of(problem, *first)
    thousandth = replace(problem, locs=problem.locs / 1000, windows=problem.windows / 1000, rounding="exact")
    thousandth = replace(thousandth, services=problem.services / 1000)
    check(thousandth, *plan(thousandth, rounds=50))


@pytest.mark.parametrize("kind", KINDS)
def test_threads_that_compete_for_small_problems_keep_to_all_that_is_asked(kind):
    for seed in range(5):
        problem = drawn(kind, seed)
        try:
            alone = plan(problem, rounds=50, seed=seed)
        except ValueError:  # it may have no solution
            continue
        found = plan(problem, seconds=0.003, seed=seed, start=alone, crew=3)
        check(problem, *found)
        assert cost_of(problem, *found) <= cost_of(problem, *alone) + 1e-9


@pytest.mark.parametrize(
    "parts",
    [
        {"windows": np.array([[0, 20], [0, 20], [16 / 3, 16 / 3], [0, 20]])},  # an appointment
        {"fleet": (Vehicles(3, fixed=1, rate=0, longest=4.5),)},  # a long route would cost least
        {"locs": np.zeros((4, 2)), "durations": 1 - np.eye(4)},  # all at one place
    ],
)
def test_pyvrp_finds_a_plan_by_every_measure(parts):
    square = replace(line(), **{"locs": np.array([[0, 0], [1, 0], [-1, 0], [0, 1.0]]), **parts})
    check(square, *pyvrp_plan(square, 0.05, 0))
    assert pace_of(square) == (None if "durations" in parts else 1.0)


def large(customers: int = 240) -> Problem:
    """Two depots, two kinds of vehicles, of which one is scarce, windows, limits, and customers worth no detour."""
    random = np.random.default_rng(7)
    size = customers + 2
    places = random.random((size, 2))
    places[-1] = 0.9, 0.9
    demand = random.integers(1, 10, size)
    opens = 2 * random.random(size)
    prizes = np.where(random.random(size) < 0.5, np.inf, random.random(size) / 20)
    for depot in (0, customers + 1):
        demand[depot], opens[depot], prizes[depot] = 0, 0, np.inf
    closes = opens + 2
    closes[[0, -1]] = 5
    fleet = (Vehicles(60, 9, 0, fixed=0.1), Vehicles(40, None, 1, rate=1.1, limit=4.5))
    services = np.full(size, 0.02)
    windows = np.stack([opens, closes], 1)
    parts = {"services": services, "windows": windows, "fleet": fleet, "depots": 2, "prizes": prizes}
    return Problem("large", places, demand, 60, "exact", **parts)


@pytest.mark.parametrize("parts", [{}, pytest.param({"open_routes": True}, marks=pytest.mark.slow)])
def test_threads_that_share_a_large_problem_put_its_parts_together_again(parts):
    problem = replace(large(), **parts)
    alone = plan(problem, rounds=20, seed=1)
    found = plan(problem, seconds=0.4, seed=1, start=alone, crew=2)
    check(problem, *found)
    assert cost_of(problem, *found) < cost_of(problem, *alone)
    assert {0, 1} == set(found.kinds)
    assert set(range(1, problem.customers + 1)) > {c for route in found.routes for c in route}  # some are left out


def test_several_threads_begin_with_the_plan_given_and_tell_who_cannot_be_served():
    problem = large()
    kept = plan(problem, seconds=0.3, seed=2)
    again = plan(problem, seconds=1e-6, start=kept, crew=2)
    assert cost_of(problem, *again) <= cost_of(problem, *kept) + 1e-9
    with pytest.raises(ValueError, match="customer 3 cannot be served"):
        plan(line(fleet=(Vehicles(1),), windows=np.array([[0, 5.9]] * 4)), seconds=0.01, crew=2)
