"""Independent check of finished solutions.

It shares no code with the models, their environment or the heuristics, so that their mistakes cannot hide here, and
counts loads in Python's whole numbers. Lengths, like costs, are those of problems.py.
"""

import operator
from collections.abc import Sequence

from models.routing.problems import Problem, cost_of


class InvalidTourError(Exception):
    """The routes are not a solution of the problem; the message names the instance and the first fault."""


def check(problem: Problem, routes: Sequence[Sequence[int]]) -> None:
    """Raise InvalidTourError unless each customer 1..n is on one route and all routes keep to capacity and limit.

    Routes list customers only: the depot, where each of them begins and ends, must not appear, and no route may be
    empty.
    """

    def refuse(what: str) -> None:
        raise InvalidTourError(f"{problem.name}: {what}")

    demand = [int(load) for load in problem.demand]
    served_by: dict[int, int] = {}  # customer -> route
    for number, route in enumerate(routes, 1):
        if len(route) == 0:
            refuse(f"route {number} is empty")
        load = 0
        for entry in route:
            try:
                node = operator.index(entry)
            except TypeError:
                refuse(f"route {number} visits {entry!r}, which is not a node number")
            if node == 0:
                refuse(f"route {number} visits the depot between customers")
            if not 0 < node < len(demand):
                refuse(f"route {number} visits node {node}; the customers are 1 to {len(demand) - 1}")
            if node in served_by:
                refuse(f"customer {node} is visited twice, by route {served_by[node]} and by route {number}")
            served_by[node] = number
            load += demand[node]
        if load > problem.capacity:
            refuse(f"route {number} carries {load}; the capacity is {problem.capacity}")
        duration = cost_of(problem, [route]) + problem.service * len(route)
        if duration > problem.limit:
            refuse(f"route {number} takes {duration:g}; the limit is {problem.limit:g}")
    for customer in range(1, len(demand)):
        if customer not in served_by:
            refuse(f"customer {customer} is on no route ({len(served_by)} of {len(demand) - 1} are)")
