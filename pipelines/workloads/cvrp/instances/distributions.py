"""Distributions of instances: how locations, demands and, beyond the plain CVRP, rules are made from uniform numbers.

A new distribution is one entry of DISTRIBUTIONS, from which configs take their choices, limits and help; new rules are
one of PROBLEMS. torch is imported only when needed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from torch import Tensor

CAPACITY = {10: 20, 20: 30, 50: 40, 100: 50}  # of a vehicle, by number of customers (Kool et al. 2019)
AVERAGE_ROUTE = (3, 6, 25)  # customers on it, least, likeliest and most, for drawn capacities (Uchoa et al. 2017)
MOST_CLUSTERS = 7
CLUSTER_SPREAD = 0.07  # standard deviation around the seed of a cluster, as a share of the side of the square


@dataclass(frozen=True)
class Distribution:
    """A distribution of instances in the unit square; by default demands are uniform whole numbers from 1."""

    description: str
    largest_demand: int
    locations: Callable[[Tensor, Tensor], Tensor]  # uniform numbers (B, N, 2) and further ones (B, F) -> (B, N, 2)
    further_numbers: Callable[[int], int] = lambda num_nodes: 0  # N -> F
    demands: Callable[[Tensor, Tensor, Tensor], Tensor] | None = None  # locations, (B, N) and (B, F) numbers -> (B, N)
    own_capacity: bool = False  # drawn so that average routes have the length of AVERAGE_ROUTE

    def numbers(self, num_nodes: int) -> int:
        """Return the number of uniform numbers for an instance."""
        return 3 * num_nodes + self.further_numbers(num_nodes)

    def instances(self, numbers: Tensor, num_nodes: int) -> tuple[Tensor, Tensor, Tensor]:
        """Return locations (B, N, 2), demands (B, N) and capacities (B,), depot first, from uniform numbers in [0, 1).

        Capacities count only if they are the distribution's own.
        """
        places, shares, further = numbers.tensor_split((2 * num_nodes, 3 * num_nodes), 1)
        locs = self.locations(places.reshape(-1, num_nodes, 2), further)
        demand = self.demands(locs, shares, further) if self.demands else (shares * self.largest_demand).floor() + 1
        demand[:, 0] = 0
        return locs, demand, _capacity(demand, shares[:, 0])


def _capacity(demand: Tensor, share: Tensor) -> Tensor:
    """Return capacities (B,) for average routes of triangularly distributed length, drawn by `share` (B,)."""
    least, mode, most = AVERAGE_ROUTE
    width = most - least
    rising = least + (share * width * (mode - least)).sqrt()
    falling = most - ((1 - share) * width * (most - mode)).sqrt()
    route = rising.where(share * width < mode - least, falling)
    return (route * demand.sum(1) / (demand.shape[1] - 1)).ceil().maximum(demand.max(1).values)


def clustered_locations(places: Tensor, further: Tensor) -> Tensor:
    """Return a uniform depot and customers scattered around 3 to 7 seeds of their instance.

    The scatter is normal (Box and Muller 1958); customers that fall outside the square are reflected into it.
    """
    radius = CLUSTER_SPREAD * (-2 * (-places[..., 0]).log1p()).sqrt()
    point = _around_seeds(further[:, : 2 * MOST_CLUSTERS + 1], further[:, -places.shape[1] :], radius, places[..., 1])
    point[:, 0] = places[:, 0]
    return point


def _around_seeds(seeds: Tensor, choice: Tensor, radius: Tensor, turn: Tensor) -> Tensor:
    """Return points (B, N, 2) around 3 or more seeds, drawn by the rows of `seeds` (B, 2 S + 1): places and number.

    `choice` (B, N) draws the seed of each point, `radius` (B, N) is its distance and `turn` (B, N) its direction.
    """
    import torch

    most = seeds.shape[1] // 2
    which = (choice * (3 + (seeds[:, -1:] * (most - 2)).floor())).floor().long()
    centre = seeds[:, :-1].reshape(-1, most, 2).gather(1, which[..., None].expand(-1, -1, 2))
    angle = 2 * torch.pi * turn
    point = (centre + radius[..., None] * torch.stack([angle.cos(), angle.sin()], -1)).abs()
    # Points far outside, from the tails of a distribution, end on the border.
    return torch.where(point > 1, 2 - point, point).clamp(0, 1)


SEEDS = 8  # at most, in an instance of X
DECAY = 0.04  # of the density around a seed of X, as a share of the side of the square


def x_locations(places: Tensor, further: Tensor) -> Tensor:
    """Return a depot in the centre, in a corner or anywhere, and customers anywhere, around seeds, or half of each.

    The density falls exponentially around a seed, as in Uchoa et al. 2017.
    """
    num_nodes = places.shape[1]
    depot_kind, kind = (further[:, 0] * 3).floor()[:, None], (further[:, 1] * 3).floor()[:, None]
    seeds, choice, shift, member = further[:, 4:].split([2 * SEEDS + 1, num_nodes, num_nodes, num_nodes], 1)
    radius = -DECAY * ((-places[..., 0]).log1p() + (-shift).log1p())
    around = _around_seeds(seeds, choice, radius, places[..., 1])
    points = around.where(((kind == 1) | ((kind == 2) & (member < 0.5)))[..., None], places)
    points[:, 0] = places[:, 0].where(depot_kind != 0, 0.5).where(depot_kind != 1, 0)
    return points


# Of demands in X, by kind: the last two kinds are mixtures with LARGER ones.
RANGES, LARGER = ((1, 1), (1, 10), (5, 10), (1, 100), (50, 100), (1, 50), (1, 10)), ((51, 100), (50, 100))


def x_demands(locs: Tensor, shares: Tensor, further: Tensor) -> Tensor:
    """Return demands of one of five ranges, or by quadrant (1 to 50, 51 to 100), or many small and few large."""
    import torch

    kind = (further[:, 2:3] * len(RANGES)).floor().long()
    odd = (locs[..., 0] < 0.5) != (locs[..., 1] < 0.5)
    few = further[:, -locs.shape[1] :] > 0.7 + 0.25 * further[:, 3:4]  # 70 to 95 % are small
    large = ((kind == 5) & odd) | ((kind == 6) & few)
    ranges = torch.tensor((*RANGES, *LARGER), device=locs.device, dtype=locs.dtype)
    low, high = ranges[kind + len(LARGER) * large].unbind(-1)
    return low + (shares * (high - low + 1)).floor()


DISTRIBUTIONS = {
    "uniform": Distribution("Kool et al. 2019", 9, lambda places, further: places),
    "grid": Distribution("coordinates k/100, demands 1 to 10", 10, lambda places, _: (places * 101).floor() / 100),
    "clustered": Distribution(
        "customers around 3 to 7 seeds",
        9,
        clustered_locations,
        # The seeds, their number, and 2 N numbers. Only the last N are used, but fewer would change the instances.
        further_numbers=lambda num_nodes: 2 * MOST_CLUSTERS + 1 + 2 * num_nodes,
    ),
    "x": Distribution(
        "depots, customers, demands and capacities vary as in set X (Uchoa et al. 2017)",
        100,
        x_locations,
        further_numbers=lambda num_nodes: 4 + 2 * SEEDS + 1 + 3 * num_nodes,
        demands=x_demands,
        own_capacity=True,
    ),
}

HOURS = 4.6  # of the depot
SERVICE, WINDOW = (0.15, 0.18), (0.18, 0.20)  # least and most
LONGEST = 3.0  # largest limit on routes; the smallest allows a route to the farthest customer alone
SPARE = 0.01  # least slack of such a route


class Drawn(NamedTuple):
    """The probabilities that an instance has each rule.

    Windows, services and limits are those of Liu et al. (2024) and Berto et al. (2024, RouteFinder), in the unit
    square, where a unit of distance takes one of time.
    """

    windows: float = 0
    length: float = 0
    duration: float = 0
    open_routes: float = 0

    @property
    def reads(self) -> dict[str, bool]:
        """What a policy reads beyond the plain CVRP, as RoutingConfig names it."""
        return {"rules": any(self), "one_way": False}

    def numbers(self, num_nodes: int) -> int:
        """Return the number of uniform numbers for an instance."""
        return 3 * num_nodes + 2 * len(self) if any(self) else 0

    def fields(self, locs: Tensor, numbers: Tensor) -> dict[str, Tensor]:
        """Return the rules (B, N, 6), if any, of instances at `locs` (B, N, 2), from uniform numbers.

        Every customer can be served by a route alone.
        """
        import torch

        if not any(self):
            return {}
        service, width, start, limits, coins = numbers.split([locs.shape[1]] * 3 + [len(self)] * 2, 1)
        windows, length, duration, opened = (coins < torch.tensor(self, device=coins.device))[..., None].unbind(1)
        away = (locs - locs[:, :1]).norm(dim=-1)
        service = SERVICE[0] + (SERVICE[1] - SERVICE[0]) * service
        width = WINDOW[0] + (WINDOW[1] - WINDOW[0]) * width
        opens = away + (HOURS - service - width - 2 * away) * start
        most = LONGEST + (LONGEST - 2 * away.max(1, keepdim=True).values - SPARE) * (limits[:, :2] - 1)
        timed = (windows | duration).expand_as(away)
        opening, closing = opens.where(windows, 0), (opens + width).where(windows, torch.inf)
        longest = most[:, :1].where(length, torch.inf).expand_as(away)
        limit = (most[:, 1:] + SERVICE[1]).where(duration, torch.inf).expand_as(away)
        service, opened = service.where(timed, 0), opened.float().expand_as(away)
        found = torch.stack([opening, closing, service, longest, limit, opened], -1)
        found[:, 0, 0], found[:, 0, 2] = 0, 0
        found[:, 0, 1:2] = torch.where(windows, HOURS, torch.inf)
        return {"rules": found}


@dataclass(frozen=True)
class Roads:
    """Roads between places in the plane, with different lengths there and back.

    Each direction of a pair of places draws a factor of the straight line; then every way is the shortest, also over
    other places. Independent entries closed by shortest paths are the class tmat of Cirasella et al. (2001), on which
    MatNet (Kwon et al. 2021) learnt; here they are factors, so that near places stay near, as in RRNCO's cities.
    """

    longer: float = 0.6  # largest excess of a road over the straight line, as a share
    closed: float = 0.2  # share of directions that are closed
    detour: float = 3.0  # factor of these

    @property
    def reads(self) -> dict[str, bool]:
        """What a policy reads beyond the plain CVRP, as RoutingConfig names it."""
        return {"rules": False, "one_way": True}

    def numbers(self, num_nodes: int) -> int:
        """Return the number of uniform numbers for an instance."""
        return num_nodes**2

    def fields(self, locs: Tensor, numbers: Tensor) -> dict[str, Tensor]:
        """Return the matrix (B, N, N) of instances at `locs` (B, N, 2), from uniform numbers."""
        share = numbers.unflatten(1, (locs.shape[1], -1))
        factor = 1 + self.longer * (share - self.closed) / (1 - self.closed)
        ways = factor.where(share >= self.closed, self.detour) * (locs[:, :, None] - locs[:, None]).norm(dim=-1)
        for over in range(locs.shape[1]):  # Floyd 1962, Warshall 1962
            ways = ways.minimum(ways[:, :, over, None] + ways[:, None, over])
        return {"matrix": ways}


PROBLEMS: dict[str, Drawn | Roads] = {
    "cvrp": Drawn(),
    "vrptw": Drawn(windows=1),
    "vrpl": Drawn(length=1),
    "ovrp": Drawn(open_routes=1),
    "mixed": Drawn(0.5, 0.5, 0.5, 0.5),
    "acvrp": Roads(),
}
