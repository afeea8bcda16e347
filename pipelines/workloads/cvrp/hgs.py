"""Hybrid genetic search, the classical solver that a trained policy learns from and is measured against.

HGS-CVRP (Vidal 2022) by the package hygese. Its clock is the CPU time of this process, so a budget in seconds is
spent on the search alone however busy the machine is; a budget in iterations gives the same tours everywhere.
"""

import functools
from typing import Any, NamedTuple

from models.routing.environment import Routes
from pipelines.workloads.cvrp.problems import Problem, distances


class Population(NamedTuple):
    """Sizes of the genetic algorithm: individuals kept and made per generation, of which 4 * `size` are made first."""

    size: int = 25
    offspring: int = 40


SMALL = Population(2, 4)  # first tours within a millisecond at 20 customers, where the usual one takes ten


def hgs(
    problem: Problem, *, iterations: int = 20_000, seconds: float = 0, seed: int = 0, population: Population = SMALL
) -> Routes:
    """Return routes after `iterations` without improvement, or after `seconds` of CPU time with as many restarts."""
    locs = problem.locs - problem.locs.min(0)  # negative coordinates are refused; only angles are read from them
    data = {
        "x_coordinates": locs[:, 0],
        "y_coordinates": locs[:, 1],
        "distance_matrix": distances(problem),
        "demands": problem.demand.astype(float),
        "vehicle_capacity": problem.capacity,
        "num_vehicles": problem.customers,
    }
    while not (routes := _solver(iterations, seconds, seed, population).solve_cvrp(data).routes):
        iterations, seconds = 2 * iterations, 2 * seconds  # every tour so far overloads a vehicle
    return [route for route in routes if route]


@functools.lru_cache(maxsize=8)
def _solver(iterations: int, seconds: float, seed: int, population: Population) -> Any:
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
