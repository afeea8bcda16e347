"""Distributions of instances: how locations and demands are made from uniform numbers.

A new distribution is one entry of DISTRIBUTIONS; configs take their choices, limits and help from that table, before
torch is imported.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

CAPACITY = {10: 20, 20: 30, 50: 40, 100: 50}  # of a vehicle, by number of customers (Kool et al. 2019)
MOST_CLUSTERS = 7
CLUSTER_SPREAD = 0.07  # standard deviation around the seed of a cluster, as a share of the side of the square


@dataclass(frozen=True)
class Distribution:
    """One distribution of instances in the unit square; demands are uniform whole numbers from 1."""

    description: str
    largest_demand: int
    locations: Callable[[Tensor, Tensor], Tensor]  # uniform numbers (B, N, 2) and further ones (B, F) -> (B, N, 2)
    further_numbers: Callable[[int], int] = lambda num_nodes: 0  # N -> F

    def numbers(self, num_nodes: int) -> int:
        """Return how many uniform numbers an instance is made from."""
        return 3 * num_nodes + self.further_numbers(num_nodes)

    def instances(self, numbers: Tensor, num_nodes: int) -> tuple[Tensor, Tensor]:
        """Return locations (B, N, 2) and demands (B, N), depot first, from uniform numbers in [0, 1)."""
        places, shares, further = numbers.tensor_split((2 * num_nodes, 3 * num_nodes), 1)
        demand = (shares * self.largest_demand).floor() + 1
        demand[:, 0] = 0
        return self.locations(places.reshape(-1, num_nodes, 2), further), demand


def uniform_locations(places: Tensor, further: Tensor) -> Tensor:
    """Return uniform locations (Kool et al. 2019)."""
    return places


def grid_locations(places: Tensor, further: Tensor) -> Tensor:
    """Return locations on the grid k/100 with k from 0 to 100."""
    return (places * 101).floor() / 100


def clustered_locations(places: Tensor, further: Tensor) -> Tensor:
    """Return a uniform depot and customers scattered around 3 to 7 seeds of their instance.

    The scatter is normal (Box and Muller 1958); customers that fall outside the square are reflected into it.
    """
    import torch

    batch, num_nodes, _ = places.shape
    seeds = further[:, : 2 * MOST_CLUSTERS].reshape(batch, MOST_CLUSTERS, 2)
    clusters = 3 + (further[:, 2 * MOST_CLUSTERS, None] * (MOST_CLUSTERS - 2)).floor()
    choice = (further[:, -num_nodes:] * clusters).floor().long()
    centre = seeds.gather(1, choice[..., None].expand(-1, -1, 2))
    radius = CLUSTER_SPREAD * (-2 * torch.log1p(-places[..., 0])).sqrt()
    angle = 2 * torch.pi * places[..., 1]
    point = centre + radius[..., None] * torch.stack([angle.cos(), angle.sin()], -1)
    point = point.abs()
    point = torch.where(point > 1, 2 - point, point)
    return torch.cat([places[:, :1], point[:, 1:]], 1)


DISTRIBUTIONS = {
    "uniform": Distribution("Kool et al. 2019", 9, uniform_locations),
    "grid": Distribution("coordinates k/100, demands 1 to 10", 10, grid_locations),
    "clustered": Distribution(
        "customers around 3 to 7 seeds",
        9,
        clustered_locations,
        # The seeds, their number, and 2 N numbers of which only the last N are used: fewer would change the instances.
        further_numbers=lambda num_nodes: 2 * MOST_CLUSTERS + 1 + 2 * num_nodes,
    ),
}
