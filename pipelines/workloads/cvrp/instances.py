"""Generated instances: training ones are made on the device as they are needed, the others are stored on disk."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import datasets
import numpy as np
import torch
from torch import Tensor

from common.random import derive_key, uniform
from models.routing.problems import Problem
from pipelines.workloads.cvrp.distributions import DISTRIBUTIONS

if TYPE_CHECKING:
    from pipelines.workloads.cvrp import Config, Data


def stream_key(seed: int, split: str) -> int:
    """Return the key of a split's random stream; validation and test are the same whatever the run's seed."""
    return derive_key(seed if split == "train" else 0, "cvrp", split)


def generate(data: "Data", key: int, items: Tensor) -> dict[str, Tensor]:
    """Return the fields of Instances for `items` (B,) of the stream `key`, each a pure function of (key, item)."""
    distribution, num_nodes = DISTRIBUTIONS[data.distribution], data.customers + 1
    numbers = uniform(key, items, distribution.numbers(num_nodes))
    locs, demand = distribution.instances(numbers, num_nodes)
    capacity = torch.full_like(demand[:, 0], data.vehicle_capacity)
    return {"locs": locs, "demand": demand, "capacity": capacity}


class Generated:
    """A source of generated instances: endless for training, of a given size for challenges."""

    workers = 0

    def __init__(self, data: "Data", key: int, device: torch.device, size: int | None = None):
        self.data, self.key, self.device, self.size = data, key, device, size

    def batch(self, items: Tensor) -> dict[str, Tensor]:
        """Return the fields of Instances, and the item numbers (B,) as `item`."""
        items = items.to(self.device, non_blocking=True)
        return {**generate(self.data, self.key, items), "item": items}


def prepare(config: "Config", folder: Path) -> Mapping[str, Any]:
    """Write the validation and test instances as Arrow tables and return facts for the manifest."""
    datasets.disable_progress_bars()
    sizes = {"validation": config.data.validation_instances, "test": config.data.test_instances}
    for split, size in sizes.items():
        _save(folder / split, generate(config.data, stream_key(0, split), torch.arange(size)))
    if config.data.labels:
        from pipelines.workloads.cvrp.imitation import labelled

        _save(folder / "labels", labelled(config.data))
        sizes["labels"] = config.data.labels
    return {"instances": sizes}


def _save(folder: Path, fields: Mapping[str, Tensor]) -> None:
    columns = {
        name: tensor.flatten(1).numpy() if tensor.ndim > 1 else tensor.numpy() for name, tensor in fields.items()
    }
    datasets.Dataset.from_dict(columns).save_to_disk(folder)


def problems_of(fields: Mapping[str, Tensor], name: str = "generated") -> list[Problem]:
    """Return instances, given as the fields of Instances, as problems in the exact metric."""
    columns = zip(*(fields[key].numpy() for key in ("locs", "demand", "capacity")), strict=True)
    return [
        Problem(f"{name}-{i}", locs.astype(np.float64), demand.astype(np.int64), int(capacity), rounding="exact")
        for i, (locs, demand, capacity) in enumerate(columns)
    ]


def load(folder: Path, split: str) -> dict[str, Tensor]:
    """Return the fields of Instances for a prepared split, as tensors converted from Arrow once."""
    table = datasets.load_from_disk(folder / split).with_format("numpy")
    fields = {name: torch.from_numpy(np.stack(table[name][:]).astype(np.float32)) for name in table.column_names}
    fields["locs"] = fields["locs"].unflatten(1, (-1, 2))
    return fields
