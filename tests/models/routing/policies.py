"""Small policies, instances and noise for the tests of routing, and an independent check of tours."""

import itertools
import math

import pytest
import torch

from common.random import uniform
from models.routing.config import RoutingConfig
from models.routing.environment import Instances
from models.routing.inputs import SearchSettings
from models.routing.policy import RoutingPolicy
from models.routing.search import best_built

EVERY_ENCODER = [("gat", 0), ("gat", 4), ("gt", 0), ("dgt", 0)]  # kind, neighbors


def make_policy(kind: str = "dgt", neighbors: int = 0, **sizes: int) -> RoutingPolicy:
    """A small policy, every parameter moved away from its initial value: some start at 0 and would hide mistakes."""
    torch.manual_seed(1)
    policy = RoutingPolicy(RoutingConfig(kind, **{"width": 16, "heads": 2, "layers": 2, **sizes}, neighbors=neighbors))
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return policy


def make_instances(batch: int, customers: int, capacity: int = 20, key: int = 5) -> Instances:
    numbers = uniform(key, torch.arange(batch), 3 * (customers + 1))
    locs, demand = numbers.split([2 * (customers + 1), customers + 1], 1)
    demand = 1 + (9 * demand).floor()
    demand[:, 0] = 0
    return Instances(locs.reshape(batch, -1, 2).clone(), demand, torch.full((batch,), float(capacity)))


def make_noise(batch: int, tours: int, customers: int) -> torch.Tensor:
    return uniform(9, torch.arange(batch), tours * 2 * customers).view(batch, tours, 2 * customers)


def search(policy, instances: Instances, decode: str = "multistart", **settings) -> tuple[torch.Tensor, torch.Tensor]:
    """The best tour of each instance: actions (B, T) and cost (B,)."""
    others = {name: settings.pop(name) for name in ("seed", "items") if name in settings}
    return best_built(policy, instances, SearchSettings(decode=decode, **{"augment": True, **settings}), **others)


def length_of(locs, routes: list[list[int]]) -> float:
    """Length of routes, by nothing but the definition."""
    points = [tuple(map(float, point)) for point in locs]
    paths = [[0, *route, 0] for route in routes]
    return sum(math.dist(points[a], points[b]) for path in paths for a, b in itertools.pairwise(path))


def assert_valid(instances: Instances, actions: torch.Tensor, cost: torch.Tensor) -> None:
    """Actions (B, S, T) serve every customer once, within the capacity, at the cost (B, S) that is claimed."""
    for b, tours in enumerate(actions.tolist()):
        for s, tour in enumerate(tours):
            routes = [list(group) for depot, group in itertools.groupby(tour, lambda node: node == 0) if not depot]
            served = sorted(node for route in routes for node in route)
            assert served == list(range(1, instances.demand.shape[1]))
            for route in routes:
                assert sum(int(instances.demand[b, node]) for node in route) <= int(instances.capacity[b])
            assert cost[b, s].item() == pytest.approx(length_of(instances.locs[b].tolist(), routes), rel=1e-5)
