"""Constructive heuristics to measure a trained policy against: nearest neighbour and savings.

Each takes a problem and returns its routes: lists of customers 1..n without the depot. A new heuristic is a function
here and its entry in HEURISTICS, by which configs name it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from models.routing.problems import Problem, distances_between, distances_from

if TYPE_CHECKING:
    from models.routing.environment import Routes


ALL_PAIRS = 3000  # customers up to which all pairs are compared: at 30,000 they would take 13 GB
NEAR = 100  # nearest others compared with each customer, above that


def nearest_neighbour(problem: Problem) -> Routes:
    """Visit the nearest customer that still fits; return to the depot when none does."""
    demand, back = problem.demand, distances_from(problem, 0)
    waiting = np.ones(len(demand), bool)
    waiting[0] = False
    routes: Routes = [[]]
    away, load = back, problem.capacity
    for _ in range(problem.customers):
        fits = waiting & (demand <= load)
        if not fits.any():
            routes.append([])
            away, load = back, problem.capacity
            fits = waiting
        node = int(np.where(fits, away, np.inf).argmin())
        waiting[node] = False
        load -= int(demand[node])
        away = distances_from(problem, node)
        routes[-1].append(node)
    return routes


def savings(problem: Problem) -> Routes:
    """Join routes by the parallel savings algorithm.

    Clarke and Wright 1964 (Scheduling of Vehicles from a Central Depot to a Number of Delivery Points): every customer
    begins on a route of its own. Pairs of customers are taken in the order of the saving of driving straight from one
    to the other instead of through the depot; two routes are joined if the pair are ends of them and the load fits.
    """
    first, second = _pairs(problem)
    to_depot = distances_from(problem, 0)
    saving = to_depot[first] + to_depot[second] - distances_between(problem, first, second)
    # A stable sort breaks ties, common in the rounded metric, alike on every machine.
    order = np.argsort(-saving, kind="stable")
    order = order[: np.count_nonzero(saving > 0)]

    route_of: Routes = [[node] for node in range(len(to_depot))]
    load_of = problem.demand.tolist()  # kept at the two ends of a route
    for i, j in zip(first[order].tolist(), second[order].tolist(), strict=True):
        left, right = route_of[i], route_of[j]
        if left is right:
            continue
        if (left[0] != i and left[-1] != i) or (right[0] != j and right[-1] != j):
            continue
        load = load_of[i] + load_of[j]
        if load > problem.capacity:
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


def _pairs(problem: Problem) -> tuple[np.ndarray, np.ndarray]:
    """Return the pairs (P,), (P,) of customers to compare: all, or the near ones of very many customers."""
    if problem.customers <= ALL_PAIRS:
        first, second = np.triu_indices(problem.customers, 1)
        return first + 1, second + 1
    if problem.matrix is not None:
        near = np.argpartition(problem.matrix[1:, 1:], NEAR, axis=1)[:, : NEAR + 1]
    else:
        from scipy.spatial import cKDTree

        _, near = cKDTree(problem.locs[1:]).query(problem.locs[1:], NEAR + 1)
    first = np.repeat(np.arange(problem.customers), NEAR + 1)
    pairs = np.sort(np.stack([first, near.ravel()]), 0)
    pairs = np.unique(pairs[:, pairs[0] < pairs[1]], axis=1) + 1
    return pairs[0], pairs[1]


class Heuristic(NamedTuple):
    """A method that needs no training."""

    label: str
    solve: Callable[[Problem], Routes]


HEURISTICS = {
    "greedy": Heuristic("nearest neighbour", nearest_neighbour),
    "savings": Heuristic("savings (Clarke-Wright)", savings),
}
