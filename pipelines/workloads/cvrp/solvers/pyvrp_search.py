"""PyVRP's iterated local search."""

from __future__ import annotations

import math
import time
import warnings
from importlib.metadata import version
from typing import TYPE_CHECKING

import numpy as np

from models.routing.problems import Plan, Problem, measured
from pipelines.workloads.cvrp.solvers.heuristics import savings

ERRORS = 1e-6  # of numbers that should be whole

if TYPE_CHECKING:
    import pyvrp as solver
    from pyvrp.solve import SolveParams

    from models.routing.environment import Routes


def pyvrp(problem: Problem, seconds: float, seed: int) -> Routes:
    """Return the routes of `pyvrp_plan` on a problem of one kind of vehicles; those of savings if it finds none."""
    found = pyvrp_plan(problem, seconds, seed)
    return found.routes if found else savings(problem)


def pyvrp_plan(problem: Problem, seconds: float, seed: int) -> Plan | None:
    """Return a plan from PyVRP within `seconds` of this thread's CPU time, None if it finds none.

    Only the first local search cannot be interrupted; it takes about half a second at 1,000 customers. Small problems
    stop early, after many iterations without improvement. Large ones may end behind savings: 0.5 % after half a second
    at 400 customers.
    """
    import pyvrp as solver
    from pyvrp.stop import MultipleCriteria, NoImprovement

    deadline = time.thread_time() + seconds
    data, params = pyvrp_model(problem)
    patience = max(500, 3 * problem.customers**2)
    stop = MultipleCriteria([lambda _: time.thread_time() > deadline, NoImprovement(patience)])
    with warnings.catch_warnings():
        # It warns that feasible routes are rare for a while; the result is checked below.
        warnings.simplefilter("ignore", solver.exceptions.PenaltyBoundWarning)
        result = solver.solve(data, stop=stop, seed=seed, collect_stats=False, display=False, params=params)
    if not result.is_feasible():
        return None
    best = result.best.routes()
    # Activities count clients from 0.
    routes = [[activity.idx + 1 for activity in route if activity.is_client()] for route in best]
    return Plan(routes, [route.vehicle_type() for route in best])


def pyvrp_model(problem: Problem) -> tuple[solver.ProblemData, SolveParams]:
    """Return PyVRP's data and parameters, without its Model class, which makes an object of each of the n**2 edges.

    All rounding is such that no route exceeds an exact limit.
    """
    import pyvrp as solver
    from pyvrp.solve import SolveParams

    exact, travel = measured(problem)
    # PyVRP counts in whole numbers: of the exact metric in millionths of the longest distance, or of 1 if that is more.
    scale = {"exact": float(1e6 / max(1.0, exact.max())), "dimacs": 10.0}.get(problem.rounding, 1.0)
    duration = np.ceil(travel * (0 if problem.plain else scale) - ERRORS).astype(np.int64)
    opening, service, demand = problem.opening, problem.service_times, problem.demand.tolist()

    def below(bound: float) -> int:
        return math.floor(bound * scale + ERRORS) if np.isfinite(bound) else np.iinfo(np.int64).max

    def above(bound: float) -> int:
        return math.ceil(bound * scale - ERRORS)

    early = [min(above(opens), below(closes)) for opens, closes in opening]  # an appointment may lie between the two
    prizes = np.full(len(demand), np.inf) if problem.prizes is None else problem.prizes
    data = solver.ProblemData(
        locations=[solver.Location(0, 0) for _ in demand],  # PyVRP reads distances from the matrix only
        clients=[
            solver.Client(
                location=node,
                delivery=[demand[node]],
                service_duration=above(service[node]),
                tw_early=early[node],
                tw_late=below(opening[node, 1]),
                prize=0 if np.isinf(prizes[node]) else round(prizes[node] * scale),
                required=bool(np.isinf(prizes[node])),
            )
            for node in range(1, problem.customers + 1)
        ],
        depots=[
            solver.Depot(location=node, tw_early=early[node], tw_late=below(opening[node, 1]))
            for node in problem.depot_nodes
        ],
        vehicle_types=[
            solver.VehicleType(
                problem.customers if kind.available is None else kind.available,
                capacity=[kind.capacity],
                start_depot=kind.depot,
                end_depot=kind.depot,
                fixed_cost=round(kind.fixed * scale),
                max_distance=below(kind.longest * (kind.rate or 1)),
                unit_distance_cost=int(kind.rate > 0),  # lengths that cost nothing are limited, too
                shift_duration=below(kind.limit),
                profile=number,
            )
            for number, kind in enumerate(problem.vehicles)
        ],
        # PyVRP's own annotation takes `int` for the shape of an array.
        distance_matrices=[np.rint(exact * (kind.rate or 1) * scale).astype(np.int64) for kind in problem.vehicles],  # type: ignore[misc]
        duration_matrices=[duration] * len(problem.vehicles),  # type: ignore[list-item]
    )
    # The price of a unit of overload starts at half its maximum and must be in proportion to distances and demands.
    # PyVRP's own maximum, 100,000, suits neither files in whole numbers nor distances of a million: the search drifts
    # among overloaded routes or freezes. Measured at 20 to 100 customers: a factor of 8 is too small for demands near
    # the capacity, 16 to 100 make no difference.
    max_penalty = max(1.0, 40 * scale * exact.mean() / max(1.0, problem.demand[1:].mean()))
    return data, SolveParams(penalty=solver.PenaltyParams(max_penalty=max_penalty))


def pyvrp_label() -> str:
    """Return name, version and method: since version 0.13 PyVRP is no longer the genetic algorithm it is known for."""
    return f"PyVRP {version('pyvrp')} (iterated local search)"
