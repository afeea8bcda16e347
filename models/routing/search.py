"""Tours from a trained policy: greedily, by sampling, or from many starts, on the 8 symmetries of the square."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, get_args

import torch
from torch import Tensor
from torch.nn import functional as F

from common.random import derive_key, uniform
from models.routing.environment import DEPOT, Instances, routes_of, tour_length

if TYPE_CHECKING:
    from models.routing.policy import RoutingPolicy

Decode = Literal["greedy", "sampling", "multistart"]
SYMMETRIES = 8
MOST_SAMPLES = 2**20  # per instance and symmetry: further samples would share the noise of another instance
MOST_CAPACITY = 2**24  # whole numbers up to here are exact in float32


@torch.no_grad()
def search(
    policy: "RoutingPolicy",
    instances: Instances,
    decode: Decode = "multistart",
    *,
    samples: int = 128,
    starts: int | None = None,
    augment: bool = True,
    seed: int = 0,
    items: Tensor | None = None,
    max_scores: int = 2**20,
) -> tuple[Tensor, Tensor]:
    """The best tour found per instance: actions (B, T) int64, padded with the depot, and cost (B,) float32.

    greedy      one tour, always the likeliest node
    sampling    `samples` tours; their noise depends on (seed, items[b], symmetry, sample) and not on how instances
                are batched. `items` (B,) int64 numbers the instances, 0 to B - 1 without it
    multistart  greedy tours through customers 1 to `starts` first (POMO, Kwon et al. 2020); all without it

    With `augment` all that is done for each of the 8 symmetries of the square, and the best is kept (ibid.). Costs are
    of the original coordinates. `max_scores` bounds memory and, but for rounding, changes no result: so many (tour,
    node) pairs are scored at a time, at about 300 bytes each with 8 heads. Raises ValueError for settings that do not
    fit.
    """
    batch, num_nodes = instances.demand.shape
    device, most_steps = instances.locs.device, 2 * (num_nodes - 1)
    tours = _num_tours(decode, samples, starts, num_nodes - 1)
    variants = SYMMETRIES if augment else 1
    items = torch.arange(batch, device=device) if items is None else items.to(device)
    key = derive_key(seed, "search")

    # A row is one instance under one symmetry. Its encoder compares all pairs of nodes, hence the maximum.
    rows_at_once = max(1, max_scores // (num_nodes * max(num_nodes, tours)))
    tours_at_once = max(1, max_scores // num_nodes)
    best = torch.full((batch * variants,), torch.inf, device=device)
    best_actions = torch.zeros(batch * variants, most_steps, dtype=torch.long, device=device)
    for rows in torch.arange(batch * variants, device=device).split(rows_at_once):
        owner, symmetry = rows // variants, rows % variants
        original = Instances(*(tensor[owner] for tensor in instances))
        turned = original._replace(locs=turn(original.locs, symmetry))
        cache = policy.encode(turned)
        for tour in torch.arange(tours, device=device).split(tours_at_once):
            noise = None
            if decode == "sampling":
                streams = (items[owner] * SYMMETRIES + symmetry)[:, None] * MOST_SAMPLES + tour
                noise = uniform(key, streams.flatten(), most_steps).view(*streams.shape, most_steps)
            first = tour + 1 if decode == "multistart" else None
            actions, _ = policy.build(cache, turned, len(tour), noise, first)
            cost, index = tour_length(original.locs, actions).min(1)
            actions = actions.gather(1, index[:, None, None].expand(-1, 1, actions.shape[2])).squeeze(1)
            actions = F.pad(actions, (0, most_steps - actions.shape[1]), value=DEPOT)
            better = cost < best[rows]
            best[rows] = torch.where(better, cost, best[rows])
            best_actions[rows] = torch.where(better[:, None], actions, best_actions[rows])
    cost, index = best.view(batch, variants).min(1)
    actions = best_actions.view(batch, variants, most_steps)[torch.arange(batch, device=device), index]
    used = (actions != DEPOT).any(0).nonzero()
    return actions[:, : int(used.max()) + 1 if len(used) else 1], cost


def turn(locs: Tensor, symmetry: Tensor) -> Tensor:
    """Locations (B, N, 2) in the unit square under symmetries (B,) of it, numbered 0 (none) to 7."""
    mirrored = torch.stack([symmetry & 1, symmetry & 2], -1)[:, None].bool()
    locs = torch.where(mirrored, 1 - locs, locs)
    return torch.where((symmetry >= 4)[:, None, None], locs.flip(-1), locs)


def solve(
    policy: "RoutingPolicy", locs: Any, demand: Any, capacity: int, **settings: Any
) -> tuple[list[list[int]], float]:
    """`RoutingPolicy.solve`, which see."""
    locs, demand = _checked(locs, demand, capacity)
    if len(locs) == 1:
        return [], 0.0
    extent = (locs.max(0).values - locs.min(0).values).max().item()
    scaled = (locs - locs.min(0).values) / (extent or 1.0)  # one factor for both axes keeps the shape
    instances = Instances(scaled.float()[None], demand.float()[None], torch.tensor([float(capacity)]))
    device = next(policy.parameters()).device
    actions, _ = search(policy, Instances(*(tensor.to(device) for tensor in instances)), **settings)
    routes = routes_of(actions[0])
    if sorted(node for route in routes for node in route) != list(range(1, len(locs))):
        raise ValueError(
            "the policy leaves customers out, as one with weights that are not finite does; train it again"
        )
    return routes, sum(_length(locs, [DEPOT, *route, DEPOT]) for route in routes)


def _num_tours(decode: str, samples: int, starts: int | None, num_customers: int) -> int:
    """Tours per instance and symmetry; ValueError for settings that do not fit."""
    if decode not in get_args(Decode):
        raise ValueError(f"decode is {decode!r}; known: {', '.join(get_args(Decode))}")
    if starts is not None and decode != "multistart":
        raise ValueError(f"starts is {starts}, but decode is {decode!r}; starts need decode 'multistart'")
    if starts is not None and not 1 <= starts <= num_customers:
        raise ValueError(f"starts is {starts}; it must be from 1 to {num_customers}, the number of customers")
    if not 1 <= samples <= MOST_SAMPLES:
        raise ValueError(f"samples is {samples}; it must be from 1 to {MOST_SAMPLES}")
    return {"greedy": 1, "sampling": samples, "multistart": starts or num_customers}[decode]


def _checked(locs: Any, demand: Any, capacity: int) -> tuple[Tensor, Tensor]:
    """Locations (N, 2) and demands (N,) as float64; ValueError for what is no instance."""
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
        (demand > capacity, f"is more than a vehicle's capacity of {most:g}; split the customer in several"),
    ]:
        if wrong.any():
            i = int(wrong.nonzero()[0])
            raise ValueError(f"demand[{i}] is {demand[i].item():g}; it {must}")
    return locs, demand


def _numbers(values: Any, name: str) -> Tensor:
    """A finite float64 tensor on the CPU from lists, arrays or tensors."""
    try:
        tensor = torch.as_tensor(values, dtype=torch.float64, device="cpu")
    except (TypeError, ValueError, RuntimeError) as error:
        raise ValueError(f"{name} must be numbers: {error}") from error
    if not tensor.isfinite().all():
        raise ValueError(f"{name} has values that are not finite numbers")
    return tensor


def _length(locs: Tensor, path: Sequence[int]) -> float:
    """Length of a path over nodes."""
    steps = locs[list(path)].diff(dim=0)
    return steps.norm(dim=1).sum().item()
