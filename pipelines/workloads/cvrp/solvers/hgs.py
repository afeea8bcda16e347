"""Hybrid genetic search (HGS-CVRP, Vidal 2022), by the package hygese, which is optional."""

from __future__ import annotations

import functools
import math
from importlib.util import find_spec
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from models.routing.problems import Problem, distances
from pipelines.workloads.cvrp.solvers.heuristics import savings

if TYPE_CHECKING:
    import hygese

    from models.routing.environment import Routes


class Population(NamedTuple):
    """Individuals kept and made per generation; the first generation has 4 * `size`."""

    size: int = 25
    offspring: int = 40


HGS_SLACK = 1e-5
SMALL = Population(2, 4)  # first tours within a millisecond at 20 customers, where the usual one takes ten


def lacking() -> str:
    """Return why there is no HGS on this machine; "" where there is."""
    return "" if find_spec("hygese") else "hygese is not installed (it has no wheel for Python 3.14 and later)"


def hgs(
    problem: Problem, *, iterations: int = 20_000, seconds: float = 0, seed: int = 0, population: Population = SMALL
) -> Routes:
    """Return routes after `iterations` without improvement, or after `seconds` of CPU time with restarts in between."""
    distance, demand = distances(problem), problem.demand.astype(float)
    if problem.customers < 3 or not distance.any() or not demand.any():
        return savings(problem)  # HGS would end the process, and there is little to find
    locs = problem.locs - problem.locs.min(0)  # HGS refuses negative coordinates, and reads only angles from them
    scale, unit = _into_range(distance.max()), _into_range(demand.max())
    data = {
        "x_coordinates": locs[:, 0],
        "y_coordinates": locs[:, 1],
        "distance_matrix": distance * scale,
        "demands": demand * unit,
        "vehicle_capacity": problem.capacity * unit,
        "num_vehicles": problem.customers,
    }
    if problem.limited:
        # HGS lets routes exceed the limit by HGS_SLACK.
        data["duration_limit"] = problem.limit * scale - 0.999 * HGS_SLACK
        data["service_times"] = np.where(np.arange(len(demand)) > 0, problem.service * scale, 0.0)
    while not (routes := _solver(iterations, seconds, seed, population).solve_cvrp(data).routes):
        iterations, seconds = 2 * iterations, 2 * seconds  # no feasible tour so far
    return [route for route in routes if route]


def _into_range(most: float) -> float:
    """Return the power of two that brings a largest value into HGS's range, or 1 if it is there."""
    return 1.0 if 1 <= most <= 2**16 else 2.0 ** (10 - math.ceil(math.log2(most)))


@functools.lru_cache(maxsize=8)
def _solver(iterations: int, seconds: float, seed: int, population: Population) -> hygese.Solver:
    import hygese

    parameters = hygese.AlgorithmParameters(
        mu=population.size,
        lambda_=population.offspring,
        nbElite=min(4, population.size),
        nbClose=min(5, population.size),
        nbIter=iterations,
        timeLimit=seconds,
        seed=seed,
    )
    return hygese.Solver(parameters, verbose=False)
