"""Independent check of finished solutions.

It shares no code with the models, their environment or the heuristics, so that their mistakes cannot hide here, and
counts loads in Python's whole numbers. Lengths and times of travel, like costs, are those of problems.py.
"""

import operator
from collections import Counter
from collections.abc import Sequence

import numpy as np

from models.routing.problems import Problem, distances_between, travel_between


class InvalidTourError(Exception):
    """The routes are not a solution of the problem; the message names the instance and the first fault."""


def check(problem: Problem, routes: Sequence[Sequence[int]], kinds: Sequence[int] = ()) -> None:
    """Raise InvalidTourError unless all who must be served are on one route, and all routes keep to all limits.

    Routes list customers only: the depot, where each of them begins and ends, must not appear, and no route may be
    empty. `kinds` are those of the routes' vehicles, by default the first.
    """

    def refuse(what: str) -> None:
        raise InvalidTourError(f"{problem.name}: {what}")

    kinds, customers = kinds or [0] * len(routes), problem.customers
    hours = None if problem.plain else (*problem.opening.T.tolist(), problem.service_times.tolist())
    if len(kinds) != len(routes):
        refuse(f"there are {len(routes)} routes, but kinds of {len(kinds)} vehicles")
    served_by: dict[int, int] = {}  # customer -> route
    for number, route in enumerate(routes, 1):
        if len(route) == 0:
            refuse(f"route {number} is empty")
        for entry in route:
            try:
                node = operator.index(entry)
            except TypeError:
                refuse(f"route {number} visits {entry!r}, which is not a node number")
            if node == 0:
                refuse(f"route {number} visits the depot between customers")
            if not 0 < node <= customers:
                refuse(f"route {number} visits node {node}; the customers are 1 to {customers}")
            if node in served_by:
                refuse(f"customer {node} is visited twice, by route {served_by[node]} and by route {number}")
            served_by[node] = number
        if not 0 <= kinds[number - 1] < len(problem.vehicles):
            refuse(f"route {number} has a vehicle of kind {kinds[number - 1]}; there are {len(problem.vehicles)}")
        if fault := _fault(problem, route, kinds[number - 1], hours):
            refuse(f"route {number} {fault}")
    for kind, count in Counter(kinds).items():
        if (there_are := problem.vehicles[kind].available) is not None and count > there_are:
            refuse(f"{count} vehicles of kind {kind} are used; there are {there_are}")
    for customer in range(1, customers + 1):
        if customer not in served_by and (problem.prizes is None or problem.prizes[customer] == float("inf")):
            refuse(f"customer {customer} is on no route ({len(served_by)} of {customers} are)")


def _fault(problem: Problem, route: Sequence[int], kind: int, hours: Sequence[Sequence[float]] | None) -> str | None:
    """Return the first fault of a route of a vehicle of this kind: its load, a window, or a limit; None without one.

    `hours` are opening, closing and service times of the nodes, None where neither they nor lengths are limited.
    """
    vehicle, slack = problem.vehicles[kind], problem.tolerance
    if (load := sum(int(problem.demand[node]) for node in route)) > vehicle.capacity:
        return f"carries {load}; the capacity is {vehicle.capacity}"
    if hours is None:
        return None
    depot = vehicle.depot and problem.customers + vehicle.depot
    stops = np.array([depot, *route] if problem.open_routes else [depot, *route, depot])
    if (length := distances_between(problem, stops[:-1], stops[1:]).sum()) > vehicle.longest + slack:
        return f"is {length:g} long; the limit is {vehicle.longest:g}"
    # Begin as early as possible; as much of the waiting as no window forbids can be spent at the depot instead.
    opening, closing, service = hours
    travel = [0.0, *travel_between(problem, stops[:-1], stops[1:]).tolist()]
    now = begin = opening[depot]
    waited, movable = 0.0, closing[depot] - begin
    for node, on_the_way in zip(stops.tolist(), travel, strict=True):
        arrival = now + on_the_way
        if (now := max(arrival, opening[node])) > closing[node] + slack:
            who = f"customer {node}" if 0 < node <= problem.customers else "its depot"
            return f"reaches {who} at {now:g}, after {closing[node]:g}"
        waited += now - arrival
        movable = min(movable, waited + closing[node] - now)
        now += service[node]
    if now > closing[depot] + slack:
        return f"ends at {now:g}; its depot closes at {closing[depot]:g}"
    if (duration := now - begin - min(waited, movable)) > vehicle.limit + slack:
        return f"takes {duration:g}; the limit is {vehicle.limit:g}"
    return None
