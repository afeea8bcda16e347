"""Methods that a trained policy is measured against: nearest neighbour, savings and a state-of-the-art solver.

Each takes a problem and returns its routes: lists of customers 1..n without the depot. A new heuristic is a function
here and its entry in HEURISTICS, by which configs name it.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from pipelines.workloads.cvrp.problems import Problem, cost_of, distances

if TYPE_CHECKING:
    from models.routing.environment import Routes


def nearest_neighbour(problem: Problem) -> Routes:
    """Go on to the nearest customer that still fits, and back to the depot when none does."""
    dist = distances(problem)
    demand = problem.demand
    waiting = np.ones(len(demand), bool)
    waiting[0] = False
    routes: Routes = [[]]
    node, load = 0, problem.capacity
    for _ in range(problem.customers):
        fits = waiting & (demand <= load)
        if not fits.any():
            routes.append([])
            node, load = 0, problem.capacity
            fits = waiting
        node = int(np.where(fits, dist[node], np.inf).argmin())
        waiting[node] = False
        load -= int(demand[node])
        routes[-1].append(node)
    return routes


def savings(problem: Problem) -> Routes:
    """Join routes by the parallel savings algorithm.

    Clarke and Wright 1964 (Scheduling of Vehicles from a Central Depot to a Number of Delivery Points): every customer
    begins on a route of its own. Pairs of customers are taken in the order of the saving of driving straight from one
    to the other instead of through the depot; two routes are joined where the pair are ends of them and the load fits.
    """
    dist = distances(problem)
    to_depot = dist[0]
    first, second = np.triu_indices(len(dist), 1)
    first, second = first[first > 0], second[first > 0]
    saving = to_depot[first] + to_depot[second] - dist[first, second]
    # A stable sort breaks ties, which are common in the rounded metric, in the same way on every machine.
    order = np.argsort(-saving, kind="stable")
    order = order[: np.count_nonzero(saving > 0)]

    route_of: Routes = [[node] for node in range(len(dist))]
    load_of = problem.demand.tolist()  # valid at the customers at both ends of a route
    capacity = problem.capacity
    for i, j in zip(first[order].tolist(), second[order].tolist(), strict=True):
        left, right = route_of[i], route_of[j]
        if left is right:
            continue
        if (left[0] != i and left[-1] != i) or (right[0] != j and right[-1] != j):
            continue
        load = load_of[i] + load_of[j]
        if load > capacity:
            continue
        if left[-1] != i:
            left.reverse()
        if right[0] != j:
            right.reverse()
        for node in right:
            route_of[node] = left
        left += right
        load_of[left[0]] = load_of[left[-1]] = load
    routes = {id(route): route for route in route_of[1:]}
    return list(routes.values())


class Heuristic(NamedTuple):
    """A method that needs no training."""

    label: str
    solve: Callable[[Problem], Routes]


HEURISTICS = {
    "greedy": Heuristic("nearest neighbour", nearest_neighbour),
    "savings": Heuristic("savings (Clarke-Wright)", savings),
}


def pyvrp(problem: Problem, seconds: float, seed: int, start: Routes | None = None) -> Routes:
    """Return routes from PyVRP within `seconds` of wall time, never costlier than `start`, the routes to improve.

    The clock starts at the call. Only its first local search cannot be interrupted, which takes about half a second at
    1,000 customers and less with `start`. Small problems stop early, after many iterations without improvement. Large
    ones without `start` may end behind savings: 0.5 % after half a second at 400 customers.
    """
    import pyvrp as solver
    from pyvrp.stop import MultipleCriteria, NoImprovement

    deadline = time.perf_counter() + seconds
    data, params = _pyvrp_model(problem)
    initial = solver.Solution(data, [[node - 1 for node in route] for route in start]) if start else None
    patience = max(500, 3 * problem.customers**2)
    with warnings.catch_warnings():
        # The warning says that feasible routes are rare for a while; whether the result is feasible is checked below.
        warnings.simplefilter("ignore", solver.exceptions.PenaltyBoundWarning)
        result = solver.solve(
            data,
            stop=MultipleCriteria([lambda _: time.perf_counter() > deadline, NoImprovement(patience)]),
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

    dist = distances(problem)
    dist = np.rint(dist * pyvrp_scale(problem, dist)).astype(np.int64)
    demand = problem.demand.tolist()
    data = solver.ProblemData(
        locations=[solver.Location(0, 0) for _ in demand],  # PyVRP reads distances from the matrix only
        clients=[solver.Client(location=node, delivery=[demand[node]]) for node in range(1, len(demand))],
        depots=[solver.Depot(location=0)],
        vehicle_types=[solver.VehicleType(num_available=problem.customers, capacity=[problem.capacity])],
        distance_matrices=[dist],
        duration_matrices=[np.zeros_like(dist)],
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
