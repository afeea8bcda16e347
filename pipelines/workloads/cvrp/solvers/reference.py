"""The solvers of `evaluation.reference`: a trained policy learns from them and is measured against them.

Budgets are CPU time, so that a busy machine changes no figure, or iterations, which give the same tours everywhere. A
new solver is one entry of SOLVERS, by which configs name it.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from importlib.util import find_spec
from typing import TYPE_CHECKING

from models.routing.problems import Problem, distances
from pipelines.workloads.cvrp.solvers.heuristics import savings
from pipelines.workloads.cvrp.solvers.pyvrp_search import pyvrp, pyvrp_label

if TYPE_CHECKING:
    import hygese

    from models.routing.environment import Routes


# Individuals that HGS keeps and makes per generation: first tours within a millisecond at 20 customers, where the usual
# population of 25 and 40 takes ten.
SMALL = (2, 4)
ITERATIONS = 10  # without improvement, after which HGS stops on an instance to imitate


def lacking() -> str:
    """Return why there is no HGS on this machine; "" where there is."""
    return "" if find_spec("hygese") else "hygese is not installed (it has no wheel for Python 3.14 and later)"


def hgs(
    problem: Problem, *, iterations: int = 20_000, seconds: float = 0, seed: int = 0, sizes: tuple[int, int] = SMALL
) -> Routes:
    """Return routes of hybrid genetic search (HGS-CVRP, Vidal 2022), by the package hygese, which is optional.

    It ends after `iterations` without improvement, or after `seconds` of CPU time with restarts in between.
    """
    distance, demand = distances(problem), problem.demand.astype(float)
    if problem.customers < 3 or not distance.any() or not demand.any():
        return savings(problem)  # HGS would end the process, and there is little to find
    locs = problem.locs - problem.locs.min(0)  # HGS refuses negative coordinates, and reads only angles from them
    scale, unit = _into_range(distance.max()), _into_range(demand.max())
    places = {"x_coordinates": locs[:, 0], "y_coordinates": locs[:, 1], "distance_matrix": distance * scale}
    loads = {"demands": demand * unit, "vehicle_capacity": problem.capacity * unit, "num_vehicles": problem.customers}
    while not (routes := _solver(iterations, seconds, seed, sizes).solve_cvrp(places | loads).routes):
        iterations, seconds = 2 * iterations, 2 * seconds  # no feasible tour so far
    return [route for route in routes if route]


def _into_range(most: float) -> float:
    """Return the power of two that brings a largest value into HGS's range, or 1 if it is there."""
    return 1.0 if 1 <= most <= 2**16 else 2.0 ** (10 - math.ceil(math.log2(most)))


@functools.lru_cache(maxsize=8)
def _solver(iterations: int, seconds: float, seed: int, sizes: tuple[int, int]) -> hygese.Solver:
    import hygese

    least, more = sizes  # of the population, and of what each generation adds to it
    population = {"mu": least, "lambda_": more, "nbElite": min(4, least), "nbClose": min(5, least)}
    parameters = hygese.AlgorithmParameters(**population, nbIter=iterations, timeLimit=seconds, seed=seed)
    return hygese.Solver(parameters, verbose=False)


ROUNDS = 50  # of ruin and recreate per customer of an instance to imitate, in place of HGS


def to_imitate(problem: Problem) -> Routes:
    """Return routes to learn from, a pure function of the problem: HGS's, if it is installed and the problem plain.

    Otherwise ruin and recreate's or, for plain problems without native code, PyVRP's.
    """
    from models.routing import native
    from models.routing.fleet import plan

    if problem.plain and not lacking():
        return hgs(problem, iterations=ITERATIONS)
    if not (problem.plain and native.unavailable()):
        return plan(problem, rounds=ROUNDS * problem.customers).routes
    return pyvrp(problem, math.inf, 0)  # until it has long found nothing better


# {name: (function that returns a label, function of a problem, seconds of CPU time and a seed)}.
SOLVERS: dict[str, tuple[Callable[[], str], Callable[[Problem, float, int], Routes]]] = {
    "hgs": (lambda: "HGS", lambda problem, seconds, seed: hgs(problem, seconds=seconds, seed=seed)),
    "pyvrp": (pyvrp_label, pyvrp),
}
