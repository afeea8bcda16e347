"""Search with a trained policy: a decoding strategy, repeated on the 8 symmetries of the square."""

from collections.abc import Iterator
from typing import Protocol

import torch
from torch import Tensor, nn

from models.routing.config import RoutingConfig
from models.routing.decoder import Cache
from models.routing.decodes import DECODES
from models.routing.environment import DEPOT, Instances, tour_length

SYMMETRIES = 8
SAME = 1e-6  # relative difference of float32 costs below which two tours count as the same


class TourBuilder(Protocol):
    """The part of a routing policy that a search needs."""

    config: RoutingConfig

    def encode(self, instances: Instances) -> Cache:
        """Return what all queries on the instances share."""

    def build(
        self,
        cache: Cache,
        instances: Instances,
        num_tours: int,
        uniform: Tensor | None = None,
        first: Tensor | None = None,
    ) -> Tensor:
        """Return tours (B, S, T)."""

    def parameters(self) -> Iterator[nn.Parameter]:
        """Yield the weights, which say what device it is on."""


@torch.no_grad()
def shortlist(
    policy: TourBuilder,
    instances: Instances,
    decode: str = "multistart",
    *,
    keep: int = 1,
    samples: int = 128,
    starts: int | None = None,
    augment: bool = True,
    seed: int = 0,
    items: Tensor | None = None,
    max_scores: int = 2**20,
) -> tuple[Tensor, Tensor]:
    """Return the `keep` best tours found per instance, best first: actions (B, K, T) int64, padded with the depot.

    Their costs (B, K) float32 come second. Tours of equal cost count as one; if fewer than `keep` remain, the best is
    repeated. `decode` is a key of DECODES; `samples` and `starts` are described there. Without `starts`, multistart
    builds one tour per customer, up to MOST_STARTS. The noise of sampling depends on (seed, items[b], symmetry, sample)
    and not on the batch; `items` (B,) int64 numbers the instances, by default from 0 to B - 1.

    With `augment` the strategy is repeated for each of the 8 symmetries of the square (Kwon et al. 2020). `max_scores`
    bounds memory: that many (tour, node) pairs are scored at a time, about 300 bytes each; results change by rounding
    only.
    """
    batch, num_nodes = instances.demand.shape
    device, most_steps = instances.locs.device, 2 * (num_nodes - 1)
    plan = DECODES[decode](num_nodes - 1, samples, starts, seed)
    variants = SYMMETRIES if augment else 1
    items = torch.arange(batch, device=device) if items is None else items.to(device)

    # The encoder compares all pairs of nodes of a row, hence the maximum.
    tours_at_once = max(1, max_scores // num_nodes)
    rows_at_once = max(1, max_scores // (num_nodes * max(num_nodes, plan.num_tours)))
    best = torch.full((batch * variants, keep), torch.inf, device=device)
    best_actions = torch.zeros(batch * variants, keep, most_steps, dtype=torch.long, device=device)
    for rows in torch.arange(batch * variants, device=device).split(rows_at_once):
        owner, symmetry = rows // variants, rows % variants
        original = instances.rows(owner)
        turned = original._replace(locs=turn(original.locs, symmetry))
        cache = policy.encode(turned)
        for tours in torch.arange(plan.num_tours, device=device).split(tours_at_once):
            guidance = plan.guide(items[owner] * SYMMETRIES + symmetry, tours)
            actions = policy.build(cache, turned, len(tours), **guidance)
            costs = tour_length(original.locs, actions, original.rules)
            best[rows], index = _shortest(torch.cat([best[rows], costs], 1), keep)
            padded = nn.functional.pad(actions, (0, most_steps - actions.shape[2]), value=DEPOT)
            best_actions[rows] = _rows(torch.cat([best_actions[rows], padded], 1), index)
    cost, index = _shortest(best.view(batch, -1), keep)
    actions = _rows(best_actions.view(batch, -1, most_steps), index)
    actions = torch.where(cost.isinf()[..., None], actions[:, :1], actions)
    cost = torch.where(cost.isinf(), cost[:, :1], cost)
    used = (actions != DEPOT).any(0).any(0).nonzero()
    return actions[..., : int(used.max()) + 1 if len(used) else 1], cost


def _shortest(cost: Tensor, keep: int) -> tuple[Tensor, Tensor]:
    """Return the `keep` least costs (B, K) in rising order, infinity in place of repeats, and their indices."""
    ordered, order = cost.sort(dim=1, stable=True)
    if keep > 1:
        again = ordered[:, 1:] <= ordered[:, :-1] * (1 + SAME)
        ordered[:, 1:].masked_fill_(again, torch.inf)
        ordered, second = ordered.sort(dim=1, stable=True)
        order = order.gather(1, second)
    return ordered[:, :keep], order[:, :keep]


def _rows(actions: Tensor, index: Tensor) -> Tensor:
    """Return rows `index` (B, K) of actions (B, S, T)."""
    return actions.gather(1, index[..., None].expand(-1, -1, actions.shape[2]))


def turn(locs: Tensor, symmetry: Tensor) -> Tensor:
    """Apply symmetries (B,) of the unit square, numbered 0 (the identity) to 7, to locations (B, N, 2) in it."""
    mirrored = torch.stack([symmetry & 1, symmetry & 2], -1)[:, None].bool()
    locs = torch.where(mirrored, 1 - locs, locs)
    return torch.where((symmetry >= 4)[:, None, None], locs.flip(-1), locs)
