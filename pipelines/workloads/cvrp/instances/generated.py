"""Instances generated on the device from a stream of random numbers, and the standard test sets of uniform ones."""

import functools
import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from common.random import derive_key, uniform
from models.routing.environment import Instances
from models.routing.problems import Problem, Vehicles
from pipelines.workloads.cvrp.config import Data
from pipelines.workloads.cvrp.instances.distributions import CAPACITY, DISTRIBUTIONS, PROBLEMS

GROUP = 16  # consecutive instances of equal size in validation, test and labels
STANDARD_SIZE, STANDARD_SEED = 10_000, 1234
BEST_KNOWN = Path(__file__).with_name("best_known")  # written by tests/peers/best_known.py


def stream_key(seed: int, split: str) -> int:
    """Return the key of a split's random stream; only training depends on the run's seed."""
    return derive_key(seed if split == "train" else 0, "cvrp", split)


def generate(
    data: Data, key: int, items: Tensor, group: int = GROUP, device: torch.device | None = None
) -> dict[str, Tensor]:
    """Return the fields of Instances for `items` (B,) of the stream `key`, each a pure function of (key, item).

    If data have several sizes, each `group` of items has one; the fields are padded with zeros, and `customers` (B,) is
    returned beside them. Items are on the CPU, as the size of a batch must not wait for a device.
    """
    if len(data.sizes) == 1:
        return _of_one_size(data, key, items.to(device, non_blocking=True), data.sizes[0])
    customers = torch.tensor([data.size_of(item // group) for item in items.tolist()])
    num_nodes = int(customers.max()) + 1
    fields: dict[str, Tensor] = {}
    for size in customers.unique().tolist():
        rows = (customers == size).nonzero()[:, 0]
        parts = _of_one_size(data, key, items[rows].to(device, non_blocking=True), size)
        rows = rows.to(device, non_blocking=True)
        for name, part in parts.items():
            axes = {"capacity": 0, "matrix": 2}.get(name, 1)  # of nodes; channels come behind
            whole = torch.zeros(len(items), *[num_nodes] * axes, *part.shape[1 + axes :], device=device)
            fields.setdefault(name, whole)[(rows, *[slice(size + 1)] * axes)] = part
    return {**fields, "customers": customers.float().to(device, non_blocking=True)}


def _of_one_size(data: Data, key: int, items: Tensor, customers: int) -> dict[str, Tensor]:
    distribution, num_nodes, drawn = DISTRIBUTIONS[data.distribution], customers + 1, PROBLEMS[data.problem]
    own = distribution.numbers(num_nodes)
    numbers, more = uniform(key, items, own + drawn.numbers(num_nodes)).tensor_split([own], 1)
    locs, demand, capacity = distribution.instances(numbers, num_nodes)
    if data.vehicle_capacity is not None:
        capacity = torch.full_like(capacity, data.vehicle_capacity)
    return {"locs": locs, "demand": demand, "capacity": capacity, **drawn.fields(locs, more)}


def by_size(batch: Mapping[str, Tensor]) -> Iterator[tuple[Tensor, Instances]]:
    """Yield the row numbers and the instances of each size in a batch, without padding."""
    instances = Instances.of(batch)
    if "customers" not in batch:
        yield torch.arange(len(instances.capacity), device=instances.capacity.device), instances
        return
    for size in batch["customers"].unique().long().tolist():
        rows = (batch["customers"] == size).nonzero()[:, 0]
        yield rows, instances.rows(rows, size + 1)


class Generated:
    """A source of generated instances: endless for training, of a given size for challenges.

    If data have several sizes, each `group` of items has one; in training that is the batch of an update.
    """

    workers = 0

    def __init__(self, data: Data, key: int, device: torch.device, size: int | None = None, group: int = GROUP):
        self.data, self.key, self.device, self.size, self.group = data, key, device, size, group

    def batch(self, items: Tensor) -> dict[str, Tensor]:
        """Return the fields of Instances, and the item numbers (B,) as `item`."""
        fields = generate(self.data, self.key, items, self.group, self.device)
        return {**fields, "item": items.to(self.device, non_blocking=True)}


def problems_of(fields: Mapping[str, Tensor], name: str = "generated") -> list[Problem]:
    """Return generated fields as problems in the exact metric."""
    found: dict[int, Problem] = {}
    for rows, instances in by_size(fields):
        for number, i in enumerate(rows.tolist()):
            locs, demand, capacity = (part[number].numpy() for part in instances[:3])
            plain = Problem(f"{name}-{i}", locs.astype(np.float64), demand.astype(np.int64), int(capacity), "exact")
            found[i] = plain if instances.rules is None else _ruled(plain, instances.rules[number].double().numpy())
            if instances.matrix is not None:
                found[i] = replace(plain, metric="EXPLICIT", matrix=instances.matrix[number].double().numpy())
    return [problem for _, problem in sorted(found.items())]


def _ruled(problem: Problem, rules: np.ndarray) -> Problem:
    longest, limit, opened = rules[0, 3:].tolist()
    kind = Vehicles(problem.capacity, longest=longest, limit=limit)
    windows = rules[:, :2] if np.isfinite(rules[0, 1]) else None
    fleet = () if kind == Vehicles(problem.capacity) else (kind,)
    return replace(problem, windows=windows, services=rules[:, 2], fleet=fleet, open_routes=bool(opened))


@functools.lru_cache(maxsize=4)
def standard_test_set(customers: int, num: int) -> list[Problem]:
    """Return the first `num` of the 10,000 instances of Kool et al. 2019 (Attention, Learn to Solve Routing Problems!).

    Most published figures are measured on them. They equal those of `vrp<customers>_test_seed1234.pkl`, drawn again
    instead of downloaded: coordinates uniform in the unit square, demands uniform in 1..9, exact metric. `customers` is
    a key of CAPACITY.
    """
    # These are the published instances only if all 10,000 are drawn, in this order, before they are cut.
    random = np.random.RandomState(STANDARD_SEED)
    depot = random.uniform(size=(STANDARD_SIZE, 2))
    locs = random.uniform(size=(STANDARD_SIZE, customers, 2))
    demand = random.randint(1, 10, (STANDARD_SIZE, customers))
    path = BEST_KNOWN / f"{customers}.json"
    known = json.loads(path.read_text())[:num] if path.is_file() else []
    return [
        Problem(
            f"vrp{customers}_test_seed{STANDARD_SEED}-{index:04d}",
            np.concatenate([depot[index : index + 1], locs[index]]),
            np.pad(demand[index], (1, 0)),
            CAPACITY[customers],
            "exact",
            best_known=cost,
        )
        for index, cost in zip_longest(range(num), known)
    ]
