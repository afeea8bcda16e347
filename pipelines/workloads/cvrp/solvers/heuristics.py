"""Constructive heuristics to measure a trained policy against.

Each takes a problem and returns its routes: lists of customers 1..n without the depot. A new heuristic is a function
here and its entry in HEURISTICS, with a label, by which configs name it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from models.routing.problems import Problem, distances_between

if TYPE_CHECKING:
    from models.routing.environment import Routes


ALL_PAIRS = 3000  # customers up to which all pairs are compared: at 30,000 they would take 13 GB
NEAR = 100  # nearest others compared with each customer, above that


def savings(problem: Problem) -> Routes:
    """Join routes by the parallel savings algorithm.

    Clarke and Wright 1964 (Scheduling of Vehicles from a Central Depot to a Number of Delivery Points): every customer
    begins on a route of its own. Pairs of customers are taken in the order of the saving of driving straight from one
    to the other instead of through the depot; two routes are joined if the pair are ends of them and the load fits.
    """
    first, second = _pairs(problem)
    to_depot = distances_between(problem, np.zeros(1, int), np.arange(len(problem.locs)))
    saving = to_depot[first] + to_depot[second] - distances_between(problem, first, second)
    # A stable sort breaks ties, common in the rounded metric, alike on every machine.
    order = np.argsort(-saving, kind="stable")[: np.count_nonzero(saving > 0)]

    route_of: Routes = [[node] for node in range(len(to_depot))]
    load_of = problem.demand.tolist()  # kept at the two ends of a route
    for i, j in zip(first[order].tolist(), second[order].tolist(), strict=True):
        left, right, load = route_of[i], route_of[j], load_of[i] + load_of[j]
        if left is right or i not in (left[0], left[-1]) or j not in (right[0], right[-1]) or load > problem.capacity:
            continue
        if left[-1] != i:
            left.reverse()
        if right[0] != j:
            right.reverse()
        for node in right:
            route_of[node] = left
        left += right
        load_of[left[0]] = load_of[left[-1]] = load
    return list({id(route): route for route in route_of[1:]}.values())


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


HEURISTICS: dict[str, tuple[str, Callable[[Problem], Routes]]] = {"savings": ("savings (Clarke-Wright)", savings)}
