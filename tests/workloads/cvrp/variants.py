"""Random small problems of every kind beyond the plain CVRP, and the cost of the cheapest plan by trying them all."""

import itertools
from dataclasses import replace

import numpy as np

from models.routing.problems import Problem, Vehicles, cost_of
from pipelines.workloads.cvrp.solvers.validator import InvalidTourError, check

KINDS = (
    *("one-way roads", "durations", "windows", "duration", "length", "few vehicles", "kinds of vehicles"),
    *("depots", "open routes", "prizes", "everything"),
)


def drawn(kind, seed, customers=None):
    """Return a problem in whole numbers, which may have no solution."""
    random = np.random.default_rng([seed, KINDS.index(kind)])
    every, customers = kind == "everything", customers or int(random.integers(2, 8))
    depots = 2 if kind == "depots" or (every and seed % 2) else 1
    nodes = customers + depots
    locs, demand = random.integers(0, 100, (nodes, 2)).astype(float), random.integers(1, 10, nodes)
    ends = [0, *range(customers + 1, nodes)]
    demand[ends] = 0
    capacity, parts = 20, {}
    straight = np.hypot(*(locs[:, None] - locs[None]).transpose(2, 0, 1))
    if kind in ("one-way roads", "durations") or every:
        parts |= {"matrix": np.rint(straight * (1 + random.random((nodes, nodes)) / 2)), "metric": "EXPLICIT"}
    if kind == "durations" or every:
        parts["durations"] = np.rint(straight * (0.5 + random.random((nodes, nodes))))
    if kind in ("windows", "durations") or every:
        opens, services = random.integers(0, 300, nodes), random.integers(0, 20, nodes).astype(float)
        windows = np.stack([opens, opens + random.integers(30, 200, nodes)], 1).astype(float)
        windows[ends], services[ends] = (0, 700), 0
        windows[:, 1] = np.maximum(windows[:, 1], 160)  # within reach
        parts |= {"windows": windows, "services": services}
    enough = -(-int(demand.sum()) // capacity)
    parts |= {
        "duration": {"fleet": (Vehicles(capacity, limit=350.0),), "services": np.full(nodes, 5.0)},
        "length": {"fleet": (Vehicles(capacity, longest=300.0),)},
        "few vehicles": {"fleet": (Vehicles(capacity, enough + int(random.integers(0, 2))),)},
        "kinds of vehicles": {"fleet": (Vehicles(12, 2, 0, 50.0), Vehicles(30, 3, 0, 100.0, 2.0))},
        "depots": {"fleet": (Vehicles(capacity, 3, 0), Vehicles(capacity, 3, 1))},
        "everything": {
            "fleet": (Vehicles(12, 2, 0, 50.0, 1.0, 400.0), Vehicles(30, 3, depots - 1, 9.0, 2.0, 400.0, 300.0))
        },
    }.get(kind, {})
    if kind == "prizes" or every:
        prizes = np.where(random.random(nodes) < 0.6, random.integers(5, 150, nodes), np.inf)
        prizes[ends] = np.inf
        parts["prizes"] = prizes
    opened = kind == "open routes" or (every and seed % 3 == 0)
    return Problem(f"{kind} {seed}", locs, demand, capacity, "round", depots=depots, open_routes=opened, **parts)


def least_cost(problem):
    """Return the cost of the cheapest plan, infinity where there is none: of all orders of all sets of customers."""
    customers = range(1, problem.customers + 1)
    prizes = np.full(len(problem.locs), np.inf) if problem.prizes is None else problem.prizes
    alone, free = replace(problem, prizes=np.zeros(len(problem.locs))), replace(problem, prizes=None)
    least = {frozenset(): 0.0}
    for kind, vehicles in enumerate(problem.vehicles):
        routes = {}
        for size in customers:
            for order in itertools.permutations(customers, size):
                try:
                    check(alone, [order], [kind])
                except InvalidTourError:
                    continue
                cost = cost_of(free, [order], [kind])
                routes[frozenset(order)] = min(cost, routes.get(frozenset(order), np.inf))
        for _ in range(min(vehicles.available or problem.customers, problem.customers)):
            for served, cost in list(least.items()):
                for more, own in routes.items():
                    if not served & more:
                        least[served | more] = min(cost + own, least.get(served | more, np.inf))
    return min(cost + sum(prizes[node] for node in customers if node not in served) for served, cost in least.items())
