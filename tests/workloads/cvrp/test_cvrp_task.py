"""REINFORCE on routing policies: the loss, its baselines, and when the rollout baseline is replaced."""

import itertools

import pytest
import torch

from models.routing.environment import Instances
from models.routing.policy import Rollout
from pipelines.workloads.cvrp.config import Config
from pipelines.workloads.cvrp.prepare import prepare
from pipelines.workloads.cvrp.task import CvrpTask, advantages

CPU = torch.device("cpu")
SMALL = {"data": {"customers": 8, "capacity": 15, "validation_instances": 6, "test_instances": 4}}
SMALL |= {"model": {"layers": 1, "width": 16, "heads": 2}}


def config(**training):
    return Config.model_validate({**SMALL, "training": {"steps": 1, **training}})


def task(tmp_path, **training):
    torch.manual_seed(0)
    prepare(config(**training), tmp_path)
    return CvrpTask(config(**training), tmp_path, CPU)


def test_the_loss_of_a_batch_is_the_sum_over_its_parts(tmp_path):
    """Noise goes with the item, not with its place in a batch, so accumulation and processes change nothing."""
    subject = task(tmp_path)
    whole = subject.loss(subject.model, subject.train.batch(torch.arange(6)))
    parts = [subject.loss(subject.model, subject.train.batch(items)) for items in torch.arange(6).split(2)]
    assert whole.value.item() == pytest.approx(sum(part.value.item() for part in parts), abs=1e-3)
    assert float(whole.metrics["cost"]) == pytest.approx(sum(float(part.metrics["cost"]) for part in parts), rel=1e-5)
    assert whole.count == 6


def _gains(cost, best_of):
    """What each of the costs takes off the shortest of the others, times best_of, over all sets of so many."""
    found = []
    for tour, own in enumerate(cost):
        sets = itertools.combinations([*cost[:tour], *cost[tour + 1 :]], best_of - 1)
        gains = [min(own - min(others), 0) for others in sets]
        found.append(best_of * sum(gains) / len(gains))
    return found


@pytest.mark.parametrize("best_of", [2, 3, 5])
def test_an_advantage_is_what_a_tour_takes_off_the_shortest_of_others_less_what_those_do(best_of):
    cost = torch.rand(4, 5, generator=torch.Generator().manual_seed(0), dtype=torch.double)
    cost[3, 1] = cost[3, 4]
    for row, found in zip(cost.tolist(), advantages(cost, best_of).tolist(), strict=True):
        for tour, gain in enumerate(_gains(row, best_of)):
            others = _gains(row[:tour] + row[tour + 1 :], best_of) if best_of < 5 else [0]
            assert found[tour] == pytest.approx(gain - sum(others) / len(others))


@pytest.mark.parametrize(("best_of", "drawn"), [(1, 3), (2, 2), (2, 3), (3, 3), (3, 4)])
def test_advantages_estimate_the_gradient_of_the_mean_cost_of_the_shortest_without_bias(best_of, drawn):
    """By all outcomes of so many draws from four tours, whose probabilities are those of logits."""
    costs = torch.tensor([3.0, 1.0, 2.0, 2.5], dtype=torch.double)
    logits = torch.tensor([0.2, -1.0, 0.5, 0.0], dtype=torch.double, requires_grad=True)
    log_prob = logits.log_softmax(0)
    mean = sum(
        log_prob[list(tours)].sum().exp() * costs[list(tours)].min()
        for tours in itertools.product(range(4), repeat=best_of)
    )
    (expected,) = torch.autograd.grad(mean, logits, retain_graph=True)
    found = torch.zeros(4, dtype=torch.double)
    for tours in map(list, itertools.product(range(4), repeat=drawn)):
        surrogate = (advantages(costs[None, tours], best_of)[0] * log_prob[tours]).mean()
        (gradient,) = torch.autograd.grad(surrogate, logits, retain_graph=True)
        found += log_prob[tours].sum().exp().detach() * gradient
    torch.testing.assert_close(found, expected * (1 - 1 / drawn if best_of == 1 else 1))


def test_the_loss_weighs_log_probabilities_by_advantages(tmp_path):
    subject = task(tmp_path, best_of=4, starts=5)
    batch = subject.train.batch(torch.arange(3))
    cost = torch.tensor([[5.0, 4.0, 3.0, 2.0, 1.0]]).repeat(3, 1)
    log_prob = torch.zeros(3, 5, requires_grad=True)

    def model(instances, num_starts, uniform):
        return Rollout(torch.zeros(3, 5, 1, dtype=torch.long), cost, log_prob)

    subject.loss(model, batch).value.backward()
    torch.testing.assert_close(log_prob.grad, advantages(cost, 4) / 5)


@pytest.mark.parametrize("baseline", ["multistart", "rollout"])
def test_a_baseline_lowers_the_variance_of_the_gradient(tmp_path, baseline):
    subject = task(tmp_path, baseline=baseline)

    def gradients(value):
        flat = []
        for k in range(24):
            rows = [p.grad.flatten() for p in _gradient(subject, value, torch.arange(8 * k, 8 * k + 8))]
            flat.append(torch.cat(rows))
        return torch.stack(flat).var(0).sum()

    assert gradients("advantage") < 0.5 * gradients("cost")


def _gradient(subject, value, items):
    batch = subject.train.batch(items)
    subject.model.zero_grad()
    if value == "advantage":
        (subject.loss(subject.model, batch).value / len(items)).backward()
    else:
        from common.random import uniform

        steps = 2 * subject.config.data.customers
        noise = uniform(subject.noise_key, items, subject.starts * steps).view(len(items), subject.starts, steps)
        found = Instances(batch["locs"], batch["demand"], batch["capacity"])
        rollout = subject.model(found, num_starts=subject.starts, uniform=noise)
        (rollout.cost * rollout.log_prob).mean().backward()
    return [p for p in subject.model.parameters() if p.grad is not None]


def test_the_rollout_baseline_is_replaced_only_by_a_better_model(tmp_path):
    subject = task(tmp_path, baseline="rollout", challenge_instances=200)

    def evaluate(source, score, batch_size=None):
        with torch.no_grad():
            return dict(score(source.batch(torch.arange(source.size))))

    assert subject.after_validation(evaluate)["baseline/replacements"] == 0  # the same model is no better
    before = {name: value.clone() for name, value in subject.baseline.state_dict().items()}
    optimizer = torch.optim.Adam(subject.model.parameters(), 3e-3)
    for k in range(60):
        optimizer.zero_grad()
        subject.loss(subject.model, subject.train.batch(torch.arange(32 * k, 32 * k + 32))).value.backward()
        optimizer.step()
    assert subject.after_validation(evaluate)["baseline/replacements"] == 1
    after = subject.baseline.state_dict()
    assert all(torch.equal(after[name], value) for name, value in subject.model.state_dict().items())
    assert any(not torch.equal(after[name], value) for name, value in before.items())
