"""The judge of solutions accepts the right ones and names what is wrong with any other."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.routing.problems import Problem
from pipelines.workloads.cvrp.solvers.validator import InvalidTourError, check


def problem_of(loads: list[int], capacity: int) -> Problem:
    locs = np.random.default_rng(0).random((len(loads) + 1, 2))
    return Problem("made", locs, np.array([0, *loads]), capacity, rounding="exact")


FIVE = problem_of([4, 4, 2, 7, 1], 10)


@pytest.mark.parametrize(
    "routes", [[[1, 2, 3], [4, 5]], [[5], [4], [3], [2], [1]], [np.array([1, 2, 3]), (5, np.int64(4))]]
)
def test_a_solution_is_accepted(routes):
    check(FIVE, routes)


@pytest.mark.parametrize(
    ("routes", "message"),
    [
        ([[1, 2, 3], [4]], r"made: customer 5 is on no route \(4 of 5 are\)"),
        ([], r"customer 1 is on no route \(0 of 5 are\)"),
        ([[1, 2, 3], [4, 5, 1]], "customer 1 is visited twice, by route 1 and by route 2"),
        ([[1, 1, 2, 3], [4, 5]], "customer 1 is visited twice, by route 1 and by route 1"),
        ([[1, 2, 3], [4, 6]], "route 2 visits node 6; the customers are 1 to 5"),
        ([[1, 2, 3], [4, -1]], "route 2 visits node -1; the customers are 1 to 5"),
        ([[1, 2, 3], [4, 5.0]], "route 2 visits 5.0, which is not a node number"),
        ([[1, 2, 3], [], [4, 5]], "route 2 is empty"),
        ([[1, 2, 0, 3], [4, 5]], "route 1 visits the depot between customers"),
        ([[1, 2, 3, 5], [4]], "route 1 carries 11; the capacity is 10"),
    ],
)
def test_a_violation_is_named(routes, message):
    with pytest.raises(InvalidTourError, match=message):
        check(FIVE, routes)


def test_loads_beyond_floating_point_are_still_counted_exactly():
    large = problem_of([2**53, 1], 2**53)
    check(large, [[1], [2]])
    with pytest.raises(InvalidTourError, match=f"carries {2**53 + 1}"):
        check(large, [[1, 2]])


@st.composite
def solved(draw) -> tuple[Problem, list[list[int]]]:
    """A problem of 2 to 12 customers and a solution of it that fills its vehicles in a random order."""
    capacity = draw(st.integers(1, 20))
    loads = draw(st.lists(st.integers(1, capacity), min_size=2, max_size=12))
    routes: list[list[int]] = [[]]
    for customer in draw(st.permutations(range(1, len(loads) + 1))):
        if sum(loads[node - 1] for node in [*routes[-1], customer]) > capacity:
            routes.append([])
        routes[-1].append(customer)
    return problem_of(loads, capacity), routes


@settings(deadline=None)
@given(solved(), st.data())
def test_any_single_mutation_of_a_solution_is_refused(pair, data):
    problem, routes = pair
    check(problem, routes)
    mutations = ["drop", "duplicate", "stranger", "depot", "empty"]
    # Routes were filled to the brim: each begins with a customer that did not fit on the one before.
    mutations += ["overload"] if len(routes) > 1 else []
    mutation = data.draw(st.sampled_from(mutations))
    which = data.draw(st.integers(0, len(routes) - 1))
    place = data.draw(st.integers(0, len(routes[which]) - 1))
    mutated = [list(route) for route in routes]
    if mutation == "drop":
        del mutated[which][place]
    elif mutation == "duplicate":
        mutated[data.draw(st.integers(0, len(routes) - 1))].append(routes[which][place])
    elif mutation == "stranger":
        mutated[which][place] = data.draw(st.sampled_from([-1, len(problem.demand), len(problem.demand) + 7]))
    elif mutation == "depot":
        mutated[which].insert(place, 0)
    elif mutation == "empty":
        mutated.insert(which, [])
    else:
        which = data.draw(st.integers(1, len(routes) - 1))
        mutated[which - 1 : which + 1] = [routes[which - 1] + routes[which]]
    with pytest.raises(InvalidTourError):
        check(problem, mutated)
