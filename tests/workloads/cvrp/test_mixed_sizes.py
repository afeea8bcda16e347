"""Instances of many sizes: every batch of an update has one, and each instance is a pure function of its item."""

import itertools

import pytest
import torch

from common.config import build
from common.errors import UserError
from models.routing.environment import routes_of
from pipelines.workloads.cvrp.config import Config
from pipelines.workloads.cvrp.imitation import Curriculum
from pipelines.workloads.cvrp.instances.distributions import AVERAGE_ROUTE
from pipelines.workloads.cvrp.instances.generated import GROUP, Generated, by_size, generate, problems_of, stream_key
from pipelines.workloads.cvrp.prepare import load, prepare
from pipelines.workloads.cvrp.solvers.validator import check
from pipelines.workloads.cvrp.task import CvrpTask

CPU = torch.device("cpu")
DATA = {"customers": [5, 9], "distribution": "x", "validation_instances": 40, "test_instances": 4, "labels": 60}


def config(**training):
    training = {"steps": 40, "batch_size": 4, "imitation_steps": 5, **training}
    return Config.model_validate({"data": DATA, "model": {"layers": 1, "width": 16, "heads": 2}, "training": training})


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("prepared")
    prepare(config(imitation_steps=40), folder)
    return folder


@pytest.mark.parametrize("customers", [20, [20, 20], [20, 21], [5, 9], [20, 200]])
def test_every_size_comes_once_in_a_round(customers):
    data = Config.model_validate({"data": {"customers": customers, "capacity": 30}}).data
    count = len(data.sizes)
    for begin in (0, 3 * count):
        assert sorted(data.size_of(begin + i) for i in range(count)) == list(data.sizes)
    if count > 100:  # and a few in a row are spread over the range
        few = sorted(data.size_of(i) for i in range(8))
        assert max(b - a for a, b in itertools.pairwise(few)) < count / 4


def test_an_update_has_one_size_and_an_instance_depends_on_its_item_only():
    source = Generated(config().data, 3, CPU, group=4)
    seen = set()
    for step in range(5):
        batch = source.batch(torch.arange(4 * step, 4 * step + 4))
        size = batch["demand"].shape[1] - 1
        seen.add(size)
        assert (batch["customers"] == size).all()
        assert (batch["demand"][:, 1:] > 0).all()
        alone = source.batch(torch.tensor([4 * step + 2]))
        assert all(torch.equal(alone[name][0], batch[name][2]) for name in alone)
    assert seen == {5, 6, 7, 8, 9}


def test_prepared_instances_come_back_with_their_sizes(folder):
    fields = load(folder, "validation")
    problems = problems_of(fields)
    assert [problem.customers for problem in problems] == [config().data.size_of(i // GROUP) for i in range(40)]
    for i, problem in enumerate(problems):
        ((_, alone),) = by_size(generate(config().data, stream_key(0, "validation"), torch.tensor([i])))
        assert problem.locs.astype("float32").tolist() == alone.locs[0].tolist()
        assert problem.demand.tolist() == alone.demand[0].tolist()
        assert problem.capacity == alone.capacity


def test_scores_do_not_depend_on_the_sizes_beside_an_instance(folder):
    torch.manual_seed(0)
    task = CvrpTask(config(), folder, CPU)
    with torch.no_grad():
        whole = task.score(task.model, task.validation.batch(torch.arange(40)))["cost"]
        alone = [task.score(task.model, task.validation.batch(torch.tensor([i])))["cost"] for i in range(0, 40, 7)]
    torch.testing.assert_close(torch.cat(alone), whole[::7])


@pytest.mark.parametrize("begin", [0, 24], ids=["imitation", "reinforcement"])
def test_the_loss_of_a_batch_is_the_sum_over_its_parts(folder, begin):
    torch.manual_seed(0)
    task = CvrpTask(config(), folder, CPU)
    items = torch.arange(begin, begin + 4)
    whole = task.loss(task.model, task.train.batch(items))
    parts = [task.loss(task.model, task.train.batch(part)) for part in items.split(1)]
    assert whole.value.item() == pytest.approx(sum(part.value.item() for part in parts), abs=1e-3)
    assert whole.count == 4


def test_tours_to_imitate_are_solutions_of_the_one_size_of_their_update(folder):
    source = Curriculum(config(imitation_steps=40), folder, CPU)
    sizes, seen = set(), []
    for step in range(40):
        batch = source.batch(torch.arange(4 * step, 4 * step + 4))
        sizes.add(batch["demand"].shape[1] - 1)
        fields = {name: batch[name] for name in ("locs", "demand", "capacity")}
        for problem, tours in zip(problems_of(fields), batch["tours"], strict=True):
            check(problem, routes_of(tours[0]))
        seen += [tuple(row) for row in batch["demand"].tolist()]
    assert sizes == {config().data.size_of(group) for group in range(-(-60 // GROUP))}
    assert len(set(seen)) > 50  # nearly all of the 60 labels


def test_instances_of_x_vary_in_all_that_the_set_varies_in():
    data = Config.model_validate({"data": {"customers": 40, "distribution": "x"}}).data
    locs, demand, capacity = generate(data, 1, torch.arange(800)).values()
    assert 0 <= locs.min() <= locs.max() <= 1
    depot = {tuple(place) for place in locs[:, 0].tolist()}
    assert {(0.0, 0.0), (0.5, 0.5)} < depot
    assert len(depot) > 200
    customers = demand[:, 1:]
    assert {(int(row.min()), int(row.max())) for row in customers[customers.max(1).values == 1]} == {(1, 1)}
    assert customers.min() == 1
    assert customers.max() == 100
    assert torch.equal(customers, customers.floor())
    assert (capacity >= customers.max(1).values).all()
    average = 40 * capacity / demand.sum(1)
    assert average.min() >= AVERAGE_ROUTE[0] - 1e-4
    assert average.max() < AVERAGE_ROUTE[2] + 1
    assert 9 < average.mean() < 13.5  # of the triangular distribution: 11.3
    nearest = (torch.cdist(locs[:, 1:], locs[:, 1:]) + 9 * torch.eye(40)).min(2).values.mean(1)
    assert nearest.min() < 0.4 * nearest.max()  # around seeds, and anywhere


def test_sizes_that_do_not_fit_are_refused():
    with pytest.raises(UserError, match=r"data.customers=\(9, 5\): give the smaller number first"):
        build(Config, {}, ["data.customers=[9,5]", "data.capacity=20"], "made")
    with pytest.raises(
        UserError, match=r"data.capacity must be given for data.customers=.* drawn by data.distribution=x"
    ):
        build(Config, {}, ["data.customers=[5,9]"], "made")
    several = ["data.customers=[5,9]", "data.distribution=x", "training.steps=1", "training.starts=6"]
    with pytest.raises(UserError, match=r"training.starts=6 is more than data.customers=\(5, 9\)"):
        build(Config, {}, several, "made")
