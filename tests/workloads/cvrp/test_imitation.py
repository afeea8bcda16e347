"""Tours to imitate are those of the solver, in every order and direction, and their probability counts all of them."""

from argparse import Namespace
from pathlib import Path

import pytest
import torch

from common.disk import prepared
from common.errors import UserError
from common.random import uniform
from models.routing.environment import DEPOT, Instances, reset, route_ends, routes_of, step, tour_length
from pipelines import run_config
from pipelines.run.folder import Run
from pipelines.workloads.cvrp import WORKLOAD
from pipelines.workloads.cvrp import prepare as preparation
from pipelines.workloads.cvrp.config import Config
from pipelines.workloads.cvrp.imitation import VARIANTS, Curriculum, steps_of, variants
from pipelines.workloads.cvrp.prepare import load
from pipelines.workloads.cvrp.task import CvrpTask

CPU = torch.device("cpu")


def config(**training):
    data = {"customers": 7, "capacity": 15, "validation_instances": 6, "test_instances": 4, "labels": 5}
    model = {"layers": 1, "width": 16, "heads": 2}
    training = {"steps": 9, "batch_size": 4, "imitation_steps": 3, **training}
    return Config.model_validate({"data": data, "model": model, "training": training})


@pytest.fixture
def folder(tmp_path):
    preparation.prepare(config(), tmp_path)
    return tmp_path


def test_variants_are_all_orders_and_directions_of_the_same_routes():
    tour = torch.tensor([[3, 1, 0, 2, 5, 4, 0, 0, 0, 0], [1, 2, 3, 4, 5, 0, 0, 0, 0, 0]])
    noise = uniform(1, torch.arange(2), 2 * 40 * 5).view(2, 2, 40, 5)
    made = variants(tour, noise[:, 0], noise[:, 1] < 0.5, int(steps_of(tour).max()))
    for given, rows, count in zip(tour, made, (8, 2), strict=True):
        routes = {frozenset((tuple(route), tuple(route[::-1]))) for route in routes_of(given)}
        found = [routes_of(row) for row in rows]
        assert all({frozenset((tuple(r), tuple(r[::-1]))) for r in tour} == routes for tour in found)
        assert len({str(tour) for tour in found}) == count


def test_labels_do_not_depend_on_how_work_is_cut_and_variants_not_on_the_batch(folder, tmp_path, monkeypatch):
    whole = preparation.labelled(config().data, tmp_path / "whole")["tour"]
    monkeypatch.setattr(preparation, "INSTANCES_AT_ONCE", 2)
    assert torch.equal(preparation.labelled(config().data, tmp_path / "cut")["tour"], whole)
    source = Curriculum(config(), folder, CPU)
    together = source.batch(torch.arange(4, 8))
    alone = source.batch(torch.tensor([6]))
    assert torch.equal(together["locs"][2:3], alone["locs"])
    steps = min(together["tours"].shape[2], alone["tours"].shape[2])
    assert torch.equal(together["tours"][2:3, :, :steps], alone["tours"][..., :steps])
    assert alone["tours"].shape[1] == VARIANTS


def test_every_label_comes_once_in_a_pass_and_then_instances_are_drawn(folder):
    source = Curriculum(config(), folder, CPU)
    labelled = load(folder, "labels")["demand"]
    seen = torch.cat([source.batch(torch.tensor([item]))["demand"] for item in range(5)])
    assert sorted(map(tuple, seen.tolist())) == sorted(map(tuple, labelled.tolist()))
    assert "tours" in source.batch(torch.arange(8, 12))
    drawn = source.batch(torch.arange(12, 16))
    assert "tours" not in drawn
    assert torch.equal(drawn["locs"], source.generated.batch(torch.arange(12, 16))["locs"])


def test_the_probability_of_a_tour_to_imitate_is_that_of_its_steps(folder):
    torch.manual_seed(0)
    task = CvrpTask(config(), folder, CPU)
    batch = task.train.batch(torch.arange(4))
    problems, tours = Instances.of(batch), batch["tours"]
    rollout = task.model(problems, tours=tours)
    torch.testing.assert_close(rollout.cost, tour_length(problems, tours))
    cache, state, total = task.model.encode(problems), reset(problems, VARIANTS), torch.zeros(4, VARIANTS)
    for action in tours.unbind(2):
        chances = task.model.decoder(cache, problems, state).softmax(1)
        ends = chances.where(route_ends(tours, 8) & state.waiting, 0.0).sum(1)  # any route may be begun, at any end
        begins = (state.node == DEPOT) & (action != DEPOT)
        total += torch.where(begins, ends, chances.gather(1, action[:, None])[:, 0]).log()
        state = step(problems, state, action)
    torch.testing.assert_close(rollout.log_prob, total, rtol=1e-4, atol=1e-4)
    loss = task.loss(task.model, batch)
    assert loss.value.item() == pytest.approx(-total.mean(1).sum().item() / 7, rel=1e-4)


def test_imitation_lowers_the_cost_of_greedy_tours(folder):
    torch.manual_seed(0)
    task = CvrpTask(config(imitation_steps=100), folder, CPU)
    optimizer = torch.optim.Adam(task.model.parameters(), 3e-3)

    def cost():
        with torch.no_grad():
            return float(task.score(task.model, task.validation.batch(torch.arange(6)))["cost"].mean())

    before = cost()
    for k in range(40):
        optimizer.zero_grad()
        task.loss(task.model, task.train.batch(torch.arange(8 * k, 8 * k + 8))).value.backward()
        optimizer.step()
    assert cost() < before - 0.05


@pytest.mark.parametrize(
    ("words", "solved"),
    [
        ({}, 5),  # of the 12 that three updates could read
        ({"steps": 1}, 4),
        ({"imitation_steps": 1}, 4),
        ({"imitation_steps": 0}, 0),
    ],
)
def test_only_labels_that_updates_read_are_solved(words, solved):
    found = config(**words)
    assert found.data.labels == solved
    assert Config.model_validate(found.model_dump()) == found
    grown = Config.model_validate({**found.model_dump(), "training": {**found.training.model_dump(), "steps": 90}})
    assert grown.data.labels == solved  # as --resume reads it: of the same data
    earlier = {**found.model_dump(), "data": {**found.model_dump()["data"], "labels": 12}}
    of_a_run = {"run": earlier, "typed": set()}
    assert Config.model_validate(earlier, context=of_a_run).data.labels == 12  # its own config says so


def test_a_run_resumes_with_its_config_file_and_more_steps_on_the_labels_it_began_with(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    yaml = "data: {labels: 40}\ntraining: {steps: 2, batch_size: 4, imitation_steps: 6}\n"
    Path("own.yaml").write_text(yaml)
    run = Run("cvrp", "default")

    def asked(*words, resume=True):
        args = Namespace(workload="cvrp", config=Path("own.yaml"), words=words, resume=resume, restarted=False)
        with run.held():
            run.keep_config(found := run_config.training_config(args, WORKLOAD, run))
        return found.training.steps, found.data.labels

    assert asked(resume=False) == (2, 8)
    run.record({"step": 2})
    assert asked() == (2, 8)
    assert "data" not in capsys.readouterr().err
    for steps in (4, 9, 20):
        assert asked(f"training.steps={steps}") == (steps, 8)
        said = capsys.readouterr().err
        assert f"keeps the data it began with:\n  data.labels: {min(steps, 6) * 4} -> 8" in said
    Path("own.yaml").write_text(yaml.replace("40", "4"))
    with pytest.raises(UserError, match=r"data\.labels: 8 -> 4"):
        asked("training.steps=20")
    Path("own.yaml").write_text(yaml)
    with pytest.raises(UserError, match=r"data\.labels: 8 -> 24"):
        asked("training.steps=20", "data.labels=40")


def test_what_is_stopped_goes_on_from_the_labels_that_are_solved(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(preparation, "INSTANCES_AT_ONCE", 2)
    solved, solve = [], preparation.to_imitate

    def stopped(problem):
        solved.append(problem)
        if len(solved) == 4:
            raise KeyboardInterrupt
        return solve(problem)

    def write(folder):
        return preparation.prepare(config(), folder)

    def prepared_in(folder):
        return prepared.prepare(folder, {}, write, list)

    monkeypatch.setattr(preparation, "to_imitate", stopped)
    with pytest.raises(KeyboardInterrupt):
        prepared_in(tmp_path / "a")
    assert [path.name for path in tmp_path.iterdir() if path.name != ".lock"] == [".a.parts"]
    prepared_in(tmp_path / "a")
    assert len(solved) == 4 + 3  # of five, the first two are not solved again
    prepared_in(tmp_path / "b")
    assert torch.equal(load(tmp_path / "a", "labels")["tour"], load(tmp_path / "b", "labels")["tour"])
    assert not list(tmp_path.glob(".*.parts"))
    (tmp_path / ".a.parts").mkdir()  # as if it had died just before it removed them
    (tmp_path / ".lock").touch()
    prepared_in(tmp_path / "a")
    assert not list(tmp_path.glob(".*.parts"))


def test_imitation_without_labels_is_refused(tmp_path):
    without = Config.model_validate({**config().model_dump(), "data": {**config().data.model_dump(), "labels": 0}})
    preparation.prepare(without, tmp_path)
    with pytest.raises(UserError, match=r"give their number, as data.labels=40000, or training.imitation_steps=0"):
        CvrpTask(without, tmp_path, CPU)
