"""Native code keeps to windows, limits and open routes as torch does, and draws, scores and learns the same tours."""

import pytest
import torch

from models.routing import native, stepwise
from models.routing.decoder import Decoding
from models.routing.environment import Instances, clocks, feasible, replay, routes_of
from pipelines.workloads.cvrp.instances.distributions import PROBLEMS
from pipelines.workloads.cvrp.solvers.validator import check
from tests.models.routing.policies import make_noise
from tests.workloads.cvrp.test_rules import RULED, batch_of, made

pytestmark = pytest.mark.skipif(native.unavailable() is not None, reason=f"no compiler: {native.unavailable()}")

KINDS = ["gt", "dgt", pytest.param("gat", marks=pytest.mark.slow)]


def decoding_of(policy, instances):
    return Decoding(policy.decoder, policy.encode(instances), instances)


def apart(found, expected):
    """The share of tours (B, S, T) that differ; one of both may end with returns that the other does not write."""
    steps = min(found.shape[2], expected.shape[2])
    assert not found[..., steps:].any()
    assert not expected[..., steps:].any()
    return (found[..., :steps] != expected[..., :steps]).any(2).float().mean().item()


def on_a_grid(generator, batch, customers):
    """Instances whose times and lengths are quarters, so that many meet their limits exactly."""

    def quarters(least, most, *shape):
        return torch.randint(least, most, shape, generator=generator) / 4

    nodes = customers + 1
    locs = torch.stack([quarters(0, 5, batch, nodes), torch.zeros(batch, nodes)], -1)
    opens, service = quarters(0, 8, batch, nodes), quarters(0, 2, batch, nodes)
    limits = quarters(6, 24, batch, 1, 2).expand(-1, nodes, -1)
    opened = torch.randint(2, (batch, 1, 1), generator=generator).expand(-1, nodes, -1)
    rules = torch.cat([torch.stack([opens, opens + quarters(2, 12, batch, nodes), service], -1), limits, opened], -1)
    rules[:, 0, :3] = torch.tensor([0.0, 4, 0])
    demand = torch.randint(1, 5, (batch, nodes), generator=generator).float()
    demand[:, 0] = 0
    return Instances(locs, demand, torch.full((batch,), 12.0), rules)


def in_any_order(generator, batch, customers):
    """Tours (B, 4, T) that serve all customers in random orders, cut into routes anywhere."""
    tours = torch.zeros(batch, 4, 2 * customers, dtype=torch.long)
    for tour in tours.flatten(0, 1):
        ends = (torch.rand(customers, generator=generator) < 0.4).long()
        tour[torch.arange(customers) + ends.cumsum(0) - ends] = torch.randperm(customers, generator=generator) + 1
    return tours


@pytest.mark.parametrize("problem", ["on a grid", *RULED])
def test_a_tour_has_a_probability_exactly_where_torch_allows_every_step(problem):
    generator, policy, seen = torch.Generator().manual_seed(0), made(), []
    for customers in (2, 4, 6):
        drawn = (
            on_a_grid(generator, 300, customers) if problem not in PROBLEMS else batch_of(problem, 300, customers)[0]
        )
        tours = in_any_order(generator, 300, customers)
        with torch.no_grad():
            found = native.log_prob(decoding_of(policy, drawn), tours).isfinite()
        states = replay(drawn, tours)
        allowed = feasible(drawn, states, clocks(drawn, states)).gather(1, tours.flatten(1)[:, None])
        assert torch.equal(found, allowed.view_as(tours).all(2))
        seen.append(found.float().mean().item())
    assert any(0 < share < 1 for share in seen)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("problem", RULED)
def test_every_step_is_the_likeliest_by_torch_as_well(problem, kind):
    policy = made(kind)
    for customers in (2, 7, 26):
        instances, problems = batch_of(problem, 6, customers)
        with torch.no_grad():
            decoding = decoding_of(policy, instances)
            actions, _ = native.build(decoding, customers, first=torch.arange(1, customers + 1))
            logits = policy.decoder(decoding.cache, instances, replay(instances, actions))
        free = logits.unflatten(2, actions.shape[1:])[..., 1:].flatten(2)  # the first step is given
        taken = free.gather(1, actions[..., 1:].flatten(1)[:, None])
        assert (free.max(1, keepdim=True).values - taken).max() < 1e-4
        for given, tours in zip(problems, actions, strict=True):
            for tour in tours:
                check(given, routes_of(tour))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("problem", RULED)
def test_the_same_numbers_draw_the_same_tours(problem, kind):
    policy = made(kind)
    with torch.no_grad():
        policy.decoder.node.weight.mul_(0.3)  # logits so large that they are clipped are equal to torch alone
    for customers, noise in ((7, make_noise(40, 5, 7)), (20, make_noise(40, 5, 20)), (20, None)):
        instances, _ = batch_of(problem, 40, customers)
        with torch.no_grad():
            decoding = decoding_of(policy, instances)
        given = (decoding, 5, noise, None if noise is not None else torch.arange(1, 6))
        assert apart(native.build(*given)[0], stepwise.build(*given)) < 0.01  # where rounding decides


def test_distances_in_units_of_the_spacing_leave_times_as_they_are():
    policy = made(spacing=True)
    instances, _ = batch_of("mixed", 40, 30)
    with torch.no_grad():
        decoding = decoding_of(policy, instances)
    assert not torch.equal(decoding.cache.distance, decoding.fixed[-1])
    given = (decoding, 5, make_noise(40, 5, 30))
    assert apart(native.build(*given)[0], stepwise.build(*given)) < 0.01


@pytest.mark.parametrize(("policy", "problem"), [(made(), "cvrp"), (made(rules=False), "mixed")])
def test_a_policy_without_rules_keeps_to_those_of_a_problem_and_one_with_them_reads_a_plain_one(policy, problem):
    instances, problems = batch_of(problem, 40, 12)
    with torch.no_grad():
        decoding = decoding_of(policy, instances)
    given = (decoding, 5, make_noise(40, 5, 12))
    found = native.build(*given)[0]
    assert apart(found, stepwise.build(*given)) < 0.01
    for one, tours in zip(problems, found, strict=True):
        check(one, routes_of(tours[0]))


def test_customers_that_no_route_can_serve_are_left_out():
    policy, (instances, _) = made(), batch_of("vrptw", 20, 12)
    instances.rules[:, 3, 1] = 0  # closed before anyone arrives
    instances.rules[:, 4, 2] = 9  # served for longer than the depot is open
    with torch.no_grad():
        decoding = decoding_of(policy, instances)
    for given in ((decoding, 9, make_noise(20, 9, 12)), (decoding, 9, None, torch.arange(1, 10)), (decoding, 1)):
        found = native.build(*given)[0]
        assert apart(found, stepwise.build(*given)) < 0.01
        for tour in found[:, 0].tolist():
            assert sorted({*tour, 3, 4}) == list(range(13))
            assert len(tour) <= 24


def gradients_of(policy, value):
    return torch.cat([each.flatten() for each in torch.autograd.grad(value, list(policy.parameters()))])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("problem", RULED)
def test_gradients_of_drawn_tours_are_those_of_torch(monkeypatch, problem, kind):
    policy = made(kind)
    with torch.no_grad():
        policy.decoder.node.weight.mul_(0.3)  # torch loses the slope of tanh to rounding where logits are large
    instances, _ = batch_of(problem, 6, 12)
    weights = torch.randn(6, 12, generator=torch.Generator().manual_seed(0))
    found = policy(instances, 12, make_noise(6, 12, 12))
    gradients = gradients_of(policy, (weights * found.log_prob).sum())
    monkeypatch.setattr(native, "scores", lambda *_: False)
    expected = policy.log_prob(policy.encode(instances), instances, found.actions, forced=True)
    torch.testing.assert_close(found.log_prob, expected, atol=1e-4, rtol=1e-5)
    by_torch = gradients_of(policy, (weights * expected).sum())
    torch.testing.assert_close(gradients, by_torch, atol=3e-5 * by_torch.abs().max().item(), rtol=1e-4)


def test_gradients_of_tours_to_imitate_are_those_of_torch(monkeypatch):
    """Their routes may come in any order, each driven as it is given."""
    policy, (instances, _) = made("dgt"), batch_of("mixed", 8, 12)
    with torch.no_grad():
        policy.decoder.node.weight.mul_(0.3)
        tours = native.build(decoding_of(policy, instances), 3, make_noise(8, 3, 12))[0]
    values = {}
    for own in (True, False):
        monkeypatch.setattr(native, "scores", lambda *_, own=own: own)
        log_prob = policy(instances, tours=tours).log_prob
        values[own] = log_prob, gradients_of(policy, log_prob.sum())
    torch.testing.assert_close(values[True][0], values[False][0], atol=1e-4, rtol=1e-5)
    scale = values[False][1].abs().max().item()
    torch.testing.assert_close(values[True][1], values[False][1], atol=3e-5 * scale, rtol=1e-4)


def test_threads_change_no_tour_and_no_gradient(monkeypatch):
    policy, (instances, _) = made(), batch_of("mixed", 9, 12)
    found = []
    for threads in (1, 3):
        monkeypatch.setattr(torch, "get_num_threads", lambda threads=threads: threads)
        rollout = policy(instances, 12, make_noise(9, 12, 12))
        found.append((rollout.actions, gradients_of(policy, rollout.log_prob.sum())))
    assert torch.equal(found[0][0], found[1][0])
    assert torch.equal(found[0][1], found[1][1])


def test_tours_are_built_in_native_code_wherever_it_is_and_on_cpus_alone():
    instances, _ = batch_of("mixed", 2, 5)
    assert native.decodes(instances)
    assert native.scores(instances)
    assert not native.decodes(instances._replace(locs=instances.locs.to("meta")))
