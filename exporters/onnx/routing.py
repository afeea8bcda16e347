"""A routing policy as two programs: one that reads an instance, and one that scores the next nodes of its tours.

Shapes as in models/routing/environment.py: B instances, N nodes, Q tours of an instance.
"""

import torch
from torch import Tensor

from exporters.onnx import Artifact, Part, Program, examples
from models.routing.decoder import Cache, PointerDecoder
from models.routing.environment import Instances, State
from models.routing.policy import RoutingPolicy

B, BN, BQ = {0: "instances"}, {0: "instances", 1: "nodes"}, {0: "instances", 1: "tours"}  # axes whose sizes vary
INSTANCE = {"locs": BN, "demand": BN, "capacity": B}
READ = {"query": {**B, 2: "nodes"}, "key": {**B, 2: "nodes"}, "value": {**B, 3: "nodes"}}
CACHE = {**READ, "pointer_key": BN, "distance": {**BN, 2: "nodes"}}
STATE = {"node": BQ, "load": BQ, "waiting": {**BN, 2: "tours"}}


class Encoder(Part[RoutingPolicy]):
    """From instances to the decoder's cache."""

    def forward(self, locs: Tensor, demand: Tensor, capacity: Tensor) -> tuple[Tensor, ...]:
        """Return the tensors of `Cache`."""
        return tuple(self.model.encode(Instances(locs, demand, capacity)))


class Step(Part[PointerDecoder]):
    """From the decoder's cache and the state of the tours to the logits (B, N, Q) of the next nodes."""

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        pointer_key: Tensor,
        distance: Tensor,
        demand: Tensor,
        capacity: Tensor,
        node: Tensor,
        load: Tensor,
        waiting: Tensor,
    ) -> Tensor:
        """Return the logits of the next nodes."""
        instances = Instances(distance, demand, capacity)  # the decoder reads no locations
        cache = Cache(query, key, value, pointer_key, distance)
        logits: Tensor = self.model(cache, instances, State(node, load, waiting))
        return logits


def describe(model: RoutingPolicy) -> Artifact:
    """Return the programs of a policy on complete graphs."""
    if model.config.rules or model.config.one_way:
        what = "one-way roads" if model.config.one_way else "windows, limits and open routes"
        raise ValueError(f"its programs would not read {what}; give a policy of data.problem=cvrp")
    if model.config.neighbors:
        sparse = f"its encoder reads sparse graphs (neighbors={model.config.neighbors})"
        raise ValueError(f"{sparse}, which ONNX has no operators for; give a policy with model.neighbors=0")

    def state(number: int) -> tuple[Tensor, ...]:
        locs, demand, capacity = instance(number)
        generator = torch.Generator().manual_seed(number)
        batch, nodes, tours = *demand.shape, 3 + number % 7
        node = torch.randint(nodes, (batch, tours), generator=generator)
        waiting = torch.rand(batch, nodes, tours, generator=generator) < 0.6
        waiting.scatter_(1, node[:, None], False)
        load = torch.rand(batch, tours, generator=generator) * capacity[:, None]
        load = torch.where(node == 0, capacity[:, None], load.floor())
        with torch.no_grad():
            return (*model.encode(Instances(locs, demand, capacity)), demand, capacity, node, load, waiting)

    known = {name: INSTANCE[name] for name in ("demand", "capacity")}
    return Artifact(
        programs=[
            Program("encoder", Encoder(model), INSTANCE, list(CACHE), instance),
            Program("step", Step(model.decoder), {**CACHE, **known, **STATE}, ["logits"], state),
        ],
        example=examples.script("routing"),
    )


def instance(number: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return locs (B, N, 2), demand (B, N) and capacity (B,) of random instances, 6 to 55 nodes each."""
    generator = torch.Generator().manual_seed(number)
    batch, nodes = 2 + number % 3, 6 + number % 50
    demand = torch.randint(1, 10, (batch, nodes), generator=generator).float()
    demand[:, 0] = 0
    return torch.rand(batch, nodes, 2, generator=generator), demand, torch.full((batch,), 20.0 + number % 20)
