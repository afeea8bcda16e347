"""Efficient active search: learning about each instance while it is solved.

After Hottung, Kwon and Tierney 2022 (Efficient Active Search for Combinatorial Optimization Problems), variant EAS-Emb:
some of the encoder's output for an instance becomes parameters of that instance, trained to make its short tours
likelier and its long ones less likely. The paper's second term, which imitates the best tour so far, gained nothing
here. The network's weights stay fixed, so the instances of a batch do not affect one another.
"""

from typing import Protocol

import torch
from torch import Tensor

from models.routing.decoder import Cache
from models.routing.environment import Instances

OWN = ("query", "pointer_key")  # fields of a Cache that become parameters of the instance
RATE = 0.02  # learning rate of Adam, relative to the root mean square of each parameter


class Scorer(Protocol):
    """The part of a routing policy that an adaptation needs."""

    def log_prob(
        self, cache: Cache, instances: Instances, actions: Tensor, ends: Tensor | None = None, forced: bool = False
    ) -> Tensor:
        """Return log-probabilities (B, S) of tours (B, S, T)."""


class Adaptation:
    """Parameters of each instance in a batch, learnt from tours with forced first customers."""

    def __init__(self, policy: Scorer, instances: Instances, cache: Cache):
        self.policy, self.instances, self.cache = policy, instances, cache.detach()
        values = {name: getattr(self.cache, name).float() for name in OWN}
        self.scale = {name: value.square().mean((1, 2), keepdim=True).sqrt() for name, value in values.items()}
        self.moved = {name: torch.zeros_like(value, requires_grad=True) for name, value in values.items()}
        self.optimizer = torch.optim.Adam(self.moved.values(), RATE)

    def adapted(self) -> Cache:
        """Return the cache with the learnt parameters in it."""
        found = {}
        for name in OWN:
            value = getattr(self.cache, name)
            found[name] = (value + self.scale[name] * self.moved[name]).to(value.dtype)
        return self.cache._replace(**found)

    def learn(self, actions: Tensor, cost: Tensor) -> Cache:
        """Make cheap tours (B, S, T) of cost (B, S) likelier by one step; return the new cache."""
        advantage = (cost - cost.mean(1, keepdim=True)) / cost.std(1, correction=0, keepdim=True).clamp_min(1e-6)
        with torch.enable_grad():
            log_prob = self.policy.log_prob(self.adapted(), self.instances, actions, forced=True)
            loss = (advantage * log_prob).mean(1).sum()
        moved = list(self.moved.values())
        for value, gradient in zip(moved, torch.autograd.grad(loss, moved), strict=True):
            value.grad = gradient
        self.optimizer.step()
        return self.adapted().detach()
