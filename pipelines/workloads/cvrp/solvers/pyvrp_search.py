"""PyVRP's iterated local search, from scratch or from tours to improve."""

from __future__ import annotations

import math
import time
import warnings
from importlib.metadata import version
from typing import TYPE_CHECKING

import numpy as np

from models.routing.problems import Problem, cost_of, distances
from pipelines.workloads.cvrp.solvers.heuristics import savings

if TYPE_CHECKING:
    import pyvrp as solver
    from pyvrp.solve import SolveParams

    from models.routing.environment import Routes


def pyvrp(problem: Problem, seconds: float, seed: int, start: Routes | None = None) -> Routes:
    """Return routes from PyVRP within `seconds` of this thread's CPU time, never costlier than `start`.

    Only the first local search cannot be interrupted; it takes about half a second at 1,000 customers, and less with
    `start`. Small problems stop early, after many iterations without improvement. Large ones without `start` may end
    behind savings: 0.5 % after half a second at 400 customers.
    """
    import pyvrp as solver
    from pyvrp.stop import MultipleCriteria, NoImprovement

    deadline = time.thread_time() + seconds
    data, params = _pyvrp_model(problem)
    initial = solver.Solution(data, [[node - 1 for node in route] for route in start]) if start else None
    patience = max(500, 3 * problem.customers**2)
    with warnings.catch_warnings():
        # It warns that feasible routes are rare for a while; the result is checked below.
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
    # The solver compares whole numbers; our own metric decides, and `start` wins ties.
    return min(candidates or [savings(problem)], key=lambda routes: cost_of(problem, routes))


def pyvrp_scale(problem: Problem, dist: np.ndarray) -> float:
    """Return the factor from distances (n + 1, n + 1) to PyVRP's whole numbers in int64.

    In the exact metric its unit is a millionth of the unit square's side, or of the longest distance if that is more.
    """
    return 1.0 if problem.rounded else float(1e6 / max(1.0, dist.max()))


def _pyvrp_model(problem: Problem) -> tuple[solver.ProblemData, SolveParams]:
    """Return PyVRP's data and parameters, without its Model class, which makes an object of each of the n**2 edges."""
    import pyvrp as solver
    from pyvrp.solve import SolveParams

    exact = distances(problem)
    scale = pyvrp_scale(problem, exact)
    dist = np.rint(exact * scale).astype(np.int64)
    duration, service, longest = np.zeros_like(dist), 0, np.iinfo(np.int64).max
    if problem.limited:  # rounded so that no route exceeds the exact limit
        duration, service = np.ceil(exact * scale).astype(np.int64), math.ceil(problem.service * scale)
        longest = math.floor(problem.limit * scale)
    demand = problem.demand.tolist()
    data = solver.ProblemData(
        locations=[solver.Location(0, 0) for _ in demand],  # PyVRP reads distances from the matrix only
        clients=[
            solver.Client(location=node, delivery=[demand[node]], service_duration=service)
            for node in range(1, len(demand))
        ],
        depots=[solver.Depot(location=0)],
        vehicle_types=[solver.VehicleType(problem.customers, capacity=[problem.capacity], shift_duration=int(longest))],
        # PyVRP's own annotation takes `int` for the shape of an array.
        distance_matrices=[dist],  # type: ignore[list-item]
        duration_matrices=[duration],  # type: ignore[list-item]
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
