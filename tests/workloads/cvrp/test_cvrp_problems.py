"""A problem is measured in its own metric and reaches the models in the unit square."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from models.routing.problems import Problem, cost_of, distances, scaled, to_instances
from pipelines.workloads.cvrp.instances.generated import standard_test_set


def problem_of(locs, rounded: bool) -> Problem:
    locs = np.array(locs, np.float64)
    demand = np.array([0] + [1] * (len(locs) - 1))
    return Problem("made", locs, demand, 3, "round" if rounded else "exact")


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
    assert [tuple(tensor.shape) for tensor in batch[:3]] == [(3, 21, 2), (3, 21), (3,)]
    assert {tensor.dtype for tensor in batch[:3]} == {torch.float32}
    assert batch.rules is None
    assert batch.demand[1].tolist() == problems[1].demand.tolist()
    assert batch.capacity.tolist() == [30, 30, 30]
    with pytest.raises(AssertionError, match=r"got sizes \[10, 20\]"):
        to_instances([*problems, *standard_test_set(10, 1)], "cpu")
