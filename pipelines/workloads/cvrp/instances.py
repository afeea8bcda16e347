"""Instances made up: training ones on the device as they are needed, validation and test ones on disk."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import datasets
import numpy as np
import torch
from torch import Tensor

from common.random import derive_key, uniform

if TYPE_CHECKING:
    from pipelines.workloads.cvrp import Config, Data

MOST_CLUSTERS = 7
CLUSTER_SPREAD = 0.07  # standard deviation around a cluster's seed, in sides of the square


def stream_key(seed: int, split: str) -> int:
    """The random stream of a split. Validation and test have streams of their own, the same for every run's seed."""
    return derive_key(seed if split == "train" else 0, "cvrp", split)


def generate(data: "Data", key: int, items: Tensor) -> dict[str, Tensor]:
    """Instances `items` (B,) of the stream `key`, each a pure function of (key, item), as fields of Instances.

    uniform: Kool et al. 2019. grid: coordinates k/100 with k from 0 to 100, demand 1 to 10. clustered: customers
    scatter around 3 to 7 seeds of their own instance, reflected into the square.
    """
    num_nodes = data.customers + 1
    drawn = uniform(key, items, 5 * num_nodes + 1 + 2 * MOST_CLUSTERS)
    locs = drawn[:, : 2 * num_nodes].reshape(-1, num_nodes, 2)
    share = drawn[:, 2 * num_nodes : 3 * num_nodes]
    rest = drawn[:, 3 * num_nodes :]
    largest = 9
    if data.distribution == "grid":
        largest = 10
        locs = (locs * 101).floor() / 100
    elif data.distribution == "clustered":
        locs = torch.cat([locs[:, :1], _clustered(locs, rest)[:, 1:]], 1)
    demand = (share * largest).floor() + 1
    demand[:, 0] = 0
    capacity = torch.full_like(demand[:, 0], data.vehicle_capacity)
    return {"locs": locs, "demand": demand, "capacity": capacity}


def _clustered(noise: Tensor, rest: Tensor) -> Tensor:
    """(B, N, 2) points around seeds; `noise` (B, N, 2) and `rest` are uniform numbers."""
    batch, num_nodes, _ = noise.shape
    seeds = rest[:, : 2 * MOST_CLUSTERS].reshape(batch, MOST_CLUSTERS, 2)
    clusters = 3 + (rest[:, 2 * MOST_CLUSTERS, None] * (MOST_CLUSTERS - 2)).floor()
    choice = (rest[:, -num_nodes:] * clusters).floor().long()
    centre = seeds.gather(1, choice[..., None].expand(-1, -1, 2))
    # Box and Muller 1958
    radius = CLUSTER_SPREAD * (-2 * torch.log1p(-noise[..., 0])).sqrt()
    angle = 2 * torch.pi * noise[..., 1]
    point = centre + radius[..., None] * torch.stack([angle.cos(), angle.sin()], -1)
    point = point.abs()
    return torch.where(point > 1, 2 - point, point)


class Generated:
    """A source of generated instances: endless for training, of a given size for challenges."""

    workers = 0

    def __init__(self, data: "Data", key: int, device: torch.device, size: int | None = None):
        self.data, self.key, self.device, self.size = data, key, device, size

    def batch(self, items: Tensor) -> dict[str, Tensor]:
        """Fields of Instances, and `item` (B,) the item numbers."""
        items = items.to(self.device)
        return {**generate(self.data, self.key, items), "item": items}


def prepare(config: "Config", folder: Path) -> Mapping[str, Any]:
    """Write the validation and test instances as Arrow tables; returns facts for the manifest."""
    datasets.disable_progress_bars()
    sizes = {"validation": config.data.validation_instances, "test": config.data.test_instances}
    for split, size in sizes.items():
        fields = generate(config.data, stream_key(0, split), torch.arange(size))
        columns = {
            name: tensor.flatten(1).numpy() if tensor.ndim > 1 else tensor.numpy() for name, tensor in fields.items()
        }
        datasets.Dataset.from_dict(columns).save_to_disk(folder / split)
    return {"instances": sizes}


def load(folder: Path, split: str) -> dict[str, Tensor]:
    """Fields of Instances for a prepared split, converted once: Arrow is for keeping, tensors are for use."""
    table = datasets.load_from_disk(folder / split).with_format("numpy")
    fields = {name: torch.from_numpy(np.stack(table[name][:]).astype(np.float32)) for name in table.column_names}
    fields["locs"] = fields["locs"].unflatten(1, (-1, 2))
    return fields
