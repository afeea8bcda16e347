"""Learning about single instances while they are solved: efficient active search.

After Hottung, Kwon and Tierney 2022 (Efficient Active Search for Combinatorial Optimization Problems), variant EAS-Emb:
some of what the encoder has computed for an instance becomes its own parameters, which make its short tours likelier
and its long ones less likely; the paper's further term, which imitates the best tour so far, gained nothing here. The
network's weights stay as they are, so instances of a batch do not touch one another.
"""

from typing import Protocol

import torch
from torch import Tensor

from models.routing.decoder import Cache
from models.routing.environment import Instances

OWN = ("query", "pointer_key")  # of a Cache: what becomes an instance's own
RATE = 0.02  # of Adam, as a share of the root mean square of the numbers that it moves


class Scorer(Protocol):
    """The method of a routing policy that an adaptation calls."""

    def log_prob(
        self,
        cache: Cache,
        instances: Instances,
        actions: Tensor,
        ends: Tensor | None = None,
        forced: bool = False,
    ) -> Tensor: ...


class Adaptation:
    """The parameters of a batch of instances, learnt from tours whose first customers were forced."""

    def __init__(self, policy: Scorer, instances: Instances, cache: Cache):
        self.policy, self.instances, self.cache = policy, instances, cache.detach()
        values = {name: getattr(self.cache, name).float() for name in OWN}
        self.scale = {name: value.square().mean((1, 2), keepdim=True).sqrt() for name, value in values.items()}
        self.moved = {name: torch.zeros_like(value, requires_grad=True) for name, value in values.items()}
        self.optimizer = torch.optim.Adam(self.moved.values(), RATE)

    def adapted(self) -> Cache:
        """Return the cache with the instances' own numbers in it."""
        found = {}
        for name in OWN:
            value = getattr(self.cache, name)
            found[name] = (value + self.scale[name] * self.moved[name]).to(value.dtype)
        return self.cache._replace(**found)

    def learn(self, actions: Tensor, cost: Tensor) -> Cache:
        """Return the cache after a step away from tours (B, S, T) that cost (B, S) much, and towards the others."""
        advantage = (cost - cost.mean(1, keepdim=True)) / cost.std(1, correction=0, keepdim=True).clamp_min(1e-6)
        with torch.enable_grad():
            log_prob = self.policy.log_prob(self.adapted(), self.instances, actions, forced=True)
            loss = (advantage * log_prob).mean(1).sum()
        moved = list(self.moved.values())
        for value, gradient in zip(moved, torch.autograd.grad(loss, moved), strict=True):
            value.grad = gradient
        self.optimizer.step()
        return self.adapted().detach()
