"""Solving users' problems: plain lists in any unit in, routes and their length in that unit out."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple, Protocol, Unpack

import numpy as np
import torch
from torch import Tensor, nn

from common.random import derive_key, random_bits
from models.routing import native
from models.routing.distance_metrics import great_circle, local_plane
from models.routing.environment import DEPOT, Instances, Routes, routes_of
from models.routing.inputs import RoutingInput, VehiclesInput
from models.routing.problems import MOST_CAPACITY, Problem, Vehicles, cost_of, distances, to_instances
from models.routing.search import Settings, TourBuilder, shortlist

LOCAL_SEARCH = 4  # best tours improved by the local search, by default
AT_ONCE = 256  # problems given to one search
OMITTED = "the policy leaves customers out, as it does when its weights are not finite numbers; train it again"
MOST_DISTANCES = 2**25  # held at once by a local search, 8 bytes each


class Solver(TourBuilder, Protocol):
    """A tour builder with parameters, which say what device it is on."""

    def parameters(self) -> Iterator[nn.Parameter]:
        """Yield the weights."""


class Asked(NamedTuple):
    """A problem and the number of its random stream."""

    problem: Problem
    item: int = 0


def problem_of(given: RoutingInput) -> Problem:
    """Return the problem of an input."""
    locs, matrix = np.array([given.depot, *given.customers, *given.depots], float), None
    if given.degrees:
        locs, matrix = local_plane(locs), great_circle(locs[:, None], locs)
    if given.distances is not None:
        matrix = np.array(given.distances, float)
    further = [0.0] * len(given.depots)
    windows = [*(given.windows or [(0, np.inf)] * len(given.customers)), *[given.hours or (0, np.inf)] * len(further)]
    problem = Problem(
        given.name or "",
        locs,
        np.array([0, *given.demands, *further], np.int64),
        given.capacity,
        given.rounding,
        matrix=matrix,
        services=None if given.service_times is None else np.array([0, *given.service_times, *further]),
        durations=None if given.durations is None else np.array(given.durations, float),
        windows=np.array([given.hours or (0, np.inf), *windows], float) if given.windows or given.hours else None,
        fleet=_fleet_of(given),
        depots=1 + len(further),
        open_routes=given.open_routes,
        prizes=None if given.prizes is None else np.array([np.inf, *given.prizes, *further], float),  # nan: None
    )
    if problem.prizes is not None:
        problem.prizes[np.isnan(problem.prizes)] = np.inf
    if given.speed is not None and given.durations is None:
        return replace(problem, durations=distances(problem) * 60 / given.speed)
    return problem


def _fleet_of(given: RoutingInput) -> tuple[Vehicles, ...]:
    """Return the kinds of vehicles; none where only the capacity is limited."""

    def bounds(of: RoutingInput | VehiclesInput) -> list[float]:
        return [np.inf if most is None else most for most in (of.max_length, of.max_duration)]

    if given.vehicles:
        return tuple(
            Vehicles(each.capacity, each.count, each.depot, each.fixed_cost, each.cost_per_distance, *bounds(each))
            for each in given.vehicles
        )
    if not given.depots and given.num_vehicles is None and bounds(given) == [np.inf, np.inf]:
        return ()
    depots = range(1 + len(given.depots))
    return tuple(Vehicles(given.capacity, given.num_vehicles, at, 0, 1, *bounds(given)) for at in depots)


def solve_all(
    policy: Solver,
    asked: Sequence[Asked],
    *,
    local_search: int | None = None,
    ruin_rounds: int = 0,
    seed: int = 0,
    **settings: Unpack[Settings],
) -> list[tuple[Routes, float]]:
    """Return routes and their cost for each problem; `settings` are those of `shortlist`.

    Raises ValueError for settings that do not fit, for a local search or ruins without native code, and for a policy
    whose weights are not finite.
    """
    for name, given in (("local_search", local_search), ("ruin_rounds", ruin_rounds)):
        if given and (reason := native.unavailable()):
            raise ValueError(f"{name} is {given}, but this machine has no native code: {reason}; set it to 0")
    count = (0 if native.unavailable() else LOCAL_SEARCH) if local_search is None else local_search
    device = next(policy.parameters()).device
    by_size: dict[int, list[int]] = defaultdict(list)
    for place, each in enumerate(asked):
        by_size[each.problem.customers].append(place)
    found: dict[int, tuple[Routes, float]] = {}
    for places in by_size.values():
        size = at_once(asked[places[0]].problem)
        for rows in (places[first : first + size] for first in range(0, len(places), size)):
            problems = [asked[place].problem for place in rows]
            items = torch.tensor([asked[place].item for place in rows])
            tours = best_tours(
                policy, problems, to_instances(problems, device), items, count, ruin_rounds, seed, **settings
            )
            for place, problem, tour in zip(rows, problems, tours, strict=True):
                routes = routes_of(tour)
                found[place] = routes, cost_of(problem, routes)
    return [found[place] for place in range(len(asked))]


def at_once(problem: Problem) -> int:
    """Return how many problems of this size to search together."""
    return max(1, min(AT_ONCE, MOST_DISTANCES // (problem.customers + 1) ** 2))


def best_tours(
    policy: TourBuilder,
    problems: Sequence[Problem],
    instances: Instances,
    items: Tensor,
    local_search: int,
    ruin_rounds: int,
    seed: int,
    **settings: Unpack[Settings],
) -> Tensor:
    """Return the best tours (B, T) of a search, improved by a local search of its best `local_search` tours.

    `ruin_rounds` of ruin and recreate follow. `instances` are the B problems as the policy takes them, `items` (B,) the
    numbers of their random streams.
    """
    actions, _ = shortlist(policy, instances, keep=max(1, local_search), seed=seed, items=items, **settings)
    customers = problems[0].customers
    actions = padded(actions, 2 * customers)
    each_once = torch.arange(1 - customers, 1 + customers, device=actions.device).clamp_min(DEPOT)
    if (actions.sort(-1).values != each_once).any():
        raise ValueError(OMITTED)
    best = actions[:, 0]
    if local_search:
        best = improved(problems, items, local_search, seed, actions)
    return ruined(problems, items, seed, best, rounds=ruin_rounds) if ruin_rounds else best


def improved(
    problems: Sequence[Problem], items: Tensor, num_tours: int, seed: int, tours: Tensor | None = None
) -> Tensor:
    """Return tours (B, T) after a local search in the problems' own metric, from `tours` (B, S, T) or random ones."""
    seeds = random_bits(derive_key(seed, "cvrp", "local search"), items.cpu(), 1)[:, 0]
    return native.improve(*_measured(problems), seeds, num_tours, None if tours is None else tours.cpu())


def ruined(
    problems: Sequence[Problem],
    items: Tensor,
    seed: int,
    tours: Tensor | None = None,
    *,
    rounds: int = 0,
    seconds: float = 0,
) -> Tensor:
    """Return tours (B, T) after ruin and recreate in the problems' own metric, from `tours` (B, T) or random ones.

    The budget is `rounds`, or `seconds` of CPU time for each problem.
    """
    seeds = random_bits(derive_key(seed, "cvrp", "ruin"), items.cpu(), 1)[:, 0]
    given = None if tours is None else padded(tours.cpu(), 2 * problems[0].customers)
    return native.ruin_and_recreate(*_measured(problems), seeds, given, rounds=rounds, seconds=seconds)


def _measured(problems: Sequence[Problem]) -> tuple[Tensor, Tensor, Tensor]:
    """Return distances (B, N, N), demands (B, N) and capacities (B,) in float64."""
    return (
        torch.from_numpy(np.stack([distances(problem) for problem in problems])),
        torch.from_numpy(np.stack([problem.demand for problem in problems])).double(),
        torch.tensor([problem.capacity for problem in problems], dtype=torch.float64),
    )


def padded(actions: Tensor, length: int) -> Tensor:
    """Pad (..., T) to (..., length) with the depot."""
    return torch.nn.functional.pad(actions, (0, length - actions.shape[-1]), value=DEPOT)


def given_problem(locs: object, demand: object, capacity: int) -> Problem:
    """Return locations (N, 2) and demands (N,) as a problem; raise ValueError if they are not one."""
    locs, demand = _numbers(locs, "locs"), _numbers(demand, "demand")
    if locs.ndim != 2 or locs.shape[1] != 2 or not len(locs):
        raise ValueError(f"locs has shape {list(locs.shape)}; it must be (N, 2), the depot first, then N - 1 customers")
    if demand.shape != locs.shape[:1]:
        raise ValueError(
            f"demand has shape {list(demand.shape)}; it must be ({len(locs)},), one number for each of locs"
        )
    most = _numbers(capacity, "capacity")
    if most.ndim or most != most.round() or not 1 <= most <= MOST_CAPACITY:
        raise ValueError(f"capacity is {capacity}; it must be a whole number from 1 to {MOST_CAPACITY}")
    if demand[DEPOT] != 0:
        raise ValueError(f"demand[0] is {demand[DEPOT].item():g}; it is the depot's and must be 0")
    for wrong, must in [
        ((demand < 0) | (demand != demand.round()), "must be a whole number, 0 or more"),
        (demand > most, f"is more than a vehicle's capacity of {most:g}; split the customer into several"),
    ]:
        if wrong.any():
            i = int(wrong.nonzero()[0])
            raise ValueError(f"demand[{i}] is {demand[i].item():g}; it {must}")
    return Problem("given", locs.numpy(), demand.long().numpy(), int(most), "exact")


def _numbers(values: object, name: str) -> Tensor:
    """Return a finite float64 tensor on the CPU from lists, arrays or tensors."""
    try:
        tensor = torch.as_tensor(values, dtype=torch.float64, device="cpu")
    except (TypeError, ValueError, RuntimeError) as error:
        raise ValueError(f"{name} must be numbers: {error}") from error
    if not tensor.isfinite().all():
        raise ValueError(f"{name} has values that are not finite numbers")
    return tensor
