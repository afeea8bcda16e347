"""Problems beyond the plain CVRP, solved by native ruin and recreate: windows, one-way roads, fleets, prizes."""

import ctypes
from collections.abc import Sequence

import numpy as np
import torch

from models.routing import native
from models.routing.environment import actions_of, routes_of
from models.routing.problems import MOST_CUSTOMERS, Plan, Problem, cost_of, distances_between, measured, travel_between


def plan(
    problem: Problem, *, rounds: int = 0, seconds: float = 0, seed: int = 0, start: Plan | None = None, crew: int = 1
) -> Plan:
    """Return the cheapest plan that `rounds` of one thread find, or `seconds` of CPU time of each of `crew` threads.

    It is never costlier than `start`. Raises ValueError where no plan is found that serves all who must be served.
    """
    if (rounds > 0) == (seconds > 0):
        raise ValueError(f"rounds is {rounds} and seconds {seconds}; give one of them")
    if reason := native.unavailable():
        raise ValueError(f"only native code solves more than the plain CVRP, and this machine has none: {reason}")
    if problem.customers > MOST_CUSTOMERS:
        most = f"{MOST_CUSTOMERS:,} are the most beyond a plain CVRP"
        raise ValueError(f"there are {problem.customers:,} customers; {most}")
    distance, duration = measured(problem)
    customers, slack = problem.customers, problem.tolerance / 2
    opening, prizes = problem.opening, problem.prizes
    kinds = [
        (
            *(customers if kind.available is None else kind.available, kind.capacity, problem.depot_nodes[kind.depot]),
            *(kind.fixed, kind.rate, kind.longest + slack, kind.limit + slack),
        )
        for kind in problem.vehicles
    ]
    prize = np.full(len(problem.locs), np.inf) if prizes is None else prizes
    numbers = (
        *(distance, duration, problem.demand, opening[:, 0], opening[:, 1] + slack, problem.service_times, prize),
        np.array(kinds),
    )
    arrays = [np.ascontiguousarray(each, np.float64) for each in numbers]  # kept: the call has their addresses only
    visits, chosen = np.zeros(2 * customers, np.int64), np.zeros(customers, np.int64)
    given: tuple[np.ndarray, ...] | tuple[None, None] = (None, None)
    if start is not None:
        given = actions_of(start.routes, 2 * customers).numpy(), np.array(start.kinds, np.int64)
    missing = native.library().plan_fleet(
        *(len(problem.locs), customers, len(kinds)),
        *(ctypes.c_int64(rounds), ctypes.c_double(seconds), ctypes.c_int64(seed), crew),
        *(None if each is None else ctypes.c_void_p(each.ctypes.data) for each in (*arrays, *given, visits, chosen)),
    )
    if missing < 0:
        alone = "cannot be served, even on a route of its own, within capacities, windows and limits"
        raise ValueError(f"customer {-missing} {alone}")
    if missing:
        waiting = np.setdiff1d(np.flatnonzero(np.isinf(prize[: customers + 1])), visits)
        left = f"no plan was found that serves all: {missing} customers are left over, such as {waiting[0]}"
        raise ValueError(f"{left}; allow more vehicles or a longer search")
    routes = routes_of(torch.from_numpy(visits))
    return Plan(routes, chosen[: len(routes)].tolist())


def keeps(problem: Problem, route: Sequence[int]) -> bool:
    """Return whether a route of a vehicle of the first kind keeps to windows, hours and limits."""
    vehicle, slack, depot = problem.vehicles[0], problem.tolerance, problem.depot_nodes[problem.vehicles[0].depot]
    stops, times = np.array([depot, *route, depot]), np.array(schedule(problem, route))
    in_time = (times <= problem.opening[stops, 1] + slack).all() and times[-1] - times[0] <= vehicle.limit + slack
    legs = distances_between(problem, stops[:-1], stops[1:])
    return bool(in_time and legs[: len(route) + (not problem.open_routes)].sum() <= vehicle.longest + slack)


def schedule(problem: Problem, route: Sequence[int], kind: int = 0) -> list[float]:
    """Return when a route leaves its depot, as late as costs no delay, when service begins, and when it is back."""
    depot = problem.depot_nodes[problem.vehicles[kind].depot]
    path, opening, service = np.array([depot, *route, depot]), problem.opening, problem.service_times
    travel = travel_between(problem, path[:-1], path[1:])
    if problem.open_routes:
        travel[-1] = 0
    begun, slack, waited = [float(opening[depot, 0])], float(opening[depot, 1] - opening[depot, 0]), 0.0
    for u, v, on_the_way in zip(path[:-1], path[1:], travel, strict=True):
        arrival = begun[-1] + float(service[u]) + float(on_the_way)
        waited += max(0.0, float(opening[v, 0]) - arrival)
        begun.append(max(arrival, float(opening[v, 0])))
        slack = min(slack, waited + float(opening[v, 1]) - begun[-1])
    begun[0] += max(0.0, min(slack, waited))
    for at, (u, v, on_the_way) in enumerate(zip(path[:-1], path[1:], travel, strict=True)):
        begun[at + 1] = max(begun[at] + float(service[u]) + float(on_the_way), float(opening[v, 0]))
    return begun


def answer(problem: Problem, plan: Plan) -> dict[str, object]:
    """Return a plan as a model's answer, with its cost.

    `arrivals` are as in `schedule`, `vehicles` and `depots` the numbers of each route's where there are several,
    `left_out` the customers whose prizes are lost; `open_routes` says that no route goes back.
    """
    routes, kinds = plan
    found: dict[str, object] = {"routes": routes, "cost": cost_of(problem, routes, kinds)}
    if problem.windows is not None:
        times = [schedule(problem, *each) for each in zip(routes, kinds, strict=True)]
        found["arrivals"] = [[round(at, 6) for at in each] for each in times]
    if problem.open_routes:
        found["open_routes"] = True
    if len(problem.vehicles) > 1:
        found["vehicles"] = kinds
    if problem.depots > 1:
        found["depots"] = [problem.vehicles[kind].depot for kind in kinds]
    if problem.prizes is not None:
        found["left_out"] = sorted(set(range(1, problem.customers + 1)).difference(*routes))
    return found
