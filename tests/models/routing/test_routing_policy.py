"""The policy builds feasible tours whose costs and probabilities are what it says."""

import numpy as np
import pytest
import torch
from scipy import stats

from common.random import uniform
from models import io
from models.routing import environment
from models.routing.config import KINDS, PRESETS, RoutingConfig
from models.routing.decodes import Guide
from models.routing.environment import Instances, reset, route_ends, step
from tests.models.routing.policies import EVERY_ENCODER, assert_valid, make_instances, make_noise, make_policy

# torch_geometric compiles classes with TorchScript when it is imported.
pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.script:DeprecationWarning")


@pytest.mark.parametrize("starts", [1, 6])
@pytest.mark.parametrize(("kind", "neighbors"), EVERY_ENCODER)
def test_parallel_log_probabilities_and_gradients_equal_those_of_single_steps(kind, neighbors, starts):
    policy, instances = make_policy(kind, neighbors), make_instances(3, 6)
    weights = torch.randn(3, starts)
    rollout = policy(instances, num_starts=starts, uniform=make_noise(3, starts, 6))
    (rollout.log_prob * weights).sum().backward()
    parallel = {name: parameter.grad.clone() for name, parameter in policy.named_parameters()}

    policy.zero_grad()
    cache, state = policy.encode(instances), reset(instances, starts)
    log_prob = torch.zeros(3, starts)
    for t, action in enumerate(rollout.actions.unbind(-1)):
        if t > 0 or starts == 1:
            log_prob = (
                log_prob + policy.decoder(cache, instances, state).log_softmax(1).gather(1, action[:, None])[:, 0]
            )
        state = step(instances, state, action)
    (log_prob * weights).sum().backward()

    torch.testing.assert_close(rollout.log_prob, log_prob, rtol=1e-5, atol=1e-5)
    assert rollout.log_prob.min() < -1
    # Gradients of attention to a destination nearly cancel, so float32's rounding of the whole counts there.
    whole = torch.cat([gradient.flatten() for gradient in parallel.values()]).norm().item()
    for name, parameter in policy.named_parameters():
        own = parallel[name].norm().item()
        assert (parallel[name] - parameter.grad).norm().item() < 2e-5 * own + 5e-7 * whole, name


@pytest.mark.parametrize(("kind", "neighbors"), EVERY_ENCODER)
def test_renumbering_the_customers_renumbers_the_scores(kind, neighbors):
    policy, instances = make_policy(kind, neighbors), make_instances(2, 8)
    order = torch.cat([torch.zeros(1, dtype=torch.long), 1 + torch.randperm(8)])
    renumbered = Instances(instances.locs[:, order], instances.demand[:, order], instances.capacity)
    with torch.no_grad():
        scores = policy.decoder(policy.encode(instances), instances, reset(instances, 1))
        other = policy.decoder(policy.encode(renumbered), renumbered, reset(renumbered, 1))
        torch.testing.assert_close(scores[:, order], other, rtol=1e-5, atol=1e-4)
        one, two = policy(instances), policy(renumbered)
    torch.testing.assert_close(one.cost, two.cost)
    assert torch.equal(one.actions, order[two.actions])


@pytest.mark.parametrize("capacity", [9, 20, 1000])
@pytest.mark.parametrize(("kind", "neighbors"), EVERY_ENCODER)
def test_every_tour_is_feasible_and_costs_what_is_claimed(kind, neighbors, capacity):
    policy, instances = make_policy(kind, neighbors), make_instances(4, 9, capacity)
    instances.locs[1] = instances.locs[1].mul(3).round() / 3  # many nodes in one place
    instances.locs[2] = 0.5  # all of them
    instances.demand[3, 1:] = 9
    for starts, noise in [(1, None), (9, None), (1, make_noise(4, 1, 9)), (9, make_noise(4, 9, 9))]:
        rollout = policy(instances, num_starts=starts, uniform=noise)
        assert_valid(instances, rollout.actions, rollout.cost)
        assert rollout.log_prob.isfinite().all()
        assert (rollout.log_prob <= 0).all()


@pytest.mark.parametrize("customers", [1, 2, 3])
def test_the_smallest_instances_are_solved(customers):
    policy, instances = make_policy(), make_instances(3, customers)
    assert_valid(instances, *policy(instances, num_starts=customers)[:2])


@pytest.mark.parametrize(("kind", "neighbors"), EVERY_ENCODER)
def test_a_tour_does_not_depend_on_batch_mates(kind, neighbors):
    policy, instances, noise = make_policy(kind, neighbors), make_instances(5, 8), make_noise(5, 4, 8)
    together = policy(instances, num_starts=4, uniform=noise)
    for b in range(5):
        alone = policy(instances.rows(slice(b, b + 1)), num_starts=4, uniform=noise[b : b + 1])
        steps = min(alone.actions.shape[-1], together.actions.shape[-1])
        assert torch.equal(alone.actions[0, :, :steps], together.actions[b, :, :steps])
        torch.testing.assert_close(alone.log_prob[0], together.log_prob[b], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize(("kind", "neighbors"), EVERY_ENCODER)
def test_half_precision_chooses_no_forbidden_node(kind, neighbors, dtype):
    policy, instances = make_policy(kind, neighbors), make_instances(4, 10)
    with torch.autocast("cpu", dtype):
        rollout = policy(instances, num_starts=10, uniform=make_noise(4, 10, 10))
        scores = policy.decoder(policy.encode(instances), instances, reset(instances, 1))
    assert_valid(instances, rollout.actions, rollout.cost)
    assert rollout.log_prob.dtype == torch.float32
    assert rollout.log_prob.isfinite().all()
    assert (scores.softmax(1)[:, 0] == 0).all()  # the depot, from the depot
    rollout.log_prob.mean().backward()
    assert all(parameter.grad.isfinite().all() for parameter in policy.parameters())


def test_sampled_tours_come_as_often_as_their_probabilities_say():
    policy, instances, tours = make_policy("dgt"), make_instances(1, 3), 20_000
    noise = uniform(3, torch.arange(tours), 6)[None]
    cache = policy.encode(instances)
    with torch.no_grad():
        actions = policy.build(cache, instances, tours, Guide(noise))
        log_prob = policy.log_prob(cache, instances, actions)[0]
    _, kind, counts = actions[0].unique(dim=0, return_inverse=True, return_counts=True)
    probability = torch.zeros(len(counts)).scatter_(0, kind, log_prob.exp())
    assert len(counts) > 10
    assert 0.999 < probability.sum().item() < 1.00001
    frequent = probability * tours > 5
    observed = [*counts[frequent].tolist(), counts[~frequent].sum().item()]
    expected = [*(probability[frequent] * tours).tolist(), tours * (1 - probability[frequent].sum().item())]
    expected = np.array(expected) * (sum(observed) / sum(expected))  # float32 sums: equal to 7 digits only
    assert stats.chisquare(observed, expected).pvalue > 1e-3


def test_the_largest_and_smallest_uniform_numbers_choose_allowed_nodes():
    policy, instances = make_policy("gt"), make_instances(4, 10)
    for number in (0.0, 1 - 2**-23):
        rollout = policy(instances, uniform=torch.full((4, 1, 20), number))
        assert_valid(instances, rollout.actions, rollout.cost)


@pytest.mark.parametrize("noise", [None, make_noise(3, 7, 7)])
def test_of_several_starts_tour_j_begins_at_customer_j_plus_1(noise):
    policy = make_policy("gt")
    actions = policy(make_instances(3, 7), num_starts=7, uniform=noise).actions
    assert torch.equal(actions[:, :, 0], torch.arange(1, 8).expand(3, 7))


@pytest.mark.parametrize("starts", [0, 8])
def test_more_starts_than_customers_are_refused(starts):
    with pytest.raises(ValueError, match=f"num_starts is {starts}; it must be from 1 to 7, the number of customers"):
        make_policy("gt")(make_instances(1, 7), num_starts=starts)


@pytest.mark.parametrize("kind", KINDS)
def test_greedy_tours_are_the_same_every_time(kind):
    policy, instances = make_policy(kind), make_instances(3, 8)
    one, two = policy(instances, num_starts=8), policy(instances, num_starts=8)
    assert all(torch.equal(a, b) for a, b in zip(one, two, strict=True))


def test_no_gradients_no_log_probabilities_and_the_same_tours():
    policy, instances = make_policy("dgt"), make_instances(3, 8)
    with torch.no_grad():
        rollout = policy(instances, num_starts=8)
    assert rollout.log_prob is None
    assert torch.equal(rollout.actions, policy(instances, num_starts=8).actions)


@pytest.mark.parametrize(("kind", "neighbors"), EVERY_ENCODER)
def test_gradient_checkpointing_changes_no_gradient(kind, neighbors):
    policy, instances, gradients = make_policy(kind, neighbors), make_instances(3, 6), []
    for on in (False, True):
        policy.gradient_checkpointing = on
        policy.zero_grad()
        policy(instances, num_starts=6, uniform=make_noise(3, 6, 6)).log_prob.sum().backward()
        gradients.append([parameter.grad.clone() for parameter in policy.parameters()])
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("name", PRESETS)
def test_presets_are_configs(name):
    config = RoutingConfig(**PRESETS[name])
    assert config.width % config.heads == 0


def test_weights_in_half_precision_are_computed_with_in_float32(tmp_path):
    policy, instances = make_policy(), make_instances(4, 9)
    io.save(policy.half(), tmp_path)
    again = io.load(tmp_path)
    assert {parameter.dtype for parameter in again.parameters()} == {torch.float32}
    rollouts = (model(instances, num_starts=9) for model in (again, policy.float()))
    assert all(torch.equal(*pair) for pair in zip(*(rollout[:2] for rollout in rollouts), strict=True))


def test_the_ends_of_routes_are_their_first_and_last_customers():
    tour = torch.tensor([[[1, 2, 3, 0, 4, 0, 5, 6, 0, 0]]])
    assert route_ends(tour, 7)[0, :, 0].nonzero().flatten().tolist() == [1, 3, 4, 5, 6]


def test_routes_and_actions_say_the_same():
    routes = [[3, 1], [2], [4]]
    actions = environment.actions_of(routes, 8)
    assert actions.tolist() == [3, 1, 0, 2, 0, 4, 0, 0]
    assert environment.actions_of(routes, 6).tolist() == [3, 1, 0, 2, 0, 4]
    assert environment.routes_of(actions) == environment.routes_of(actions[:6]) == routes
    assert environment.routes_of(torch.tensor([0, 3, 1, 0, 0, 2, 0, 4])) == routes
    assert environment.padded(actions[None, 3:5], 4).tolist() == [[2, 0, 0, 0]]
