"""A single problem in any form and unit is solved, and anything that is not a problem is refused."""

import itertools
import math

import numpy as np
import pytest
import torch

from common.errors import UserError
from models.routing import fleet, native, solve
from models.routing.environment import Instances, routes_of
from models.routing.inputs import STARTS_FROM, RoutingInput, RoutingSettings, problem_of
from models.routing.problems import Problem
from models.routing.solve import Asked, at_once, best_tours, mended, searched, solve_all
from tests.models.routing.policies import length_of, make_instances, make_policy, search


@pytest.mark.parametrize("array", [torch.Tensor.tolist, torch.Tensor.numpy, torch.Tensor.clone])
def test_solve_takes_any_array_in_any_unit(array):
    policy, (locs, demand, *_) = make_policy("dgt"), make_instances(1, 9)
    routes, cost = policy.solve(array(locs[0]), array(demand[0]), 20)
    assert sorted(itertools.chain(*routes)) == list(range(1, 10))
    assert all(demand[0, route].sum() <= 20 for route in routes)
    assert type(cost) is float
    assert cost == pytest.approx(length_of(locs[0].tolist(), routes), rel=1e-12)
    # Powers of two: nothing is rounded.
    routes, cost = policy.solve(array(locs[0].double() * 2 - 1), array(demand[0]), 20)
    routes_in_units, cost_in_units = policy.solve(array(locs[0].double() * 4096 - 256), array(demand[0]), 20)
    assert routes_in_units == routes
    assert cost_in_units == pytest.approx(2048 * cost, rel=1e-12)


@pytest.mark.parametrize(
    ("fields", "settings", "by"),
    [
        ({}, {}, "policy, then search"),
        ({}, {"milliseconds": 0}, "policy"),
        ({}, {"starts_from": "savings"}, "search without a policy"),
        ({"customers": 40}, {"milliseconds": 1}, "search without a policy"),
        ({"customers": 40}, {"milliseconds": 1, "starts_from": "policy"}, "policy, then search"),
        ({"initial": [[1], [2, 3, 4]]}, {"milliseconds": 1}, "search without a policy"),
        ({"initial": [[1], [2, 3, 4]]}, {"milliseconds": 0}, "the routes given"),
        ({"windows": [[0, 9]] * 4}, {}, "search without a policy"),
        ({"num_vehicles": 2}, {"milliseconds": 0}, "search without a policy"),
    ],
)
@pytest.mark.skipif(native.unavailable() is not None, reason="needs a C++ compiler")
def test_an_answer_says_whether_a_policy_had_a_part_in_it(fields, settings, by):
    count = fields.get("customers", 4)
    places = [[0, number / count] for number in range(1, count + 1)]
    given = {"depot": [0, 0], "demands": [1] * count, "capacity": count, **fields, "customers": places}
    (answer,) = make_policy("gt").predict([given], **settings)
    assert answer["by"] == by


def test_solve_keeps_the_shape_of_a_narrow_map():
    policy, (locs, demand, *_) = make_policy("dgt"), make_instances(1, 9)
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
        (([[0, 0], [1, 1]], [0, 1, 1], 5), "demands must have 1 rows"),
        (([[0, 0, 0], [1, 1, 1]], [0, 1], 5), "depot: "),
        (([], [], 5), "locs and demand must be numbers, the depot first: "),
        (([[0, 0], [1]], [0, 1], 5), "locs and demand must be numbers, the depot first: "),
        (([["a", "b"]], [0], 5), "locs and demand must be numbers, the depot first: "),
        (([[0, 0], [1, float("nan")]], [0, 1], 5), "customers: Input should be"),
        (([[0, 0], [1, 1]], [2, 1], 5), r"demand\[0\] is 2; it is the depot's and must be 0"),
        (([[0, 0], [1, 1]], [0, 1.5], 5), "demands: Input should be a valid integer"),
        (([[0, 0], [1, 1]], [0, -1], 5), "demands: Input should be greater than or equal to 0"),
        (([[0, 0], [1, 1]], [0, 7], 5), "customer 1 asks for 7, more than the capacity of 5; split"),
        (([[0, 0], [1, 1]], [0, 1], 0), "capacity: Input should be greater than or equal to 1"),
        (([[0, 0], [1, 1]], [0, 1], 1.5), "capacity: Input should be a valid integer"),
        (([[0, 0], [1, 1]], [0, 1], "five"), "locs and demand must be numbers"),
        (([[0, 0], [1, 1]], [0, 1], float("inf")), "capacity: Input should be a finite number"),
    ],
)
def test_solve_refuses_what_is_no_problem(problem, message):
    with pytest.raises(ValueError, match=message) as caught:
        make_policy("gt").solve(*problem)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("searches", [{"milliseconds": 0}, {"milliseconds": 8.0}])
def test_solve_notices_weights_that_are_not_finite(searches):
    policy = make_policy("gt")
    with torch.no_grad():
        policy.decoder.load.fill_(math.nan)
    places = [[float(x), float(x * x % 7)] for x in range(13)]
    problem = problem_of(RoutingInput(depot=places[0], customers=places[1:], demands=[1] * 12, capacity=5))
    with pytest.raises(ValueError, match="its weights are not finite numbers"):
        solve_all(policy, [Asked(problem)], RoutingSettings(decode="greedy", **searches))


def _asked(count: int, customers: int) -> list[Asked]:
    fields = zip(*make_instances(count, customers, 30)[:3], strict=True)
    return [
        Asked(Problem(str(item), locs.double().numpy(), demand.long().numpy(), int(capacity), "exact"), item)
        for item, (locs, demand, capacity) in enumerate(fields)
    ]


def test_searches_draw_by_their_seed_and_the_number_of_the_problem():
    problems, items = [asked.problem for asked in _asked(4, 40)], torch.arange(4)
    tours = searched(problems, items, 0, 0.0, "random")
    assert torch.equal(tours, searched(problems, items, 0, 0.0, "random"))
    assert not torch.equal(tours, searched(problems, items, 1, 0.0, "random"))
    assert not torch.equal(tours, searched(problems, items + 4, 0, 0.0, "random"))


@pytest.mark.parametrize("starts_from", STARTS_FROM)
def test_with_time_no_tour_is_longer_than_the_policys(starts_from):
    policy, asked = make_policy("gt"), _asked(6, 30)

    def costs(**searches):
        return [cost for _, cost in solve_all(policy, asked, RoutingSettings(**searches))]

    alone = costs(milliseconds=0)
    found = costs(milliseconds=3.0, starts_from=starts_from)
    assert all(after <= before + 1e-9 for after, before in zip(found, alone, strict=True))


def test_a_plan_is_mended_and_improved_and_never_lost():
    problem = _asked(1, 30)[0].problem
    ((routes, cost),) = solve_all(make_policy("gt"), [Asked(problem)], RoutingSettings(milliseconds=20))
    assert mended(problem, routes) == routes
    missing = routes[0].pop()
    again = mended(problem, [*routes, [missing, missing], list(range(1, 31))])
    assert sorted(itertools.chain(*again)) == list(range(1, 31))
    assert again[-1] == [missing]
    assert sum(problem.demand[again[0]]) <= problem.capacity
    one_route = mended(problem, [list(range(1, 31))])
    assert all(problem.demand[route].sum() <= problem.capacity for route in one_route)
    ((_, mended_cost),) = solve_all(make_policy("gt"), [Asked(problem, 0, again)], RoutingSettings(milliseconds=1))
    assert mended_cost <= cost + 2 * math.dist(problem.locs[0], problem.locs[missing])
    ((kept, _),) = solve_all(make_policy("gt"), [Asked(problem, 0, again)], RoutingSettings(milliseconds=0))
    assert kept == again


def test_distances_of_an_input_are_those_measured():
    places = [[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]]
    apart = [[0, 5, 5], [5, 0, 1], [5, 1, 0]]
    given = {"depot": places[0], "customers": places[1:], "demands": [1, 1], "capacity": 2, "distances": apart}
    ((_, cost),) = solve_all(
        make_policy("gt"), [Asked(problem_of(RoutingInput(**given)))], RoutingSettings(milliseconds=1)
    )
    assert cost == 11
    for wrong, message in (
        ({"distances": [[0, 5], [5, 0]]}, "distances must have 3 rows of 3 numbers"),
        ({"initial": [[1, 3]]}, "initial names customer 3; there are 1 to 2"),
        ({"depot": [True, 0]}, "should be a valid (number|integer), unable to parse string"),
        ({"demands": [1, False]}, "should be a valid (number|integer), unable to parse string"),
        ({"capacity": True}, "should be a valid (number|integer), unable to parse string"),
    ):
        with pytest.raises(ValueError, match=message):
            RoutingInput(**{**given, **wrong})


def test_so_many_problems_are_solved_together_that_their_distances_fit():
    sizes = {
        customers: at_once(Problem("", torch.zeros(customers + 1, 2).numpy(), None, 1, "exact"))
        for customers in (20, 1000, 5000, 10_000)
    }
    assert sizes == {20: 256, 1000: 33, 5000: 1, 10_000: 1}


def test_a_tour_that_visits_a_customer_twice_instead_of_another_is_noticed(monkeypatch):
    (asked,), policy = _asked(1, 5), make_policy("gt")
    instances = make_instances(1, 5, 30)
    monkeypatch.setattr(policy, "build", lambda *_: torch.tensor([[[1, 2, 3, 0, 4, 4]]]))
    items = torch.zeros(1).long()
    with pytest.raises(ValueError, match="leaves customers out"):
        best_tours(policy, [asked.problem], instances, items, RoutingSettings(decode="greedy", milliseconds=0), 0)


def test_few_problems_beyond_one_capacity_have_all_threads_between_them(monkeypatch):
    crews, plan = [], fleet.plan

    def recorded(*given, crew, **settings):
        crews.append(crew)
        return plan(*given, crew=crew, **settings)

    monkeypatch.setattr(fleet, "plan", recorded)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 4)
    given = {"depot": [0, 0], "customers": [[1, 0], [2, 0]], "demands": [1, 1], "capacity": 2, "open_routes": True}
    for count, crew in ((1, 4), (2, 2), (3, 1), (5, 1)):
        crews.clear()
        found = make_policy("gt").predict([given] * count, milliseconds=1)
        assert [(each["routes"], each["cost"]) for each in found] == [([[1, 2]], 2)] * count
        assert crews == [crew] * count


def test_problems_beyond_one_capacity_have_ten_milliseconds_a_customer_unless_told(monkeypatch):
    given = {"depot": [0, 0], "customers": [[1, 0], [2, 0]], "demands": [1, 1], "capacity": 2, "open_routes": True}
    plan, seconds = fleet.plan, []
    monkeypatch.setattr(fleet, "plan", lambda *a, **words: (seconds.append(words["seconds"]), plan(*a, **words))[1])
    for settings in ({}, {"milliseconds": 4}):
        next(make_policy("gt").predict([given], **settings))
    assert 0.01 <= seconds[0] <= 0.02
    assert 0.002 <= seconds[1] <= 0.004
    monkeypatch.setattr(solve, "MOST_BEYOND", 2)
    next(make_policy("gt").predict([given]))
    assert seconds[2] <= 0.002


@pytest.mark.skipif(native.unavailable() is not None, reason="needs a C++ compiler")
def test_without_milliseconds_a_problem_that_the_policy_does_not_read_gets_one_plan_without_a_search(monkeypatch):
    places = [[number % 7, number % 5] for number in range(1, 31)]
    given = {"depot": [3, 3], "customers": places, "demands": [1] * 30, "capacity": 5, "windows": [[0, 999]] * 30}
    asked, plan = [], fleet.plan
    monkeypatch.setattr(fleet, "plan", lambda *a, **words: (asked.append(words), plan(*a, **words))[1])
    first, second = make_policy("gt").predict([given, given], milliseconds=0)
    assert [(words["rounds"], words["seconds"]) for words in asked] == [(1, 0), (1, 0)]
    assert first == second
    assert sorted(node for route in first["routes"] for node in route) == list(range(1, 31))


@pytest.mark.parametrize("starts_from", sorted({*STARTS_FROM} - {"mix", "policy"}))
def test_starts_that_a_problem_of_more_than_capacities_does_not_have_are_refused(starts_from):
    given = {"depot": [0, 0], "customers": [[0, 1]], "demands": [1], "capacity": 1, "num_vehicles": 1}
    (found,) = make_policy("gt").predict([given], starts_from=starts_from, milliseconds=1)
    assert found == {"error": f"starts_from is {starts_from}, which only a plain CVRP knows; give starts_from=mix"}


def test_places_to_sweep_that_are_not_there_are_an_error_that_users_can_mend():
    matrix = (1 - np.eye(4)).tolist()
    given = {"distances": matrix, "demands": [1] * 3, "capacity": 2}
    with pytest.raises(UserError, match=r"starts_from is sweep, but .* no places; give starts_from=mix"):
        list(make_policy("gt").predict([given], starts_from="sweep", milliseconds=1))
