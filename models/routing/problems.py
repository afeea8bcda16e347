"""Problems as files and test sets give them, and the costs of their solutions.

Costs in different metrics cannot be compared, so every problem carries its own. Files of the VRPLIB family say how
distances are measured, and the set a file belongs to whether each is rounded; the test sets of machine learning do not
round.

Numbering: node 0 is the depot, customers are 1..n in the order of the file. A route is the list of its customers
without the depot, and a solution is a list of routes. `.sol` files use the same numbers: customer k is the k-th node
that is not the depot.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from models.routing.distance_metrics import METRICS, Metric

if TYPE_CHECKING:
    import torch

    from models.routing.environment import Instances

MOST_CAPACITY = 2**24  # float32 counts whole numbers exactly up to here
# Keeps sums of distances far from the limits of int64 in PyVRP, and float64 exact to a millionth of a unit.
MAX_COORDINATE = 1e9
MOST_CUSTOMERS = 5000  # of a problem whose distances are held as a matrix, 200 MB


# Rounding of each distance: VRPLIB rounds, DIMACS truncates, most results on CMT, Golden and tai are exact.
ROUNDINGS: dict[str, Callable[[Metric, np.ndarray], np.ndarray]] = {
    "round": lambda metric, lengths: metric.whole(lengths),
    "exact": lambda metric, lengths: lengths,
    "trunc": lambda metric, lengths: np.floor(lengths),
}
EXACT_SETS = re.compile("(CMT|Golden|Li|tai)[_-]?[0-9]", re.IGNORECASE)  # their best known costs are of exact distances


def usual_rounding(names: Sequence[str], matrix: np.ndarray | None = None) -> str:
    """Return the rounding of published results on the CVRPLIB instance of these names: CMT1, Golden_3, X-n101-k25.

    An explicit matrix is taken as it is.
    """
    if matrix is not None:
        return "round" if (matrix == np.rint(matrix)).all() else "exact"
    return "exact" if any(EXACT_SETS.match(name) for name in names) else "round"


@dataclass(frozen=True, eq=False)
class Problem:
    """One instance: n customers, one depot, any number of vehicles of one capacity."""

    name: str  # of the file, with a number if the file holds several instances; can serve as a file name
    locs: np.ndarray  # (n + 1, 2) float64 places in a plane, depot first; of a matrix, places that come near it
    demand: np.ndarray  # (n + 1,) int64, 0 at the depot
    capacity: int
    rounding: str  # of each distance, a key of ROUNDINGS
    best_known: float | None = None  # in the problem's own metric
    metric: str = "EUC_2D"  # a key of METRICS
    matrix: np.ndarray | None = None  # (n + 1, n + 1) float64 symmetric distances before rounding, where locs lack them
    limit: float = np.inf  # on a route's length and service times together
    service: float = 0.0  # time at each customer

    @property
    def rounded(self) -> bool:
        """Whether distances are whole numbers."""
        return self.rounding != "exact"

    @property
    def limited(self) -> bool:
        """Whether the length of a route is limited."""
        return self.limit < np.inf

    @property
    def customers(self) -> int:
        """The number of customers, n."""
        return len(self.locs) - 1


def distances(problem: Problem) -> np.ndarray:
    """Return the (n + 1, n + 1) float64 distances between the nodes in the problem's own metric."""
    nodes = np.arange(len(problem.locs))
    return distances_between(problem, nodes[:, None], nodes[None])


def distances_from(problem: Problem, node: int) -> np.ndarray:
    """Return the (n + 1,) float64 distances from a node in the problem's own metric."""
    return distances_between(problem, np.array([node]), np.arange(len(problem.locs)))


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


def cost_of(problem: Problem, routes: Sequence[Sequence[int]]) -> float:
    """Return the length of all routes, each from the depot and back to it, in the problem's own metric.

    Whether the routes are a solution is not checked here but by the validator.
    """
    path = np.array([0] + [node for route in routes for node in (*route, 0)])
    return float(distances_between(problem, path[1:], path[:-1]).sum())


def scaled(problem: Problem) -> np.ndarray:
    """Return (n + 1, 2) float32 coordinates in the unit square, on which the models were trained.

    Both axes are scaled by one factor, because a factor for each would change which route is the shortest. An exact
    problem that already lies in the unit square is not moved.
    """
    locs = problem.locs
    low, high = locs.min(0), locs.max(0)
    if problem.rounded or low.min() < 0 or high.max() > 1:
        extent = (high - low).max()
        locs = (locs - low) / (extent if extent > 0 else 1)
    return locs.astype(np.float32)


def to_instances(problems: Sequence[Problem], device: torch.device | str) -> Instances:
    """Return problems, all of one size, as the batch that the models take."""
    import torch

    from models.routing.environment import Instances

    sizes = sorted({problem.customers for problem in problems})
    assert len(sizes) == 1, f"one batch holds problems of one size, got sizes {sizes}"
    return Instances(
        torch.from_numpy(np.stack([scaled(problem) for problem in problems])).to(device),
        torch.from_numpy(np.stack([problem.demand for problem in problems])).float().to(device),
        torch.tensor([problem.capacity for problem in problems], dtype=torch.float32, device=device),
    )


def exact_problems(
    name: str, depot: np.ndarray, locs: np.ndarray, demand: np.ndarray, capacity: np.ndarray, num: int
) -> list[Problem]:
    """Return problems in the exact metric from depot (K, 2), locs (K, n, 2), demand (K, n) and capacity (K,).

    Their names end in numbers with as many digits as the last of `num` needs, so that their files sort in order.
    """
    locs = np.concatenate([depot[:, None], locs], 1).astype(np.float64)
    demand = np.pad(demand.astype(np.int64), ((0, 0), (1, 0)))
    digits = len(str(num - 1))
    return [
        Problem(f"{name}-{index:0{digits}d}", locs[index], demand[index], int(capacity[index]), rounding="exact")
        for index in range(len(locs))
    ]
