"""Imitation: the first updates learn from the tours of a classical solver, found by `prepare`.

A solution is a set of routes, so each visit to an instance turns or mirrors it, reorders its routes and, where these
are closed and without rules or one-way roads, reverses some of them, as a pure function of (seed, item).
"""

from pathlib import Path

import torch
from torch import Tensor

from common.errors import UserError
from common.random import derive_key, uniform
from models.routing.environment import DEPOT, Instances
from models.routing.search import SYMMETRIES, turn
from pipelines.engine.batches import Order
from pipelines.workloads.cvrp.config import Config
from pipelines.workloads.cvrp.instances.generated import Generated, stream_key
from pipelines.workloads.cvrp.prepare import load

VARIANTS = 8  # of each tour, from which an update learns


class Curriculum:
    """A source: labelled instances for the first items, one permutation after another, then generated ones.

    If data have several sizes, each update's batch has one, and the sizes of labelled instances come in turn.
    """

    workers, size = 0, None

    def __init__(self, config: Config, folder: Path, device: torch.device):
        if not config.data.labels:
            needs = f"training.imitation_steps={config.training.imitation_steps} needs instances with tours"
            raise UserError(f"{needs}: give their number, as data.labels=40000, or training.imitation_steps=0")
        self.batch_size = config.training.batch_size
        self.generated = Generated(config.data, stream_key(config.seed, "train"), device, group=self.batch_size)
        self.imitated = config.training.imitation_steps * self.batch_size
        labelled = load(folder, "labels")
        customers = labelled.pop("customers", torch.full((config.data.labels,), float(config.data.sizes[0])))
        sizes = list(dict.fromkeys(customers.long().tolist()))  # in order of appearance
        self.classes = [(size, (customers == size).nonzero()[:, 0]) for size in sizes]
        self.orders = [Order(len(members), 1, config.seed) for _, members in self.classes]
        self.steps = steps_of(labelled["tour"])  # on the CPU, as the size of a batch must not wait for the device
        self.labelled = {name: tensor.to(device) for name, tensor in labelled.items()}
        self.key = derive_key(config.seed, "cvrp", "variants")

    def batch(self, items: Tensor) -> dict[str, Tensor]:
        """Return the fields of Instances, the item numbers as `item`, and of labelled instances `tours` (B, S, T)."""
        if items[0] >= self.imitated:
            return self.generated.batch(items)
        turn_of_all, which = divmod(int(items[0]) // self.batch_size, len(self.classes))
        num_customers, members = self.classes[which]
        begin = turn_of_all * self.batch_size
        rows = members[torch.cat([self.orders[which].items(begin + int(item) % self.batch_size) for item in items])]
        steps = int(self.steps[rows].max())
        rows = rows.to(self.generated.device, non_blocking=True)
        instances = Instances.of(self.labelled).rows(rows, num_customers + 1)
        items = items.to(self.generated.device, non_blocking=True)
        tour = self.labelled["tour"][rows, : 2 * num_customers].long()
        noise = uniform(self.key, items, 1 + 2 * VARIANTS * num_customers)
        instances = instances._replace(locs=turn(instances.locs, (noise[:, 0] * SYMMETRIES).long()))
        keys, flips = noise[:, 1:].view(len(items), 2, VARIANTS, num_customers).unbind(1)
        either_way = flips < (0 if instances.directed else 0.5)
        return {**instances.fields(), "item": items, "tours": variants(tour, keys, either_way, steps)}


def steps_of(tour: Tensor) -> Tensor:
    """Return the steps (B,) of tours (B, T) without padding: all visits, and the depot between routes."""
    customer = tour != DEPOT
    return customer.sum(1) + (customer[:, :-1] & ~customer[:, 1:]).sum(1) + customer[:, -1].long() - 1


def variants(tour: Tensor, keys: Tensor, flips: Tensor, steps: int) -> Tensor:
    """Return tours (B, S, T) with the routes of `tour` (B, 2 n), in the order of `keys`, reversed where `flips`.

    The first numbers of `keys` and `flips` (B, S, n) are those of the first route, and so on. T is `steps`, the most
    that any of the tours has.
    """
    batch, num_variants, num_customers = keys.shape
    route = (tour == DEPOT).cumsum(1)  # of the customer at each place
    place = torch.arange(tour.shape[1], device=tour.device).expand_as(tour)
    customers = tour.argsort(dim=1, descending=True, stable=True)[:, :num_customers]  # places of n, n - 1, ...
    route, place = (x.gather(1, customers)[:, None].expand(-1, num_variants, -1) for x in (route, place))
    rank = keys.argsort(2).argsort(2).gather(2, route)
    place = torch.where(flips.gather(2, route), -place, place)
    order = (rank * 4 * num_customers + place).argsort(2)  # of customers n, n - 1, ... in the new tour
    route = route.gather(2, order)
    begins = route.diff(dim=2, prepend=route[..., :1]) != 0
    when = torch.arange(num_customers, device=tour.device) + begins.cumsum(2)
    return torch.full((batch, num_variants, steps), DEPOT, device=tour.device).scatter_(2, when, num_customers - order)
