"""Search with a trained policy: a decoding strategy, repeated on the 8 symmetries of the square."""

from collections.abc import Iterator
from typing import Protocol

import torch
from torch import Tensor, nn

from models.routing.config import RoutingConfig
from models.routing.decoder import Cache
from models.routing.decodes import DECODES, Guide
from models.routing.environment import Instances, padded, tour_length
from models.routing.inputs import SearchSettings

SYMMETRIES = 8
MOST_SCORED = 2**20  # (tour, node) pairs at a time, about 300 bytes each; results change by rounding only


class TourBuilder(Protocol):
    """The part of a routing policy that a search needs."""

    config: RoutingConfig

    def encode(self, instances: Instances) -> Cache:
        """Compute the decoder's cache of the instances."""

    def build(self, cache: Cache, instances: Instances, num_tours: int, guide: Guide) -> Tensor:
        """Return tours (B, S, T)."""

    def parameters(self) -> Iterator[nn.Parameter]:
        """Yield the weights, whose device is the policy's."""


@torch.no_grad()
def best_built(
    policy: TourBuilder, instances: Instances, settings: SearchSettings, seed: int = 0, items: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Return the best tour found per instance: actions (B, 2 (N - 1)) int64, padded with the depot, and costs (B,).

    The noise of sampling depends on (seed, items[b], symmetry, sample) and not on the batch; `items` (B,) int64 numbers
    the instances, by default from 0 to B - 1. With `augment` the strategy is repeated for each of the 8 symmetries of
    the square (Kwon et al. 2020).
    """
    batch, num_nodes = instances.demand.shape
    device, most_steps = instances.locs.device, 2 * (num_nodes - 1)
    plan = DECODES[settings.decode](num_nodes - 1, settings.samples, settings.starts, seed)
    variants = SYMMETRIES if settings.augment else 1
    items = torch.arange(batch, device=device) if items is None else items.to(device)

    # The encoder compares all pairs of nodes of a row, hence the maximum.
    tours_at_once = max(1, MOST_SCORED // num_nodes)
    rows_at_once = max(1, MOST_SCORED // (num_nodes * max(num_nodes, plan.num_tours)))
    best = torch.full((batch * variants,), torch.inf, device=device)
    best_actions = torch.zeros(batch * variants, most_steps, dtype=torch.long, device=device)
    for rows in torch.arange(batch * variants, device=device).split(rows_at_once):
        owner, symmetry = rows // variants, rows % variants
        original = instances.rows(owner)
        turned = original._replace(locs=turn(original.locs, symmetry))
        cache = policy.encode(turned)
        for tours in torch.arange(plan.num_tours, device=device).split(tours_at_once):
            actions = policy.build(cache, turned, len(tours), plan.guide(items[owner] * SYMMETRIES + symmetry, tours))
            cost, place = tour_length(original, actions).min(1)
            found = padded(actions.take_along_dim(place[:, None, None], 1)[:, 0], most_steps)
            best_actions[rows] = found.where((cost < best[rows])[:, None], best_actions[rows])
            best[rows] = best[rows].minimum(cost)
    cost, place = best.view(batch, variants).min(1)
    return best_actions.view(batch, variants, most_steps).take_along_dim(place[:, None, None], 1)[:, 0], cost


def turn(locs: Tensor, symmetry: Tensor) -> Tensor:
    """Apply symmetries (B,) of the unit square, numbered 0 (the identity) to 7, to locations (B, N, 2) in it."""
    locs = torch.where(torch.stack([symmetry & 1, symmetry & 2], -1)[:, None].bool(), 1 - locs, locs)
    return torch.where((symmetry >= 4)[:, None, None], locs.flip(-1), locs)
