"""The methods that a policy is compared with return solutions, of the quality known for them."""

import itertools
import time
import tracemalloc

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from models.routing.problems import Problem, cost_of, distances
from pipelines.workloads.cvrp.instances.generated import standard_test_set
from pipelines.workloads.cvrp.solvers import heuristics
from pipelines.workloads.cvrp.solvers.heuristics import savings
from pipelines.workloads.cvrp.solvers.pyvrp_search import pyvrp, pyvrp_label
from pipelines.workloads.cvrp.solvers.reference import hgs
from pipelines.workloads.cvrp.solvers.validator import check


@st.composite
def problems(draw, most: int = 12) -> Problem:
    """Problems of all kinds, with points that coincide, loads of 0 and loads that fill a vehicle."""
    capacity = draw(st.integers(1, 30))
    loads = draw(st.lists(st.integers(0, capacity), min_size=1, max_size=most))
    coordinate = st.one_of(st.integers(0, 4), st.floats(-10, 10))
    locs = draw(st.lists(st.tuples(coordinate, coordinate), min_size=len(loads) + 1, max_size=len(loads) + 1))
    return Problem(
        "drawn",
        np.array(locs, np.float64),
        np.array([0, *loads]),
        capacity,
        draw(st.sampled_from(["round", "exact", "trunc"])),
    )


def uniform(customers: int, capacity: int, seed: int = 0) -> Problem:
    random = np.random.default_rng(seed)
    demand = np.array([0, *random.integers(1, 10, customers)])
    return Problem("uniform", random.random((customers + 1, 2)), demand, capacity, rounding="exact")


def optimum(problem: Problem) -> float:
    """By trying all: the cheapest way to split each order of the customers into routes. For up to 6 customers."""
    dist = distances(problem)
    best = np.inf
    for order in itertools.permutations(range(1, len(dist))):
        # cheapest[k]: the first k customers served, the vehicle back at the depot
        cheapest = [0.0] + [np.inf] * len(order)
        for begin in range(len(order)):
            load, length = 0, dist[0, order[begin]]
            for end in range(begin, len(order)):
                load += problem.demand[order[end]]
                if load > problem.capacity:
                    break
                if end > begin:
                    length += dist[order[end - 1], order[end]]
                cheapest[end + 1] = min(cheapest[end + 1], cheapest[begin] + length + dist[order[end], 0])
        best = min(best, cheapest[-1])
    return float(best)


@settings(deadline=None)
@given(problems())
def test_savings_always_give_a_solution(problem):
    routes = savings(problem)
    check(problem, routes)
    assert all(type(node) is int for route in routes for node in route)
    # Joining routes by what it saves cannot cost more than serving each customer apart.
    apart = [[node] for node in range(1, problem.customers + 1)]
    assert cost_of(problem, routes) <= cost_of(problem, apart) + 1e-9


def test_savings_joins_the_pair_that_saves_most_and_keeps_to_the_capacity():
    # Of the three on the right, 1 and 2 save most together; 3 has to go with 4, which saves little but something.
    locs = np.array([[0, 0], [10, 0], [11, 0], [10, 1], [-5, 0]], float)
    made = Problem("made", locs, np.array([0, 1, 1, 1, 1]), 2, rounding="exact")
    assert sorted(sorted(route) for route in savings(made)) == [[1, 2], [3, 4]]
    roomy = Problem("roomy", locs, made.demand, 3, rounding="exact")
    assert sorted(sorted(route) for route in savings(roomy)) == [[1, 2, 3], [4]]


def test_savings_reaches_its_published_quality_on_the_standard_set():
    # Measured on the first 1,000: 6.407. Attention models decode greedily to 6.40 (Kool et al. 2019).
    standard = standard_test_set(20, 300)
    mean = np.mean([cost_of(problem, savings(problem)) for problem in standard])
    assert mean == pytest.approx(6.40, abs=0.1)


def test_savings_is_workable_at_a_thousand_customers():
    large = uniform(1000, 150)
    began = time.process_time()
    routes = savings(large)
    assert time.process_time() - began < 5
    check(large, routes)


@pytest.mark.parametrize("rounded", [False, True])
def test_pyvrp_finds_the_optimum_of_small_problems(rounded):
    for seed in range(3):
        small = uniform(6, 14, seed)
        if rounded:
            small = Problem("rounded", small.locs * 100, small.demand, small.capacity, rounding="round")
        routes = pyvrp(small, 0.5, seed=0)
        check(small, routes)
        assert cost_of(small, routes) == pytest.approx(optimum(small), abs=1e-9)


@settings(deadline=None, max_examples=15)
@given(problems(most=6))
@example(Problem("millionth", np.array([[0, 0], [0, 2], [0, 1e-6]]), np.array([0, 0, 0]), 1, rounding="exact"))
def test_pyvrp_gives_a_solution_of_any_problem(problem):
    routes = pyvrp(problem, 5, seed=0)  # so small a problem ends after 500 iterations without improvement
    check(problem, routes)
    # In the exact metric PyVRP counts in units of about a millionth. Of two solutions with at most 2 n edges each,
    # every edge rounded by at most half a unit, it may take one for the shorter that is 2 n units longer.
    unit = 0 if problem.rounding != "exact" else 1e-6 * max(1, distances(problem).max())
    assert cost_of(problem, routes) <= cost_of(problem, savings(problem)) + 2 * problem.customers * unit + 1e-9


def test_pyvrp_keeps_to_its_cpu_time_and_stops_early_when_nothing_is_left_to_find():
    pyvrp(uniform(5, 30), 0.1, seed=0)  # so that the import is not in the measurement
    began = time.thread_time()
    pyvrp(uniform(100, 50), 0.5, seed=0)
    assert 0.5 <= time.thread_time() - began < 0.8
    began = time.thread_time()
    pyvrp(uniform(5, 30), 20, seed=0)
    assert time.thread_time() - began < 5


def test_a_busy_machine_changes_no_tour_of_hgs():
    problem = uniform(60, 40)
    assert hgs(problem, iterations=20, seed=3) == hgs(problem, iterations=20, seed=3)
    began = time.process_time()
    routes = hgs(problem, seconds=0.3)
    assert 0.3 <= time.process_time() - began < 0.6
    check(problem, routes)


@settings(deadline=None, max_examples=30)
@given(problems())
def test_hgs_gives_a_solution_of_any_problem(problem):
    routes = hgs(problem, iterations=5)
    check(problem, routes)
    assert cost_of(problem, routes) <= cost_of(problem, [[node] for node in range(1, problem.customers + 1)]) + 1e-9


def test_pyvrp_is_called_by_its_version_and_method():
    assert pyvrp_label().startswith("PyVRP ")
    assert pyvrp_label().endswith("(iterated local search)")


def test_savings_of_near_pairs_are_hardly_worse_than_of_all(monkeypatch):
    problem = uniform(400, 50)
    whole = cost_of(problem, savings(problem))
    monkeypatch.setattr(heuristics, "ALL_PAIRS", 100)
    routes = savings(problem)
    check(problem, routes)
    assert cost_of(problem, routes) <= 1.01 * whole


def test_savings_hold_no_matrix_of_very_many_customers(monkeypatch):
    monkeypatch.setattr(heuristics, "ALL_PAIRS", 1000)
    large = uniform(1200, 150)  # whose pairs take 77 MB
    tracemalloc.start()
    try:
        routes = savings(large)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    check(large, routes)
    assert peak < 40e6
