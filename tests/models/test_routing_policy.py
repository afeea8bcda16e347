import itertools
import math

import numpy as np
import pytest
import torch
from scipy import stats
from torch.utils._python_dispatch import TorchDispatchMode

from common.random import uniform
from models.routing.environment import Instances, reset, routes_of, step
from models.routing.gat import DenseGAT, nearest_neighbours, sparse_gat
from models.routing.policy import KINDS, PRESETS, RoutingConfig, RoutingPolicy
from models.routing.search import search, turn

# torch_geometric compiles classes with TorchScript when it is imported.
pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.script:DeprecationWarning")

EVERY_ENCODER = [("gat", 0), ("gat", 4), ("gt", 0), ("dgt", 0)]


def make_policy(kind: str = "dgt", neighbors: int = 0, **sizes: int) -> RoutingPolicy:
    """A small policy, every parameter moved away from its initial value: some start at 0 and would hide mistakes."""
    torch.manual_seed(1)
    policy = RoutingPolicy(RoutingConfig(kind, **{"width": 16, "heads": 2, "layers": 2, **sizes}, neighbors=neighbors))
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return policy


def make_instances(batch: int, customers: int, capacity: int = 20, key: int = 5) -> Instances:
    numbers = uniform(key, torch.arange(batch), 3 * (customers + 1))
    locs, demand = numbers.split([2 * (customers + 1), customers + 1], 1)
    demand = 1 + (9 * demand).floor()
    demand[:, 0] = 0
    return Instances(locs.reshape(batch, -1, 2).clone(), demand, torch.full((batch,), float(capacity)))


def make_noise(batch: int, tours: int, customers: int) -> torch.Tensor:
    return uniform(9, torch.arange(batch), tours * 2 * customers).view(batch, tours, 2 * customers)


def length_of(locs, routes: list[list[int]]) -> float:
    """Length of routes, by nothing but the definition."""
    points = [tuple(map(float, point)) for point in locs]
    paths = [[0, *route, 0] for route in routes]
    return sum(math.dist(points[a], points[b]) for path in paths for a, b in itertools.pairwise(path))


def assert_valid(instances: Instances, actions: torch.Tensor, cost: torch.Tensor) -> None:
    """Actions (B, S, T) serve every customer once, within the capacity, at the cost (B, S) that is claimed."""
    for b, tours in enumerate(actions.tolist()):
        for s, tour in enumerate(tours):
            routes = [list(group) for depot, group in itertools.groupby(tour, lambda node: node == 0) if not depot]
            served = sorted(node for route in routes for node in route)
            assert served == list(range(1, instances.demand.shape[1]))
            for route in routes:
                assert sum(int(instances.demand[b, node]) for node in route) <= int(instances.capacity[b])
            assert cost[b, s].item() == pytest.approx(length_of(instances.locs[b].tolist(), routes), rel=1e-5)


def relative_difference(one: torch.Tensor, other: torch.Tensor) -> float:
    return ((one - other).norm() / one.norm()).item()


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
    for name, parameter in policy.named_parameters():
        assert relative_difference(parallel[name], parameter.grad) < 1e-4, name


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
        alone = policy(Instances(*(tensor[b : b + 1] for tensor in instances)), num_starts=4, uniform=noise[b : b + 1])
        steps = min(alone.actions.shape[-1], together.actions.shape[-1])
        assert torch.equal(alone.actions[0, :, :steps], together.actions[b, :, :steps])
        torch.testing.assert_close(alone.log_prob[0], together.log_prob[b], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("graph", ["complete", "nearest"])
def test_dense_gat_equals_torch_geometric(graph):
    from torch_geometric.nn import GATConv

    dense = DenseGAT(16, 4)
    sparse = GATConv(16, 4, heads=4, edge_dim=1, add_self_loops=False)
    sparse.load_state_dict(dense.state_dict())
    assert sparse_gat(16, 4).state_dict().keys() == dense.state_dict().keys()
    nodes, locs = torch.randn(2, 7, 16), torch.rand(2, 7, 2)
    distance = torch.cdist(locs, locs)
    near = distance <= (distance.kthvalue(3, -1, keepdim=True).values if graph == "nearest" else 9)
    sources = [[(i, j) for i in range(7) for j in range(7) if near[b, i, j]] for b in range(2)]
    assert graph == "complete" or sum(map(len, sources)) == 42
    mixed = dense(nodes, torch.where(near, distance, torch.inf))
    for b in range(2):
        target, source = torch.tensor(sources[b]).T
        expected = sparse(nodes[b], torch.stack([source, target]), distance[b, target, source][:, None])
        torch.testing.assert_close(mixed[b], expected, rtol=1e-5, atol=1e-5)


def test_edges_lead_from_the_nearest_the_node_itself_and_the_depot():
    locs = torch.tensor([[[0.0, 0], [1, 0], [1.1, 0], [1.3, 0], [1.3, 0], [1.3, 0], [1.3, 0]]])
    distance = torch.cdist(locs, locs, compute_mode="donot_use_mm_for_euclid_dist")
    edges, lengths = nearest_neighbours(distance.repeat(2, 1, 1), 2)
    pairs = set(map(tuple, edges.T.tolist()))
    assert {(i, i) for i in range(14)} <= pairs
    assert {(0, i) for i in range(7)} | {(7, 7 + i) for i in range(7)} <= pairs
    assert (2, 1) in pairs
    assert (3, 1) not in pairs
    assert all((source < 7) == (target < 7) for source, target in pairs)
    for (source, target), length in zip(edges.T.tolist(), lengths[:, 0].tolist(), strict=True):
        assert length == pytest.approx(abs(locs[0, source % 7, 0] - locs[0, target % 7, 0]).item())


def test_with_all_neighbours_the_sparse_encoder_equals_the_dense_one():
    dense, sparse, instances = make_policy("gat"), make_policy("gat", neighbors=50), make_instances(3, 8)
    sparse.load_state_dict(dense.state_dict())
    for one, other in zip(dense.encode(instances), sparse.encode(instances), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


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
        actions, states = policy.build(cache, instances, tours, uniform=noise, record=True)
        log_prob = policy.log_prob(cache, instances, actions, states, forced=False)[0]
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


class LargestTensor(TorchDispatchMode):
    """Records the largest number of elements of any tensor that is made."""

    elements = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for tensor in out if isinstance(out, tuple | list) else [out]:
            if isinstance(tensor, torch.Tensor):
                self.elements = max(self.elements, tensor.numel())
        return out


def test_a_thousand_customers_fit_into_bounded_memory_with_neighbours():
    policy, instances = make_policy("gat", neighbors=10, layers=1), make_instances(1, 1000, 150)
    with torch.no_grad():
        rollout = policy(instances)
        with LargestTensor() as largest:
            policy.encode(instances)
    assert_valid(instances, rollout.actions, rollout.cost)
    assert largest.elements == 2 * 1001**2  # differences of coordinates; a dense layer of two heads has more than one


@pytest.mark.parametrize("name", ["small", "medium", "large"])
def test_presets_are_configs(name):
    config = RoutingConfig(**PRESETS[name])
    assert config.width % config.heads == 0


# --- search ------------------------------------------------------------------------------------------------------


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
@pytest.mark.parametrize("decode", ["greedy", "sampling", "multistart"])
@pytest.mark.parametrize(("kind", "neighbors"), EVERY_ENCODER)
def test_the_best_tour_found_is_valid_and_costs_what_is_claimed(kind, neighbors, decode, augment):
    policy, instances = make_policy(kind, neighbors), make_instances(3, 7)
    actions, cost = search(policy, instances, decode, samples=5, augment=augment)
    assert (actions.dtype, cost.dtype, cost.shape) == (torch.int64, torch.float32, (3,))
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


@pytest.mark.parametrize("decode", ["greedy", "sampling", "multistart"])
def test_how_work_is_cut_does_not_change_the_result(decode):
    policy, instances = make_policy("dgt"), make_instances(2, 5)
    _, whole = search(policy, instances, decode, samples=4)
    for max_scores in (1, 6 * 3, 6 * 20):  # tours one by one; three at a time; several instances at a time
        # Costs, not actions: between a tour and its reverse the last bit of a sum decides.
        torch.testing.assert_close(search(policy, instances, decode, samples=4, max_scores=max_scores)[1], whole)


def test_sampling_depends_on_seed_and_item_only_and_more_samples_extend_fewer():
    policy, instances = make_policy("gt"), make_instances(4, 8)
    options = {"samples": 3, "augment": False}
    _, cost = search(policy, instances, "sampling", items=torch.tensor([10, 11, 12, 13]), **options)
    part = Instances(*(tensor[[3, 1]] for tensor in instances))
    _, cost_of_part = search(policy, part, "sampling", items=torch.tensor([13, 11]), **options)
    torch.testing.assert_close(cost[[3, 1]], cost_of_part)
    assert not torch.allclose(search(policy, instances, "sampling", **options)[1], cost)
    assert not torch.allclose(search(policy, instances, "sampling", **options, seed=1)[1], cost)
    _, more = search(policy, instances, "sampling", items=torch.tensor([10, 11, 12, 13]), samples=30, augment=False)
    assert (more <= cost).all()
    _, turned = search(policy, instances, "sampling", items=torch.tensor([10, 11, 12, 13]), samples=3)
    assert (turned <= cost).all()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"decode": "beam"}, "decode is 'beam'; known: greedy, sampling, multistart"),
        ({"starts": 8}, "starts is 8; it must be from 1 to 7, the number of customers"),
        ({"starts": 0}, "starts is 0; it must be from 1 to 7"),
        ({"decode": "greedy", "starts": 3}, "starts is 3, but decode is 'greedy'; starts need decode 'multistart'"),
        ({"decode": "sampling", "samples": 0}, "samples is 0; it must be from 1 to 1048576"),
    ],
)
def test_search_refuses_settings_that_do_not_fit(settings, message):
    with pytest.raises(ValueError, match=message):
        search(make_policy("gt"), make_instances(1, 7), **settings)


# --- solve -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("array", [torch.Tensor.tolist, torch.Tensor.numpy, torch.Tensor.clone])
def test_solve_takes_any_array_in_any_unit(array):
    policy, (locs, demand, _) = make_policy("dgt"), make_instances(1, 9)
    routes, cost = policy.solve(array(locs[0]), array(demand[0]), 20)
    assert sorted(itertools.chain(*routes)) == list(range(1, 10))
    assert all(demand[0, route].sum() <= 20 for route in routes)
    assert type(cost) is float
    assert cost == pytest.approx(length_of(locs[0].tolist(), routes), rel=1e-12)
    in_units = locs[0].double() * 4096 - 256  # powers of two: nothing is rounded
    routes_in_units, cost_in_units = policy.solve(array(in_units), array(demand[0]), 20)
    assert routes_in_units == routes
    assert cost_in_units == pytest.approx(4096 * cost, rel=1e-12)


def test_solve_keeps_the_shape_of_a_narrow_map():
    policy, (locs, demand, _) = make_policy("dgt"), make_instances(1, 9)
    narrow = locs[0].double() * torch.tensor([1.0, 0.01])
    routes, cost = policy.solve(narrow, demand[0], 20, decode="greedy", augment=False)
    seen = (narrow - narrow.min(0).values) / (narrow[:, 0].max() - narrow[:, 0].min())
    actions, _ = search(policy, Instances(seen[None].float(), demand, torch.tensor([20.0])), "greedy", augment=False)
    assert routes == routes_of(actions[0])
    assert cost == pytest.approx(length_of(narrow.tolist(), routes))


@pytest.mark.parametrize("settings", [{"decode": "greedy"}, {"decode": "sampling", "samples": 4}, {"starts": 2}])
def test_solve_takes_the_settings_of_search(settings):
    routes, _ = make_policy("gt").solve([[0, 0], [3, 4], [3, 4], [6, 8]], [0, 1, 2, 3], 3, seed=3, **settings)
    assert sorted(itertools.chain(*routes)) == [1, 2, 3]


def test_solve_knows_trivial_problems():
    policy = make_policy("gt")
    assert policy.solve([[5, 5]], [0], 10) == ([], 0.0)
    assert policy.solve([[0, 0], [3, 4]], [0, 1], 1) == ([[1]], 10.0)
    routes, cost = policy.solve([[7, 7]] * 3, [0, 1, 1], 2)
    assert (sorted(itertools.chain(*routes)), cost) == ([1, 2], 0.0)


@pytest.mark.parametrize(
    ("problem", "message"),
    [
        (([[0, 0], [1, 1]], [0, 1, 1], 5), r"demand has shape \[3\]; it must be \(2,\), one number for each of locs"),
        (([[0, 0, 0]], [0], 5), r"locs has shape \[1, 3\]; it must be \(N, 2\), the depot first"),
        (([], [], 5), r"locs has shape \[0\]; it must be \(N, 2\)"),
        (([[0, 0], [1]], [0, 1], 5), "locs must be numbers: "),
        (([["a", "b"]], [0], 5), "locs must be numbers: "),
        (([[0, 0], [1, float("nan")]], [0, 1], 5), "locs has values that are not finite numbers"),
        (([[0, 0], [1, 1]], [2, 1], 5), r"demand\[0\] is 2; it is the depot's and must be 0"),
        (([[0, 0], [1, 1]], [0, 1.5], 5), r"demand\[1\] is 1.5; it must be a whole number, 0 or more"),
        (([[0, 0], [1, 1]], [0, -1], 5), r"demand\[1\] is -1; it must be a whole number"),
        (([[0, 0], [1, 1]], [0, 7], 5), r"demand\[1\] is 7; it is more than a vehicle's capacity of 5; split"),
        (([[0, 0], [1, 1]], [0, 1], 0), "capacity is 0; it must be a whole number from 1 to 16777216"),
        (([[0, 0], [1, 1]], [0, 1], 1.5), "capacity is 1.5; it must be a whole number"),
        (([[0, 0], [1, 1]], [0, 1], "five"), "capacity must be numbers: "),
        (([[0, 0], [1, 1]], [0, 1], float("inf")), "capacity has values that are not finite numbers"),
    ],
)
def test_solve_refuses_what_is_no_problem(problem, message):
    with pytest.raises(ValueError, match=message) as caught:
        make_policy("gt").solve(*problem)
    assert "\n" not in str(caught.value)


def test_solve_notices_weights_that_are_not_finite():
    policy = make_policy("gt")
    with torch.no_grad():
        policy.decoder.load.fill_(math.nan)
    with pytest.raises(ValueError, match="weights that are not finite"):
        policy.solve([[0, 0], [3, 4], [4, 3]], [0, 1, 1], 2)
