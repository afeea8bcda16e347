"""Each distribution keeps to its ranges and uses them."""

import pytest
import torch

from common.random import derive_key
from pipelines.workloads.cvrp.config import Config
from pipelines.workloads.cvrp.instances import generated


@pytest.mark.parametrize(("name", "largest"), [("uniform", 9), ("grid", 10), ("clustered", 9)])
def test_a_distribution_keeps_its_ranges_and_uses_them(name, largest):
    data = Config.model_validate({"data": {"distribution": name}}).data
    fields = generated.generate(data, derive_key(0, "x"), torch.arange(3000))
    demand = fields["demand"]
    assert (demand[:, 0] == 0).all()
    assert torch.equal(demand[:, 1:].unique(), torch.arange(1.0, largest + 1))
    assert fields["locs"].min() >= 0
    assert fields["locs"].max() <= 1
    assert (fields["capacity"] == 30).all()
    if name == "grid":
        assert torch.equal((fields["locs"] * 100).round().unique(), torch.arange(101.0))
    counts = torch.bincount(demand[:, 1:].flatten().long())[1:]
    assert counts.max() / counts.min() < 1.1


def test_clustered_customers_lie_closer_together_than_uniform_ones():
    spread = {}
    for name in ("uniform", "clustered"):
        data = Config.model_validate({"data": {"distribution": name}}).data
        locs = generated.generate(data, 1, torch.arange(500))["locs"][:, 1:]
        distance = torch.cdist(locs, locs) + 9 * torch.eye(20)
        spread[name] = distance.min(-1).values.mean()
    assert spread["clustered"] < 0.7 * spread["uniform"]
