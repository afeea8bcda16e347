"""The search returns the best of all tours that the strategy and the symmetries allow."""

import pytest
import torch

from models.routing import decodes
from models.routing import search as routing_search
from models.routing.decodes import DECODES
from models.routing.search import turn
from tests.models.routing.policies import EVERY_ENCODER, assert_valid, make_instances, make_policy, search

# torch_geometric compiles classes with TorchScript when it is imported.
pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.script:DeprecationWarning")


def test_the_symmetries_are_the_eight_of_the_square():
    corner = torch.tensor([[0.1, 0.2]]).repeat(8, 1, 1)
    images = turn(corner, torch.arange(8))[:, 0]
    expected = {(0.1, 0.2), (0.9, 0.2), (0.1, 0.8), (0.9, 0.8), (0.2, 0.1), (0.2, 0.9), (0.8, 0.1), (0.8, 0.9)}
    assert {(round(x, 6), round(y, 6)) for x, y in images.tolist()} == expected
    assert torch.equal(images[0], corner[0, 0])
    locs = torch.rand(1, 5, 2).repeat(8, 1, 1)
    torch.testing.assert_close(
        torch.cdist(turn(locs, torch.arange(8)), turn(locs, torch.arange(8))), torch.cdist(locs, locs)
    )


@pytest.mark.parametrize("augment", [False, True])
@pytest.mark.parametrize("decode", DECODES)
@pytest.mark.parametrize(("kind", "neighbors"), EVERY_ENCODER)
def test_the_best_tour_found_is_valid_and_costs_what_is_claimed(kind, neighbors, decode, augment):
    policy, instances = make_policy(kind, neighbors), make_instances(3, 7)
    actions, cost = search(policy, instances, decode, samples=5, augment=augment)
    assert (actions.dtype, actions.shape, cost.dtype, cost.shape) == (torch.int64, (3, 14), torch.float32, (3,))
    assert_valid(instances, actions[:, None], cost[:, None])
    assert not cost.requires_grad


def test_search_keeps_the_best_of_all_starts_and_symmetries():
    policy, instances = make_policy("gt"), make_instances(4, 7)
    costs = []
    for symmetry in range(8):
        turned = instances._replace(locs=turn(instances.locs, torch.full((4,), symmetry)))
        costs.append(policy(turned, num_starts=7).cost)
    torch.testing.assert_close(search(policy, instances, augment=False)[1], costs[0].min(1).values)
    torch.testing.assert_close(search(policy, instances, augment=False, starts=3)[1], costs[0][:, :3].min(1).values)
    torch.testing.assert_close(search(policy, instances)[1], torch.stack(costs).amin((0, 2)))
    assert (search(policy, instances, "greedy")[1] <= search(policy, instances, "greedy", augment=False)[1]).all()


@pytest.mark.parametrize("decode", DECODES)
def test_how_work_is_cut_does_not_change_the_result(monkeypatch, decode):
    policy, instances = make_policy("dgt"), make_instances(2, 5)
    _, whole = search(policy, instances, decode, samples=4)
    for most in (1, 6 * 3, 6 * 20):  # tours one by one; three at a time; several instances at a time
        monkeypatch.setattr(routing_search, "MOST_SCORED", most)
        # Costs, not actions: between a tour and its reverse the last bit of a sum decides.
        torch.testing.assert_close(search(policy, instances, decode, samples=4)[1], whole)


def test_sampling_depends_on_seed_and_item_only_and_more_samples_extend_fewer():
    policy, instances = make_policy("gt"), make_instances(4, 8)
    options = {"samples": 3, "augment": False}
    _, cost = search(policy, instances, "sampling", items=torch.tensor([10, 11, 12, 13]), **options)
    part = instances.rows(torch.tensor([3, 1]))
    _, cost_of_part = search(policy, part, "sampling", items=torch.tensor([13, 11]), **options)
    torch.testing.assert_close(cost[[3, 1]], cost_of_part)
    assert not torch.allclose(search(policy, instances, "sampling", **options)[1], cost)
    other = search(policy, instances, "sampling", items=torch.tensor([10, 11, 12, 13]), **options, seed=1)
    assert not torch.allclose(other[1], cost)
    _, more = search(policy, instances, "sampling", items=torch.tensor([10, 11, 12, 13]), samples=30, augment=False)
    assert (more <= cost).all()
    _, turned = search(policy, instances, "sampling", items=torch.tensor([10, 11, 12, 13]), samples=3)
    assert (turned <= cost).all()


def test_every_tour_of_every_symmetry_and_instance_is_drawn_by_noise_of_its_own(monkeypatch):
    policy, uniforms = make_policy("gt"), []
    build = policy.build

    def recorded(cache, instances, num_tours, guide):
        uniforms.append(guide.uniform)
        return build(cache, instances, num_tours, guide)

    monkeypatch.setattr(policy, "build", recorded)
    search(policy, make_instances(2, 5), "sampling", samples=3)
    noise = torch.cat([uniform.flatten(0, 1) for uniform in uniforms])
    assert len(noise) == len(noise.unique(dim=0)) == 2 * 8 * 3


def test_without_a_number_of_starts_there_is_one_for_each_customer_up_to_two_hundred():
    tours = [decodes.multistart(customers, 1, None, 0).num_tours for customers in (20, 200, 1000)]
    assert tours == [20, 200, 200]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"decode": "beam"}, "decode: Input should be 'greedy', 'sampling' or 'multistart' .given 'beam'"),
        ({"starts": 8}, "starts is 8, but there are only 7 customers"),
        ({"starts": 0}, "starts: Input should be greater than or equal to 1"),
        ({"decode": "greedy", "starts": 3}, "starts=3 needs decode=multistart .given greedy"),
        ({"decode": "sampling", "samples": 0}, "samples: Input should be greater than or equal to 1"),
    ],
)
def test_solve_refuses_settings_that_do_not_fit(settings, message):
    with pytest.raises(ValueError, match=message):
        make_policy("gt").solve([[0, 0]] * 8, [0, *[1] * 7], 3, **settings)


def test_starts_are_bounded_unless_more_are_asked_for(monkeypatch):
    monkeypatch.setattr(decodes, "MOST_STARTS", 3)
    policy, instances = make_policy("gt"), make_instances(3, 7)
    assert torch.equal(
        search(policy, instances, augment=False)[1], search(policy, instances, augment=False, starts=3)[1]
    )
    assert (search(policy, instances, augment=False, starts=7)[1] <= search(policy, instances, augment=False)[1]).all()


@pytest.mark.parametrize(
    ("most", "samples", "at_once"),
    [
        (2 * 6 * 6, 4, {(2, 4)}),  # the encoder's pairs of 6 nodes count, where tours are fewer
        (2 * 6 * 20, 20, {(2, 20)}),
        (2 * 6 * 20 - 1, 20, {(1, 20)}),
        (6 * 15, 20, {(1, 15), (1, 5)}),  # tours of one instance in turn
        (5, 4, {(1, 1)}),
    ],
)
def test_so_many_instances_and_tours_are_built_at_a_time_as_memory_is_given_for(monkeypatch, most, samples, at_once):
    policy, shapes = make_policy("gt"), set()
    build = policy.build

    def recorded(cache, instances, num_tours, guide):
        shapes.add((len(instances.locs), num_tours))
        return build(cache, instances, num_tours, guide)

    monkeypatch.setattr(policy, "build", recorded)
    monkeypatch.setattr(routing_search, "MOST_SCORED", most)
    search(policy, make_instances(2, 5), "sampling", samples=samples)
    assert shapes == at_once
