"""Instances are pure functions of (seed, item), and those on disk are read back as they were made."""

import torch

from pipelines.workloads.cvrp.config import Config
from pipelines.workloads.cvrp.instances import generated
from pipelines.workloads.cvrp.prepare import load, prepare


def config():
    small = {"customers": 8, "capacity": 15, "validation_instances": 6, "test_instances": 4}
    return Config.model_validate({"data": small})


def test_an_instance_depends_on_its_item_and_seed_only():
    data = config().data
    key = generated.stream_key(3, "train")
    together = generated.generate(data, key, torch.arange(10))
    alone = generated.generate(data, key, torch.tensor([7]))
    for name, tensor in alone.items():
        assert torch.equal(tensor[0], together[name][7])
    other = generated.generate(data, generated.stream_key(4, "train"), torch.tensor([7]))
    assert not torch.equal(other["locs"], alone["locs"])


def test_validation_and_test_have_streams_that_no_training_seed_reaches():
    held_out = {generated.stream_key(seed, split) for seed in range(2000) for split in ("validation", "test")}
    assert len(held_out) == 2
    assert held_out.isdisjoint(generated.stream_key(seed, "train") for seed in range(2000))


def test_prepared_instances_read_back_as_generated(tmp_path):
    settings = config()
    prepare(settings, tmp_path)
    expected = generated.generate(settings.data, generated.stream_key(0, "validation"), torch.arange(6))
    loaded = load(tmp_path, "validation")
    assert loaded.keys() == expected.keys()
    assert all(torch.equal(loaded[name], expected[name]) for name in expected)
