"""Instances generated on the device from a stream of random numbers."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from common.random import derive_key, uniform
from models.routing.environment import Instances
from models.routing.problems import Problem
from pipelines.workloads.cvrp.instances.distributions import DISTRIBUTIONS

if TYPE_CHECKING:
    from pipelines.workloads.cvrp import Data


GROUP = 16  # consecutive instances of equal size in validation, test and labels


def stream_key(seed: int, split: str) -> int:
    """Return the key of a split's random stream; only training depends on the run's seed."""
    return derive_key(seed if split == "train" else 0, "cvrp", split)


def generate(
    data: "Data", key: int, items: Tensor, group: int = GROUP, device: torch.device | None = None
) -> dict[str, Tensor]:
    """Return the fields of Instances for `items` (B,) of the stream `key`, each a pure function of (key, item).

    If data have several sizes, each `group` of items has one; the fields are padded with zeros, and `customers` (B,) is
    returned beside them. Items are on the CPU, as the size of a batch must not wait for a device.
    """
    if len(data.sizes) == 1:
        return _of_one_size(data, key, items.to(device, non_blocking=True), data.sizes[0])
    customers = torch.tensor([data.size_of(item // group) for item in items.tolist()])
    num_nodes = int(customers.max()) + 1
    fields = {
        "locs": torch.zeros(len(items), num_nodes, 2, device=device),
        "demand": torch.zeros(len(items), num_nodes, device=device),
        "capacity": torch.zeros(len(items), device=device),
        "customers": customers.float().to(device, non_blocking=True),
    }
    for size in customers.unique().tolist():
        rows = (customers == size).nonzero()[:, 0]
        part = _of_one_size(data, key, items[rows].to(device, non_blocking=True), size)
        rows = rows.to(device, non_blocking=True)
        fields["locs"][rows, : size + 1], fields["demand"][rows, : size + 1] = part["locs"], part["demand"]
        fields["capacity"][rows] = part["capacity"]
    return fields


def _of_one_size(data: "Data", key: int, items: Tensor, customers: int) -> dict[str, Tensor]:
    distribution, num_nodes = DISTRIBUTIONS[data.distribution], customers + 1
    numbers = uniform(key, items, distribution.numbers(num_nodes))
    locs, demand, capacity = distribution.instances(numbers, num_nodes)
    if data.vehicle_capacity is not None:
        capacity = torch.full_like(capacity, data.vehicle_capacity)
    return {"locs": locs, "demand": demand, "capacity": capacity}


def by_size(batch: Mapping[str, Tensor]) -> Iterator[tuple[Tensor, Instances]]:
    """Yield the row numbers and the instances of each size in a batch, without padding."""
    locs, demand, capacity = (batch[name] for name in Instances._fields)
    if "customers" not in batch:
        yield torch.arange(len(capacity), device=capacity.device), Instances(locs, demand, capacity)
        return
    for size in batch["customers"].unique().long().tolist():
        rows = (batch["customers"] == size).nonzero()[:, 0]
        yield rows, Instances(locs[rows, : size + 1], demand[rows, : size + 1], capacity[rows])


class Generated:
    """A source of generated instances: endless for training, of a given size for challenges.

    If data have several sizes, each `group` of items has one; in training that is the batch of an update.
    """

    workers = 0

    def __init__(self, data: "Data", key: int, device: torch.device, size: int | None = None, group: int = GROUP):
        self.data, self.key, self.device, self.size, self.group = data, key, device, size, group

    def batch(self, items: Tensor) -> dict[str, Tensor]:
        """Return the fields of Instances, and the item numbers (B,) as `item`."""
        fields = generate(self.data, self.key, items, self.group, self.device)
        return {**fields, "item": items.to(self.device, non_blocking=True)}


def problems_of(fields: Mapping[str, Tensor], name: str = "generated") -> list[Problem]:
    """Return generated fields as problems in the exact metric."""
    found: dict[int, Problem] = {}
    for rows, instances in by_size(fields):
        for i, locs, demand, capacity in zip(rows.tolist(), *(part.numpy() for part in instances), strict=True):
            found[i] = Problem(
                f"{name}-{i}", locs.astype(np.float64), demand.astype(np.int64), int(capacity), rounding="exact"
            )
    return [problem for _, problem in sorted(found.items())]
