"""Native code builds the tours that torch does, and its local search finds tours as short as they can be."""

import ctypes
import itertools
import math

import pytest
import torch

from models.routing import native
from models.routing.decoder import Decoding
from models.routing.decodes import Guide
from models.routing.environment import feasible, replay, routes_of, tour_length
from tests.models.routing.policies import assert_valid, length_of, make_instances, make_noise, make_policy

pytestmark = pytest.mark.skipif(native.unavailable() is not None, reason=f"no compiler: {native.unavailable()}")

NEIGHBOURS = 20  # of a customer, with which the local search tries moves (Vidal 2022)


@pytest.mark.parametrize("kind", ["gat", "gt", "dgt"])
@pytest.mark.parametrize(
    ("width", "heads", "customers"),
    [(16, 2, 5), (48, 2, 20), (32, 2, 40), pytest.param(96, 3, 70, marks=pytest.mark.slow)],
)
def test_every_step_is_the_likeliest_by_torch_as_well(kind, width, heads, customers):
    policy = make_policy(kind, width=width, heads=heads)
    instances = make_instances(2 if customers > 50 else 6, customers)
    with torch.no_grad():
        cache = policy.encode(instances)
        actions = native.build(
            Decoding(policy.decoder, cache, instances), customers, first=torch.arange(1, customers + 1)
        )[0]
        assert torch.equal(actions[..., 0], torch.arange(1, customers + 1).expand(len(actions), -1))
        states = replay(instances, actions)
        logits = policy.decoder(cache, instances, states)
    chosen = actions.flatten(1)[:, None]
    assert feasible(instances, states).gather(1, chosen).all()
    free = logits.unflatten(2, actions.shape[1:])[..., 1:].flatten(2)  # the first step is given
    taken = free.gather(1, actions[..., 1:].flatten(1)[:, None])
    assert (free.max(1, keepdim=True).values - taken).max() < 1e-4
    assert_valid(instances, actions, tour_length(instances, actions))


def test_a_tour_among_others_is_the_one_it_is_alone():
    policy, instances, starts = make_policy("dgt"), make_instances(20, 15), torch.arange(1, 16)
    with torch.no_grad():
        cache = policy.encode(instances)
        decoding = Decoding(policy.decoder, cache, instances)
        together, _ = native.build(decoding, 15, first=starts)
        alone = [native.build(decoding, 1, first=starts[j : j + 1])[0] for j in range(15)]
    for j, tours in enumerate(alone):
        assert torch.equal(together[:, j, : tours.shape[2]], tours[:, 0])
        assert not together[:, j, tours.shape[2] :].any()
    routes = [{frozenset(route) for route in routes_of(tour)} for tour in together[0]]
    assert any(one & other for one, other in itertools.combinations(routes, 2))  # they do have routes in common


def test_weights_that_are_no_numbers_leave_customers_out_in_every_tour():
    policy, instances = make_policy("gt"), make_instances(2, 12)
    with torch.no_grad():
        cache = policy.encode(instances)
        broken = cache._replace(pointer_key=cache.pointer_key * torch.nan)
        actions, _ = native.build(Decoding(policy.decoder, broken, instances), 12, first=torch.arange(1, 13))
    assert ((actions > 0).sum(2) < 12).all()


@pytest.mark.parametrize("kind", ["gt", "dgt"])
def test_the_same_numbers_draw_the_same_tours(monkeypatch, kind):
    policy, instances, noise = make_policy(kind), make_instances(8, 20), make_noise(8, 30, 20)
    with torch.no_grad():
        cache = policy.encode(instances)
        drawn = policy.build(cache, instances, 30, Guide(noise))
        monkeypatch.setattr(native, "unavailable", lambda: "not asked for")
        expected = policy.build(cache, instances, 30, Guide(noise))
    steps = min(drawn.shape[2], expected.shape[2])  # torch does not write the last return to the depot
    same = (drawn[..., :steps] == expected[..., :steps]).all(2)
    assert same.float().mean() > 0.99  # a number may fall between two sums that differ by rounding
    assert not drawn[..., steps:].any()


def _gradients(policy, value):
    learnt = [parameter for parameter in policy.parameters() if parameter.requires_grad]
    return torch.cat([gradient.flatten() for gradient in torch.autograd.grad(value, learnt)])


@pytest.mark.parametrize("kind", ["gat", "gt", "dgt"])
@pytest.mark.parametrize(("width", "heads", "customers"), [(16, 2, 5), (64, 4, 20), (48, 2, 33), (20, 4, 9)])
def test_gradients_of_drawn_tours_are_those_of_torch(monkeypatch, kind, width, heads, customers):
    policy = make_policy(kind, width=width, heads=heads)
    with torch.no_grad():
        policy.decoder.node.weight.mul_(0.3)  # torch loses the slope of tanh to rounding where logits are large
    instances, noise = make_instances(4, customers), make_noise(4, customers, customers)
    weights = torch.randn(4, customers, generator=torch.Generator().manual_seed(0))
    found = policy(instances, customers, noise)
    gradients = _gradients(policy, (weights * found.log_prob).sum())
    monkeypatch.setattr(native, "scores", lambda *_: False)
    cache = policy.encode(instances)
    expected = policy.log_prob(cache, instances, found.actions, forced=True)
    torch.testing.assert_close(found.log_prob, expected, atol=1e-4, rtol=1e-5)
    by_torch = _gradients(policy, (weights * expected).sum())
    torch.testing.assert_close(gradients, by_torch, atol=3e-5 * by_torch.abs().max().item(), rtol=1e-4)


@pytest.mark.parametrize("customers", [6, 20])
def test_gradients_of_tours_to_imitate_are_those_of_torch(monkeypatch, customers):
    """Their routes may begin with any end of a route to come."""
    policy, instances = make_policy("dgt"), make_instances(5, customers)
    tours = _improve(instances, 3)[:, None].repeat(1, 2, 1)
    tours[:, 1] = _improve(instances, 1, seed=1)
    values = {}
    for own in (True, False):
        monkeypatch.setattr(native, "scores", lambda *_, own=own: own)
        log_prob = policy(instances, tours=tours).log_prob
        values[own] = log_prob, _gradients(policy, log_prob.sum())
    torch.testing.assert_close(values[True][0], values[False][0], atol=1e-4, rtol=1e-5)
    scale = values[False][1].abs().max().item()
    torch.testing.assert_close(values[True][1], values[False][1], atol=3e-5 * scale, rtol=1e-4)


def test_gradients_do_not_depend_on_the_number_of_threads(monkeypatch):
    policy, instances, noise = make_policy("gt"), make_instances(7, 12), make_noise(7, 12, 12)
    found = []
    for threads in (1, 3):
        monkeypatch.setattr(torch, "get_num_threads", lambda threads=threads: threads)
        found.append(_gradients(policy, policy(instances, 12, noise).log_prob.sum()))
    assert torch.equal(*found)


def test_a_tour_that_is_not_feasible_has_no_probability():
    policy, instances = make_policy("gt"), make_instances(2, 4, capacity=9)
    once = torch.tensor([1, 0, 2, 0, 3, 0, 4, 0])
    twice = torch.tensor([1, 0, 2, 0, 2, 0, 4, 0])
    heavy = torch.tensor([1, 2, 3, 4, 0, 0, 0, 0])
    assert (instances.demand.sum(1) > 9).all()
    with torch.no_grad():
        cache = policy.encode(instances)
        tours = torch.stack([once, twice, heavy]).repeat(2, 1, 1)
        log_prob = native.log_prob(Decoding(policy.decoder, cache, instances), tours)
    assert log_prob[:, 0].isfinite().all()
    assert (log_prob[:, 1:] == -torch.inf).all()


@pytest.mark.parametrize("weights", ["load", "dynamic.hidden.weight"])
def test_weights_that_are_no_numbers_make_a_loss_that_is_none(weights):
    policy, instances = make_policy("dgt"), make_instances(2, 12)
    with torch.no_grad():
        policy.decoder.get_parameter(weights).fill_(torch.nan)
    assert policy(instances, 12, make_noise(2, 12, 12)).log_prob.isnan().all()


def test_under_autocast_torch_computes():
    instances = make_instances(2, 12)
    assert native.scores(instances)
    with torch.autocast("cpu", torch.bfloat16):
        assert not native.scores(instances)


@pytest.mark.parametrize(
    ("compiler", "folder", "reason"),
    [
        ("no-such-compiler", ".", "No such file or directory: 'no-such-compiler'"),
        ("env -u CXX no-such-compiler", ".", "env: "),  # a command of several words
        ("c++ '", ".", "No closing quotation"),
        ("c++", "~no-such-user", "Could not determine home directory"),
    ],
)
def test_without_a_compiler_the_reason_is_given(monkeypatch, tmp_path, compiler, folder, reason):
    native.unavailable.cache_clear()
    native.library.cache_clear()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CXX", compiler)
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", folder)
    assert reason in native.unavailable()
    assert not native.decodes(make_instances(1, 5))
    native.unavailable.cache_clear()
    native.library.cache_clear()


def test_compiling_is_announced_and_not_repeated(monkeypatch, tmp_path, capfd):
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path))
    monkeypatch.setattr(native, "SOURCES", ())
    monkeypatch.setattr(native, "FLAGS", ("-shared", "-fPIC", "-x", "c++", "/dev/null"))  # in no time
    for said in (f"compiling native code, once: half a minute or more; it is kept in {tmp_path}\n", ""):
        native.library.cache_clear()
        native.library()
        assert capfd.readouterr().err == said
    native.library.cache_clear()


def test_a_demand_that_no_vehicle_can_carry_is_refused():
    policy, instances = make_policy("gt"), make_instances(2, 4)
    with torch.no_grad():
        cache = policy.encode(instances)
        for unfit in (21.0, math.nan):
            instances.demand[1, 3] = unfit
            with pytest.raises(ValueError, match="above the capacity"):
                native.build(Decoding(policy.decoder, cache, instances), 2)


def _search_locally(problems, seeds, num_tours, tours=None):
    """Return the best tour (B, T) of a local search from each of `tours` (B, S, T), or of as many random ones.

    Nothing but the whole solver is public: its local search alone is called as the solver calls it.
    """
    return native._search("improve_tours", problems, seeds, num_tours, tours, ctypes.c_int(NEIGHBOURS))


def _anneal(problems, seeds, tours=None, rounds=0, seconds=0.0):
    """Return the best tour (B, T) of ruin and recreate from `tours` (B, T), or from random ones; likewise."""
    words = (ctypes.c_int64(rounds), ctypes.c_double(seconds))
    return native._search("ruin_and_recreate_tours", problems, seeds, 1, tours, *words)


@pytest.mark.parametrize("search", [_search_locally, _anneal])
def test_numbers_that_do_not_lie_side_by_side_give_the_same_tours(search):
    instances = make_instances(6, 20)
    distance = (instances.locs[:, :, None] - instances.locs[:, None]).double().norm(dim=-1)
    given = (instances.demand.double(), instances.capacity.double(), distance)
    apart = [each.repeat_interleave(2, -1)[..., ::2] for each in given]
    budget = {"num_tours": 2} if search is _search_locally else {"rounds": 50}
    assert not any(each.is_contiguous() for each in apart)
    one, other = (search(native.Measured(*each), torch.arange(6), **budget) for each in (given, apart))
    assert torch.equal(one, other)


def _measured(instances):
    distance = (instances.locs[:, :, None] - instances.locs[:, None]).double().norm(dim=-1)
    return native.Measured(instances.demand.double(), instances.capacity.double(), distance)


def _places(instances):
    return native.Measured(instances.demand.double(), instances.capacity.double(), None, instances.locs.double())


def _seeds(instances, seed=0):
    return torch.arange(len(instances.demand)) + 1000 * seed


def _improve(instances, num_tours, tours=None, seed=0):
    return _search_locally(_measured(instances), _seeds(instances, seed), num_tours, tours)


def _optimum(locs, demand, capacity, length=length_of):
    """The least length over all orders of the customers and all ways to cut each into routes."""
    best = math.inf
    for order in itertools.permutations(range(1, len(locs))):
        for cuts in itertools.product([False, True], repeat=len(order) - 1):
            routes = [[order[0]]]
            for node, cut in zip(order[1:], cuts, strict=True):
                routes.append([node]) if cut else routes[-1].append(node)
            if all(sum(demand[node] for node in route) <= capacity for route in routes):
                best = min(best, length(locs, routes))
    return best


def test_local_search_finds_the_optimum_of_small_problems():
    instances = make_instances(4, 5, capacity=12)
    for b, actions in enumerate(_improve(instances, 5)):
        locs, demand = instances.locs[b].tolist(), instances.demand[b].tolist()
        assert length_of(locs, routes_of(actions)) == pytest.approx(_optimum(locs, demand, 12), rel=1e-6)


@pytest.mark.parametrize("capacity", [9, 30, 400])
def test_local_search_returns_solutions_never_longer_than_those_given(capacity):
    instances = make_instances(10, 30, capacity)
    given = torch.zeros(10, 3, 60, dtype=torch.long)
    given[..., ::2] = torch.stack([torch.randperm(30) + 1 for _ in range(30)]).view(10, 3, 30)  # one route for each
    for given_tours in (None, given):
        for b, actions in enumerate(_improve(instances, 3, given_tours)):
            routes = routes_of(actions)
            assert sorted(node for route in routes for node in route) == list(range(1, 31))
            assert all(instances.demand[b, route].sum() <= capacity for route in routes)
            assert length_of(instances.locs[b].tolist(), routes) < length_of(
                instances.locs[b], [[i] for i in range(1, 31)]
            )


def test_local_search_depends_on_its_seed_and_not_on_other_instances():
    instances = make_instances(6, 40, 30)
    together = _improve(instances, 2)
    alone = _improve(instances.rows(slice(1)), 2)
    assert torch.equal(together[:1], alone)
    assert not torch.equal(together, _improve(instances, 2, seed=1))


def test_more_tours_are_no_worse_and_local_optima_have_no_better_2_opt_move():
    instances = make_instances(20, 25, 30)
    lengths = [
        sum(
            length_of(locs.tolist(), routes_of(row))
            for locs, row in zip(instances.locs, _improve(instances, k), strict=True)
        )
        for k in (1, 8)
    ]
    assert lengths[1] < lengths[0]
    for locs, row in zip(instances.locs.tolist(), _improve(instances, 1), strict=True):
        for route in routes_of(row):
            for i, j in itertools.combinations(range(len(route) + 1), 2):
                other = route[:i] + route[i:j][::-1] + route[j:]
                assert length_of(locs, [other]) >= length_of(locs, [route]) - 1e-6


def _neighbours(routes: list[list[int]]):
    """Pairs (routes now, routes after) of relocating and exchanging one or two customers, and of 2-opt*."""
    for one in routes:
        for i, k in itertools.product(range(len(one)), (1, 2)):
            chain, rest = one[i : i + k], one[:i] + one[i + k :]
            yield from (([one], [rest[:j] + chain + rest[j:]]) for j in range(len(rest) + 1))
    for one, two in itertools.permutations(routes, 2):
        for i, j, k in itertools.product(range(len(one)), range(len(two) + 1), (1, 2)):
            chain, rest = one[i : i + k], one[:i] + one[i + k :]
            yield from (([one, two], [rest, two[:j] + moved + two[j:]]) for moved in (chain, chain[::-1]))
            for m in range(1, k + 1):
                exchanged = one[:i] + two[j : j + m] + one[i + k :], two[:j] + chain + two[j + m :]
                yield [one, two], list(exchanged)
        for i, j in itertools.product(range(len(one) + 1), range(len(two) + 1)):
            yield [one, two], [one[:i] + two[j:], two[:j] + one[i:]]
            yield [one, two], [one[:i] + two[:j][::-1], one[i:][::-1] + two[j:]]


@pytest.mark.parametrize("capacity", [15, 30])
def test_no_move_of_the_local_search_shortens_a_local_optimum(capacity):
    instances = make_instances(12, 20, capacity)  # so few that every customer is a neighbour of every other
    for locs, demand, row in zip(*map(torch.Tensor.tolist, instances[:2]), _improve(instances, 1), strict=True):
        away = [[math.dist(a, b) for b in locs] for a in locs]
        for now, after in _neighbours(routes_of(row)):
            if all(sum(demand[node] for node in route) <= capacity for route in after):
                old, new = (
                    sum(away[a][b] for route in each for a, b in itertools.pairwise([0, *route, 0]))
                    for each in (now, after)
                )
                assert new >= old - 1e-6, (now, after)


def test_local_search_never_lengthens_a_tour_that_fills_its_vehicles():
    instances = make_instances(60, 20, 11)
    given = _ruin(instances, rounds=2000)
    improved = _improve(instances, 1, torch.nn.functional.pad(given, (0, 40 - given.shape[1]))[:, None])
    before, after = (tour_length(instances, tours[:, None]) for tours in (given, improved))
    assert_valid(instances, improved[:, None], after)
    assert (after <= before + 1e-5).all()  # float32 adds the same routes up in other orders


def _ruin(instances, tours=None, seed=0, **budget):
    return _anneal(_measured(instances), _seeds(instances, seed), tours, **budget or {"rounds": 300})


@pytest.mark.parametrize("customers", [1, 2, 3, 7, 30, 130])
def test_ruin_and_recreate_serves_every_customer_once(customers):
    instances = make_instances(6, customers)
    for found in (_ruin(instances), _ruin(instances, seconds=2e-3)):
        assert_valid(instances, found[:, None], tour_length(instances, found[:, None]))


def test_ruin_and_recreate_is_a_function_of_its_arguments_and_of_no_neighbour_in_the_batch():
    instances = make_instances(4, 25)
    together = _ruin(instances)
    assert torch.equal(together, _ruin(instances))
    assert torch.equal(together[:1], _ruin(instances.rows(slice(1))))
    assert not torch.equal(together, _ruin(instances, seed=1))


def test_ruin_and_recreate_finds_the_best_tours_of_small_problems_and_loses_no_given_one():
    instances = make_instances(20, 12)
    long = tour_length(instances, _improve(instances, 200)[:, None])
    found = _ruin(instances, rounds=5000)
    assert (tour_length(instances, found[:, None]) <= long * (1 + 1e-5)).float().mean() >= 0.95
    short = _ruin(instances, tours=found, rounds=1)
    assert (tour_length(instances, short[:, None]) <= tour_length(instances, found[:, None]) + 1e-6).all()


def test_ruin_and_recreate_returns_the_best_tour_it_has_seen():
    instances = make_instances(40, 30)
    # The first rounds are the same whatever their number, hot, and followed by longer tours that are accepted.
    few, more = (tour_length(instances, _ruin(instances, rounds=k)[:, None]) for k in (16, 32))
    assert (more <= few + 1e-6).all()


def test_more_rounds_make_shorter_tours_by_less_and_less():
    instances = make_instances(20, 60)
    length = {k: tour_length(instances, _ruin(instances, rounds=k)[:, None]).mean().item() for k in (1, 200, 5000)}
    assert length[200] < 0.9 * length[1]
    assert length[5000] < 0.98 * length[200]


def _solve(instances, seconds=0.0, kinds=("savings",), measured=_places, **words):
    return native.solve(measured(instances), _seeds(instances), seconds, kinds, **words)


@pytest.mark.parametrize("kind", native.KINDS)
@pytest.mark.parametrize("customers", [1, 2, 3, 9, 120])
def test_searches_from_every_start_serve_every_customer_once(kind, customers):
    for capacity in (9, 30, 400):
        instances = make_instances(3, customers, capacity)
        for found in (_solve(instances, 0.0, [kind]), _solve(instances, 2e-3, [kind], group=2, share=0.5)):
            assert_valid(instances, found[:, None], tour_length(instances, found[:, None]))


@pytest.mark.parametrize(("customers", "capacity"), [(1, 9), (9, 30), (250, 30), (250, 2000)])
def test_threads_that_search_together_serve_every_customer_once_and_lose_no_given_tour(customers, capacity):
    instances = make_instances(1, customers, capacity)
    given = _search_locally(_places(instances), _seeds(instances), 1)
    for measured in (_places, _measured):
        found = _solve(instances, 0.02, measured=measured, share=0.2, tours=given[:, None], crew=2)
        cost = tour_length(instances, found[:, None])
        assert_valid(instances, found[:, None], cost)
        assert (cost <= tour_length(instances, given[:, None]) + 1e-6).all()
    if customers == 250:  # the threads' time, without which nothing is left to improve
        assert (cost < tour_length(instances, given[:, None])).all()


def test_time_finds_the_optimum_of_small_problems():
    instances = make_instances(4, 5, capacity=12)
    for share in (1.0, 0.2):
        for b, actions in enumerate(_solve(instances, 2e-3, native.KINDS, share=share)):
            locs, demand = instances.locs[b].tolist(), instances.demand[b].tolist()
            assert length_of(locs, routes_of(actions)) == pytest.approx(_optimum(locs, demand, 12), rel=1e-6)


def test_no_tour_is_longer_than_one_given_and_one_search_is_made_without_time():
    instances = make_instances(6, 30, 30)
    short = _solve(instances, 0.02, share=0.3)
    worst = torch.zeros(6, 1, 60, dtype=torch.long)
    worst[..., ::2] = torch.arange(1, 31)
    for given, kinds in ((worst, ()), (worst, ("random",)), (short[:, None], ())):
        found = _solve(instances, kinds=kinds, tours=given)
        before, after = (tour_length(instances, tours) for tours in (given, found[:, None]))
        assert_valid(instances, found[:, None], after)
        assert (after < before).all() if given is worst else (after <= before + 1e-6).all()
    with pytest.raises(ValueError, match="nothing to start from"):
        _solve(instances, kinds=())


@pytest.mark.parametrize("rounding", native.ROUNDINGS)
def test_distances_between_places_are_rounded_as_asked(rounding):
    instances = make_instances(4, 5, capacity=12)
    instances.locs.mul_(10)
    rounded = {"exact": float, "round": lambda length: math.floor(length + 0.5), "trunc": math.floor}
    rounded["dimacs"] = lambda length: math.floor(10 * length) / 10

    def length(locs, routes):
        steps = [pair for route in routes for pair in itertools.pairwise([0, *route, 0])]
        return sum(rounded[rounding](math.dist(locs[a], locs[b])) for a, b in steps)

    measured = native.Measured(
        instances.demand.double(), instances.capacity.double(), None, instances.locs.double(), rounding
    )
    found = native.solve(measured, _seeds(instances), 2e-3, native.KINDS)
    for actions, locs, demand in zip(found, instances.locs.tolist(), instances.demand.tolist(), strict=True):
        assert length(locs, routes_of(actions)) == pytest.approx(_optimum(locs, demand, 12, length))


def test_distances_on_demand_and_a_matrix_lead_to_the_same_local_optimum():
    instances = make_instances(1, 2100, 60)  # above the number whose distances are held
    matrix = torch.cdist(*[instances.locs.double()] * 2, compute_mode="donot_use_mm_for_euclid_dist")
    given = native.Measured(instances.demand.double(), instances.capacity.double(), matrix)
    costs = []
    for measured in (_places(instances), given):
        found = native.solve(measured, _seeds(instances), 0.0, ["savings"])
        costs.append(tour_length(instances, found[:, None]))
        assert_valid(instances, found[:, None], costs[-1])
    assert costs[0].item() == pytest.approx(costs[1].item(), rel=0.02)
