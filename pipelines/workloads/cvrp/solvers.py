"""Classical solvers of the state of the art, which a trained policy learns from and is measured against.

Hybrid genetic search (HGS-CVRP, Vidal 2022, by the package hygese) and PyVRP's iterated local search. Their budgets are
CPU time, so that a busy machine changes no figure, or iterations, which give the same tours everywhere. A new solver is
one entry of SOLVERS, by which configs name it.
"""

from __future__ import annotations

import functools
import math
import time
import warnings
from collections.abc import Callable
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from models.routing.problems import Problem, cost_of, distances
from pipelines.workloads.cvrp.heuristics import savings

if TYPE_CHECKING:
    from models.routing.environment import Routes


class Population(NamedTuple):
    """Sizes of the genetic algorithm: individuals kept and made per generation, of which 4 * `size` are made first."""

    size: int = 25
    offspring: int = 40


HGS_SLACK = 1e-5
SMALL = Population(2, 4)  # first tours within a millisecond at 20 customers, where the usual one takes ten


def hgs(
    problem: Problem, *, iterations: int = 20_000, seconds: float = 0, seed: int = 0, population: Population = SMALL
) -> Routes:
    """Return routes after `iterations` without improvement, or after `seconds` of CPU time with restarts in between."""
    distance, demand = distances(problem), problem.demand.astype(float)
    if problem.customers < 3 or not distance.any() or not demand.any():
        return savings(problem)  # HGS ends the process over these, and there is little to find
    locs = problem.locs - problem.locs.min(0)  # negative coordinates are refused; only angles are read from them
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
        # HGS lets a route be too long by HGS_SLACK.
        data["duration_limit"] = problem.limit * scale - 0.999 * HGS_SLACK
        data["service_times"] = np.where(np.arange(len(demand)) > 0, problem.service * scale, 0.0)
    while not (routes := _solver(iterations, seconds, seed, population).solve_cvrp(data).routes):
        iterations, seconds = 2 * iterations, 2 * seconds  # every tour so far has a route beyond its limits
    return [route for route in routes if route]


def _into_range(most: float) -> float:
    """Return the power of two that brings a largest value into the range that HGS accepts; 1 where it lies there."""
    return 1.0 if 1 <= most <= 2**16 else 2.0 ** (10 - math.ceil(math.log2(most)))


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


def pyvrp(problem: Problem, seconds: float, seed: int, start: Routes | None = None) -> Routes:
    """Return routes from PyVRP within `seconds` of this thread's CPU time, never costlier than `start`, to be improved.

    The clock starts at the call and is blind to the load of the machine. Only its first local search cannot be
    interrupted, which takes about half a second at 1,000 customers and less with `start`. Small problems stop early,
    after many iterations without improvement. Large ones without `start` may end behind savings: 0.5 % after half a
    second at 400 customers.
    """
    import pyvrp as solver
    from pyvrp.stop import MultipleCriteria, NoImprovement

    deadline = time.thread_time() + seconds
    data, params = _pyvrp_model(problem)
    initial = solver.Solution(data, [[node - 1 for node in route] for route in start]) if start else None
    patience = max(500, 3 * problem.customers**2)
    with warnings.catch_warnings():
        # The warning says that feasible routes are rare for a while; whether the result is feasible is checked below.
        warnings.simplefilter("ignore", solver.exceptions.PenaltyBoundWarning)
        result = solver.solve(
            data,
            stop=MultipleCriteria([lambda _: time.thread_time() > deadline, NoImprovement(patience)]),
            seed=seed,
            collect_stats=False,
            display=False,
            params=params,
            initial_solution=initial,
        )
    candidates = [start] if start else []
    if result.is_feasible():
        best = result.best.routes()
        # Activities count clients from 0.
        candidates.append([[activity.idx + 1 for activity in route if activity.is_client()] for route in best])
    # The solver compares whole numbers; our own metric decides which routes are shorter, and `start` wins ties.
    return min(candidates or [savings(problem)], key=lambda routes: cost_of(problem, routes))


def pyvrp_scale(problem: Problem, dist: np.ndarray) -> float:
    """Return the factor from distances (n + 1, n + 1) to the whole numbers, held in int64, that PyVRP counts in.

    In the exact metric its unit is a millionth of the unit square's side, or of the longest distance if that is more.
    """
    return 1.0 if problem.rounded else float(1e6 / max(1.0, dist.max()))


def _pyvrp_model(problem: Problem) -> tuple[Any, Any]:
    """Return PyVRP's data and parameters, without its Model class, which makes an object of each of the n**2 edges."""
    import pyvrp as solver
    from pyvrp.solve import SolveParams

    exact = distances(problem)
    scale = pyvrp_scale(problem, exact)
    dist = np.rint(exact * scale).astype(np.int64)
    duration, service, shift = np.zeros_like(dist), 0, {}
    if problem.limited:  # rounded so that no route is too long in truth
        duration, service = np.ceil(exact * scale).astype(np.int64), math.ceil(problem.service * scale)
        shift = {"shift_duration": math.floor(problem.limit * scale)}
    demand = problem.demand.tolist()
    data = solver.ProblemData(
        locations=[solver.Location(0, 0) for _ in demand],  # PyVRP reads distances from the matrix only
        clients=[
            solver.Client(location=node, delivery=[demand[node]], service_duration=service)
            for node in range(1, len(demand))
        ],
        depots=[solver.Depot(location=0)],
        vehicle_types=[solver.VehicleType(num_available=problem.customers, capacity=[problem.capacity], **shift)],
        distance_matrices=[dist],
        duration_matrices=[duration],
    )
    # The price of a unit of overload starts at half its maximum and must be in proportion to distances and demands.
    # PyVRP's own maximum, 100,000, suits neither files in whole numbers nor distances of a million: the search drifts
    # among overloaded routes or freezes. Measured at 20 to 100 customers: a factor of 8 is too small for demands near
    # the capacity, 16 to 100 make no difference.
    max_penalty = max(1.0, 40 * dist.mean() / max(1.0, problem.demand[1:].mean()))
    return data, SolveParams(penalty=solver.PenaltyParams(max_penalty=max_penalty))


def pyvrp_label() -> str:
    """Return name, version and method: since version 0.13 PyVRP is no longer the genetic algorithm it is known for."""
    return f"PyVRP {version('pyvrp')} (iterated local search)"


class Solver(NamedTuple):
    """A solver that uses up the time it is given."""

    label: Callable[[], str]
    solve: Callable[[Problem, float, int], Routes]  # problem, seconds of CPU time, seed
    native: bool = False  # whether it is native code of ours, which keeps to no limit on the length of routes


def sisrs(problem: Problem, *, rounds: int = 0, seconds: float = 0, seed: int = 0) -> Routes:
    """Return routes from ruin and recreate by native code, after so many rounds or so many seconds of CPU time."""
    import torch

    from models.routing.environment import routes_of
    from models.routing.solve import ruined

    return routes_of(ruined([problem], torch.zeros(1), seed, rounds=rounds, seconds=seconds)[0])


SOLVERS = {
    "sisrs": Solver(
        lambda: "ruin and recreate",
        lambda problem, seconds, seed: sisrs(problem, seconds=seconds, seed=seed),
        native=True,
    ),
    "hgs": Solver(lambda: "HGS", lambda problem, seconds, seed: hgs(problem, seconds=seconds, seed=seed)),
    "pyvrp": Solver(pyvrp_label, pyvrp),
    "pyvrp_from_savings": Solver(
        lambda: f"{pyvrp_label()} from savings",
        lambda problem, seconds, seed: pyvrp(problem, seconds, seed, savings(problem)),
    ),
}
