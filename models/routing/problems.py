"""Routing problems, as in files and test sets, and the costs of their solutions.

Costs in different metrics cannot be compared, so every problem carries its own. Files of the VRPLIB family say how
distances are measured, and the set a file belongs to whether each is rounded; the test sets of machine learning do not
round.

Numbering: node 0 is the depot, customers are 1..n in the order of the file. A route is the list of its customers
without the depot, and a solution is a list of routes. `.sol` files use the same numbers: customer k is the k-th node
that is not the depot. Further depots follow the customers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from models.routing.config import RoutingConfig
from models.routing.edge_weight_types import METRICS, Metric

if TYPE_CHECKING:
    import torch

    from models.routing.environment import Instances

    Routes = Sequence[Sequence[int]]

MOST_CAPACITY = 2**24  # float32 counts whole numbers exactly up to here
# Keeps sums of distances far from the limits of int64 in PyVRP, and float64 exact to a millionth of a unit.
MAX_COORDINATE = 1e9
MOST_CUSTOMERS = 5000  # of a problem whose distances are held as a matrix, 200 MB


# Rounding of each distance: VRPLIB rounds, most results on CMT, Golden and tai are exact, and those on problems with
# time windows are cut to one decimal, as in DIMACS's challenge.
ROUNDINGS: dict[str, Callable[[Metric, np.ndarray], np.ndarray]] = {
    "round": lambda metric, lengths: metric.whole(lengths),
    "exact": lambda metric, lengths: lengths,
    "trunc": lambda metric, lengths: np.floor(lengths),
    "dimacs": lambda metric, lengths: np.floor(10 * lengths) / 10,
}
EXACT_SETS = re.compile("(CMT|Golden|Li|tai)[_-]?[0-9]", re.IGNORECASE)  # their best known costs are of exact distances


def usual_rounding(names: Sequence[str], matrix: np.ndarray | None = None) -> str:
    """Return the rounding of published results on the CVRPLIB instance of these names: CMT1, Golden_3, X-n101-k25.

    An explicit matrix is taken as it is.
    """
    if matrix is not None:
        return "round" if (matrix == np.rint(matrix)).all() else "exact"
    return "exact" if any(EXACT_SETS.match(name) for name in names) else "round"


ERRORS = 1e-11  # of sums of times and lengths, relative to their limits


class Vehicles(NamedTuple):
    """Vehicles of one kind."""

    capacity: int
    available: int | None = None  # None: as many as are needed
    depot: int = 0  # 0 is node 0, the others are those behind the customers
    fixed: float = 0.0  # cost of using one
    rate: float = 1.0  # cost of a unit of distance
    longest: float = np.inf  # a route's length
    limit: float = np.inf  # on a route's duration: travelling, waiting and service


@dataclass(frozen=True, eq=False)
class Problem:
    """One instance: n customers, one depot and any number of vehicles of one capacity, unless optional parts differ."""

    name: str  # of the file, with a number if the file holds several instances; can serve as a file name
    locs: np.ndarray  # (N, 2) float64 places in a plane, depot first; of a matrix, places that come near it
    demand: np.ndarray  # (N,) int64, 0 at the depot
    capacity: int
    rounding: str  # of each distance, a key of ROUNDINGS
    best_known: float | None = None  # in the problem's own metric
    metric: str = "EUC_2D"  # a key of METRICS
    matrix: np.ndarray | None = None  # (N, N) float64 from row to column, before rounding, where locs lack them
    services: np.ndarray | None = None  # (N,) float64 times at customers
    durations: np.ndarray | None = None  # (N, N) float64 travel times, where they are not the distances
    windows: np.ndarray | None = None  # (N, 2) float64: service begins within; routes lie within their depot's
    fleet: tuple[Vehicles, ...] = ()  # in place of `capacity`
    depots: int = 1
    open_routes: bool = False  # which end with the service of their last customer
    prizes: np.ndarray | None = None  # (N,) float64 cost of leaving a customer out; infinite where that is forbidden

    @property
    def plain(self) -> bool:
        """Whether this is a symmetric CVRP and no more."""
        parts = (self.durations, self.windows, self.prizes)  # times of service alone limit nothing
        more = self.fleet or self.open_routes or self.depots > 1 or any(part is not None for part in parts)
        return not (more or self.one_way)

    @property
    def one_way(self) -> bool:
        """Whether costs may depend on the direction."""
        return self.matrix is not None and not np.array_equal(self.matrix, self.matrix.T)

    @property
    def customers(self) -> int:
        """The number of customers, n."""
        return len(self.locs) - self.depots

    @property
    def vehicles(self) -> tuple[Vehicles, ...]:
        """The kinds of vehicles."""
        return self.fleet or (Vehicles(self.capacity),)

    @property
    def depot_nodes(self) -> list[int]:
        """The nodes of the depots."""
        return [0, *range(self.customers + 1, len(self.locs))]

    @property
    def service_times(self) -> np.ndarray:
        """The times (N,) at the nodes."""
        at_customers = np.isin(np.arange(len(self.locs)), self.depot_nodes, invert=True)
        return np.where(at_customers, 0.0 if self.services is None else self.services, 0.0)

    @property
    def opening(self) -> np.ndarray:
        """The windows (N, 2)."""
        return np.tile([0.0, np.inf], (len(self.locs), 1)) if self.windows is None else self.windows

    @property
    def tolerance(self) -> float:
        """By how much sums of times and lengths may exceed their limits, because of rounding."""
        bounds = np.array([*self.opening[:, 1], *(b for kind in self.vehicles for b in kind[-2:])])
        return float(ERRORS * np.abs(bounds[bounds < MAX_COORDINATE]).max(initial=0))  # what is later is no bound


def distances(problem: Problem) -> np.ndarray:
    """Return the (n + 1, n + 1) float64 distances between the nodes in the problem's own metric."""
    nodes = np.arange(len(problem.locs))
    return distances_between(problem, nodes[:, None], nodes[None])


def distances_between(problem: Problem, first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Return the float64 distances of pairs of nodes, arrays of which one may be broadcast, in the problem's metric."""
    metric = METRICS[problem.metric]
    if problem.matrix is not None:
        lengths = problem.matrix[first, second]
    else:
        assert metric.planar, f"{problem.name} has no matrix"
        lengths = metric.lengths(problem.locs[first], problem.locs[second])
    # A node is at no distance from itself, also where a metric rounds 0 up or a matrix has a mark on its diagonal.
    return np.where(first == second, 0.0, ROUNDINGS[problem.rounding](metric, lengths))


def travel_between(problem: Problem, first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Return the times of travel of pairs of nodes, as `distances_between` does."""
    return distances_between(problem, first, second) if problem.durations is None else problem.durations[first, second]


def cost_of(problem: Problem, routes: Routes, kinds: Sequence[int] = ()) -> float:
    """Return the cost of all routes, each from its depot and back to it, in the problem's own metric.

    `kinds` are those of the vehicles, by default the first. The cost is the length of routes, unless vehicles
    have costs or customers prizes. Whether the routes are a solution is not checked here but by the validator.
    """
    vehicles = [problem.vehicles[kind] for kind in (kinds or [0] * len(routes))]
    ends = [problem.depot_nodes[each.depot] for each in vehicles] if problem.depots > 1 else [0] * len(routes)
    first = np.array([node for route, end in zip(routes, ends, strict=True) for node in (end, *route)], int)
    second = np.array([node for route, end in zip(routes, ends, strict=True) for node in (*route, end)], int)
    lengths = distances_between(problem, first, second)
    if problem.open_routes:
        lengths = np.where(np.isin(second, problem.depot_nodes), 0, lengths)
    rates = np.repeat([each.rate for each in vehicles], [len(route) + 1 for route in routes])
    cost = float((lengths * rates).sum()) + sum(each.fixed for each in vehicles)
    if problem.prizes is not None:
        cost += float(problem.prizes[np.setdiff1d(np.arange(1, problem.customers + 1), first)].sum())
    return round(cost, 6) if problem.rounding == "dimacs" else cost  # sums of tenths


def scaled(problem: Problem) -> np.ndarray:
    """Return (n + 1, 2) float32 coordinates in the unit square, on which the models were trained.

    Both axes are scaled by one factor, because a factor for each would change which route is the shortest. An exact
    problem that already lies in the unit square is not moved.
    """
    side, locs = _side(problem), problem.locs
    return (locs if side is None else (locs - locs.min(0)) / side).astype(np.float32)


def _side(problem: Problem) -> float | None:
    """Return the side of the square that becomes the unit square; None where nothing is moved."""
    low, high = problem.locs.min(0), problem.locs.max(0)
    moved = problem.rounding != "exact" or low.min() < 0 or high.max() > 1
    return float((high - low).max()) or 1.0 if moved else None


def pace_of(problem: Problem) -> float | None:
    """Return the time that a unit of distance takes; None where that is not the same everywhere."""
    if problem.durations is None:
        return 1.0
    lengths = distances(problem)
    pace = float(problem.durations.sum() / (lengths.sum() or np.inf))
    return pace if pace > 0 and np.allclose(problem.durations, pace * lengths) else None


def unreadable(problem: Problem, config: RoutingConfig) -> str | None:
    """Name a part of a problem that a policy of this `config` cannot read; None if there is none."""
    first, *others = problem.vehicles
    limited = problem.windows is not None or problem.open_routes or min(first.longest, first.limit) < np.inf
    beyond = limited if config.one_way else not problem.plain
    learnt = "acvrp" if config.one_way else "cvrp"
    reasons = {
        "one-way roads: it was not trained on data.problem=acvrp": problem.one_way and not config.one_way,
        "travel times that are no multiple of the distances": pace_of(problem) is None and config.rules,
        "several depots": problem.depots > 1,
        "several kinds of vehicles": others,
        "vehicles that cost something": first.fixed > 0,
        "customers that may be left out": problem.prizes is not None,
        f"windows, limits and open routes: it was trained on data.problem={learnt}": beyond and not config.rules,
    }
    return next((reason for reason, holds in reasons.items() if holds), None)


def rules_of(problem: Problem) -> np.ndarray:
    """Return the rules (N, 6) of a problem as policies read them (`Instances.rules`)."""
    side, pace, vehicles = _side(problem) or 1.0, pace_of(problem) or 1.0, problem.vehicles[0]
    times = np.c_[np.maximum(problem.opening - problem.opening[0, 0], 0), problem.service_times]
    limits = vehicles.longest / side, vehicles.limit / (side * pace), float(problem.open_routes)
    return np.asarray(np.c_[times / (side * pace), np.tile(limits, (len(times), 1))].astype(np.float32))


def to_instances(
    problems: Sequence[Problem], device: torch.device | str, config: RoutingConfig | None = None
) -> Instances:
    """Return problems, all of one size, as the batch that models take, with the rules or matrices that `config` reads.

    Costs of a matrix are the problem's own, rounded as it says.
    """
    import torch

    from models.routing.environment import Instances

    sizes = sorted({problem.customers for problem in problems})
    assert len(sizes) == 1, f"one batch holds problems of one size, got sizes {sizes}"
    asked = config or RoutingConfig()
    parts: dict[str, Sequence[np.ndarray | int]] = {
        "locs": [scaled(problem) for problem in problems],
        "demand": [problem.demand for problem in problems],
        "capacity": [problem.capacity for problem in problems],
    }
    if asked.rules:
        parts["rules"] = [rules_of(problem) for problem in problems]
    if asked.one_way:
        parts["matrix"] = [distances(problem) for problem in problems]
    return Instances.of({name: torch.from_numpy(np.array(part)).float().to(device) for name, part in parts.items()})


class Plan(NamedTuple):
    """A solution: routes, and the kinds of their vehicles."""

    routes: list[list[int]]
    kinds: list[int]


def measured(problem: Problem) -> tuple[np.ndarray, np.ndarray]:
    """Return distances and times of travel (N, N) from row to column; ways home cost nothing where routes are open."""
    nodes = np.arange(len(problem.locs))
    pair = distances(problem), np.array(travel_between(problem, nodes[:, None], nodes[None]), np.float64)
    np.fill_diagonal(pair[1], 0)  # as in `distances_between`
    if problem.open_routes:
        for matrix in pair:
            matrix[:, problem.depot_nodes] = 0
    return pair
