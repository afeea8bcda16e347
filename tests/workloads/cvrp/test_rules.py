"""Policies for windows, limits and open routes: their steps are the validator's, and commands train and use them."""

import json
import time
from dataclasses import replace

import numpy as np
import pytest
import torch

from models.routing.config import RoutingConfig
from models.routing.environment import Instances, clocks, feasible, replay, reset, routes_of, step
from models.routing.fleet import keeps, plan
from models.routing.inputs import RoutingInput, RoutingSettings, problem_of
from models.routing.policy import RoutingPolicy
from models.routing.problems import Vehicles, cost_of, rules_of
from models.routing.solve import Asked, mended, plan_from, start_of
from pipelines.workloads.cvrp import prepare as preparation
from pipelines.workloads.cvrp.config import Config
from pipelines.workloads.cvrp.imitation import Curriculum
from pipelines.workloads.cvrp.instances.distributions import PROBLEMS, Drawn
from pipelines.workloads.cvrp.instances.generated import Generated, by_size, generate, problems_of
from pipelines.workloads.cvrp.prepare import load, prepare
from pipelines.workloads.cvrp.solvers.validator import InvalidTourError, check
from pipelines.workloads.cvrp.task import CvrpTask
from tests.stages import export, stage
from tests.workloads.cvrp.variants import drawn

CPU = torch.device("cpu")
RULED = [
    pytest.param(name, marks=[] if name == "mixed" else pytest.mark.slow)
    for name, each in PROBLEMS.items()
    if each.reads["rules"]
]


def config(problem="mixed", customers=7, **training):
    data = {"problem": problem, "customers": customers, "capacity": 20}
    data |= {"validation_instances": 20, "test_instances": 20, "labels": 24}
    training = {"steps": 9, "batch_size": 4, "imitation_steps": 5, **training}
    return Config.model_validate({"data": data, "model": {"layers": 1, "width": 16, "heads": 2}, "training": training})


def made(kind="gt", **others):
    torch.manual_seed(1)
    policy = RoutingPolicy(RoutingConfig(kind, 16, 2, 1, **{"rules": True, **others}))
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return policy


def batch_of(problem, count, customers=7):
    fields = generate(config(problem, customers).data, 5, torch.arange(count))
    return Instances.of(fields), problems_of(fields)


def valid(problem, route):
    try:
        check(replace(problem, prizes=np.zeros(len(problem.locs))), [route])
    except InvalidTourError:
        return False
    return True


@pytest.mark.parametrize("problem", RULED)
def test_a_node_may_be_visited_exactly_where_the_validator_allows_the_route(problem):
    instances, problems = batch_of(problem, 16)
    random, state, routes, seen = np.random.default_rng(0), reset(instances, 1), [[] for _ in problems], set()
    for _ in range(14):
        allowed, action = feasible(instances, state, clocks(instances, state))[:, :, 0], []
        for given, route, row, waiting in zip(problems, routes, allowed.tolist(), state.waiting[:, :, 0], strict=True):
            for node in range(1, 8):
                assert row[node] == (bool(waiting[node]) and valid(given, [*route, node]))
                seen.add((row[node], bool(waiting[node]), len(route) > 0))
            action.append(int(random.choice(np.flatnonzero(row))))
        routes = [[*route, node] if node else [] for route, node in zip(routes, action, strict=True)]
        state = step(instances, state, torch.tensor(action)[:, None])
    assert (False, True, True) in seen  # some who wait may not follow
    assert not state.waiting[:, 1:].any()


@pytest.mark.parametrize("problem", RULED)
@pytest.mark.parametrize(
    "kind", ["gt", pytest.param("dgt", marks=pytest.mark.slow), pytest.param("gat", marks=pytest.mark.slow)]
)
def test_tours_are_plans_and_cost_what_is_claimed(kind, problem):
    instances, problems = batch_of(problem, 12)
    rollout = made(kind)(instances, 7, torch.rand(12, 7, 14))
    for given, tours, costs in zip(problems, rollout.actions, rollout.cost.tolist(), strict=True):
        for tour, cost in zip(tours, costs, strict=True):
            check(given, routes_of(tour))
            assert cost_of(given, routes_of(tour)) == pytest.approx(cost, rel=1e-5)


def test_log_probabilities_of_whole_tours_are_those_of_their_steps():
    (instances, _), policy = batch_of("mixed", 12), made()
    noise = torch.rand(12, 7, 14)
    rollout = policy(instances, 7, noise)
    state, cache, total = reset(instances, 7), policy.encode(instances), torch.zeros(12, 7)
    for t in range(rollout.actions.shape[2]):
        action = rollout.actions[..., t]
        scores = policy.decoder(cache, instances, state).log_softmax(1)
        total += scores.gather(1, action[:, None])[:, 0] * (t > 0)
        state = step(instances, state, action)
        if steps := rollout.actions.shape[2] - t - 1:
            again = replay(instances, rollout.actions, begin=t + 1)
            for one, other in zip(state.clock, again.clock, strict=True):
                torch.testing.assert_close(one, other.view(12, 7, steps)[..., 0])
    torch.testing.assert_close(rollout.log_prob, total, rtol=1e-4, atol=1e-4)
    rollout.log_prob.sum().backward()
    assert all(parameter.grad is not None and parameter.grad.isfinite().all() for parameter in policy.parameters())


def test_a_policy_without_rules_has_the_weights_it_had():
    plain, ruled = (RoutingPolicy(RoutingConfig(rules=rules)).state_dict() for rules in (False, True))
    assert set(ruled) - set(plain) == {"embedding.rules.weight", "decoder.clock", "decoder.waits"}


def test_drawn_instances_have_what_their_problem_says_and_every_customer_can_be_served_alone():
    for name, expected in PROBLEMS.items():
        _, problems = batch_of(name, 60)
        if not isinstance(expected, Drawn):
            continue
        has = [
            *([problem.windows is not None for problem in problems],),
            *([problem.vehicles[0].longest < np.inf for problem in problems],),
            *([problem.vehicles[0].limit < np.inf for problem in problems],),
            *([problem.open_routes for problem in problems],),
        ]
        assert [np.mean(each) for each in has] == pytest.approx(list(expected), abs=0.2)
        for problem in problems:
            check(problem, [[customer] for customer in range(1, 8)])


def test_a_plain_problem_is_drawn_as_before():
    plain, mixed = (Generated(config(name).data, 3, CPU).batch(torch.arange(6)) for name in ("cvrp", "mixed"))
    assert "rules" not in plain
    assert all(torch.equal(plain[name], mixed[name]) for name in plain)


@pytest.mark.parametrize("customers", [pytest.param(7, marks=pytest.mark.slow), [5, 8]])
def test_tours_to_imitate_keep_to_the_rules_and_are_learnt_from(tmp_path, customers):
    asked = config(customers=customers)
    prepare(asked, tmp_path)
    source = Curriculum(asked, tmp_path, CPU)
    for begin in range(0, 20, 4):
        batch = source.batch(torch.arange(begin, begin + 4))
        for problem, tours in zip(problems_of(batch), batch["tours"], strict=True):
            for tour in tours:
                check(problem, routes_of(tour))
    fields = load(tmp_path, "validation")
    assert [instances.rules.shape[1:] for _, instances in by_size(fields)]
    task = CvrpTask(asked, tmp_path, CPU)
    for begin in (0, 20):
        loss = task.loss(task.model, task.train.batch(torch.arange(begin, begin + 4))).value
        assert abs(loss.item()) < 1e4  # every tour has a probability
        loss.backward()
    assert all(parameter.grad is not None for parameter in task.model.parameters())
    assert task.score(task.model, task.validation.batch(torch.arange(20)))["cost"].isfinite().all()


def test_a_tour_to_imitate_keeps_the_margin_that_policies_keep(monkeypatch, tmp_path):
    # Both customers fit on a route, which reaches the second at the very moment when it closes.
    places = torch.tensor([[0, 0], [0.5, 0.3], [0.5, 0]])
    first = places[1].norm()
    rules = torch.tensor([[0, 4, 0], [0, first + 0.01, 0], [0, first + 0.3 + 1e-6, 0]])
    rules = torch.cat([rules, torch.tensor([torch.inf, torch.inf, 0]).expand(3, 3)], 1)
    fields = {"locs": places[None], "demand": torch.tensor([[0.0, 1, 1]]), "capacity": torch.tensor([2.0])}
    monkeypatch.setattr(preparation, "generate", lambda *_: {**fields, "rules": rules[None].clone()})
    (problem,) = problems_of({**fields, "rules": rules[None]})
    assert plan(problem, rounds=50).routes == [[1, 2]]
    (tour,) = preparation._tours(config(customers=2).data, tmp_path, torch.arange(1))
    assert sorted(routes_of(torch.from_numpy(tour))) == [[1], [2]]


def test_rules_of_files_are_scaled_with_their_places_and_times_with_the_speed():
    given = {"depot": (10, 10), "customers": [(110, 10), (10, 60)], "demands": [1, 1], "capacity": 2, "speed": 30}
    given |= {"windows": [(500, 700), (480, 600)], "hours": (480, 1080), "service_times": [10, 20], "max_duration": 300}
    rules = rules_of(problem_of(RoutingInput.model_validate({**given, "max_length": 250, "open_routes": True})))
    # A unit of distance takes two of time, and the square's side is 100: 200 of time.
    assert rules[:, 0] == pytest.approx([0, 0.1, 0])
    assert rules[:, 1] == pytest.approx([3, 1.1, 0.6])
    assert rules[:, 2] == pytest.approx([0, 0.05, 0.1])
    assert rules[:, 3:] == pytest.approx(np.tile([2.5, 1.5, 1], (3, 1)))


def test_routes_that_rounding_breaks_are_mended():
    kept = mended_some = 0
    for seed in range(8):
        for kind in ("windows", "duration", "length", "open routes"):
            problem = drawn(kind, seed)
            given = np.random.default_rng(seed).permutation(problem.customers) + 1
            for route in (routes := mended(problem, [given.tolist()])):
                assert keeps(problem, route) == valid(problem, route)
            mended_some += len(routes) > 1
            kept += len(routes) == 1
    assert kept
    assert mended_some


def test_starts_of_a_policy_are_asked_for_and_refused_with_what_it_does_not_read():
    policy, plain = made(), RoutingPolicy(RoutingConfig(width=16, heads=2, layers=1))
    _, (problem, *_) = batch_of("vrptw", 1)
    from_policy, mix = RoutingSettings(starts_from="policy"), RoutingSettings()
    assert start_of(policy, Asked(problem), mix) is None
    check(problem, start_of(policy, Asked(problem), from_policy))
    alone = start_of(policy, Asked(problem), RoutingSettings(milliseconds=0))
    check(problem, alone)
    assert start_of(policy, Asked(problem, 0, [[1, 2]]), from_policy) == [[1, 2]]
    with pytest.raises(ValueError, match="does not read windows, limits and"):
        start_of(plain, Asked(problem), from_policy)
    uneven = np.arange(64.0).reshape(8, 8)
    for parts, reason in (
        ({"matrix": uneven}, "one-way roads"),
        ({"durations": uneven}, "no multiple of the distances"),
        ({"prizes": np.ones(8)}, "left out"),
        ({"fleet": (Vehicles(9), Vehicles(8))}, "several kinds"),
        ({"fleet": (Vehicles(9, fixed=1),)}, "cost something"),
    ):
        with pytest.raises(ValueError, match=reason):
            start_of(policy, Asked(replace(problem, **parts)), from_policy)
    few = replace(problem, fleet=(Vehicles(problem.capacity, 1),))
    with pytest.raises(ValueError, match="but there are 1; give milliseconds"):
        start_of(policy, Asked(few), RoutingSettings(milliseconds=0))


def test_a_slow_policy_leaves_ruin_and_recreate_half_of_the_time(monkeypatch):
    problem = drawn("windows", 0)
    alone = [[customer] for customer in range(1, problem.customers + 1)]

    def slow(*_):
        begun = time.thread_time()
        while time.thread_time() - begun < 0.1:
            pass
        return alone

    monkeypatch.setattr("models.routing.solve.start_of", slow)
    found = plan_from(made(), Asked(problem), RoutingSettings(starts_from="policy", milliseconds=40))
    assert len(found.routes) < len(alone)


def test_a_plain_problem_is_solved_by_a_policy_that_reads_rules():
    _, problems = batch_of("mixed", 12)
    policy = made()
    ruled = {"depot": [0, 0], "customers": [[0, 1]], "demands": [1], "capacity": 2, "windows": [[0, 9]]}
    for milliseconds, by in ((0, "policy"), (1, "policy, then search")):
        (found,) = policy.predict([ruled], milliseconds=milliseconds, starts_from="policy")
        assert found["by"] == by
    for item, problem in enumerate(problems):
        asked = {
            "depot": problem.locs[0].tolist(),
            "customers": problem.locs[1:].tolist(),
            "capacity": 20,
            "item": item,
        }
        (found,) = policy.predict([{**asked, "demands": problem.demand[1:].tolist()}], milliseconds=0)
        check(replace(problem, windows=None, fleet=(), open_routes=False), found["routes"])


@pytest.mark.slow
def test_commands_train_resume_evaluate_and_predict(tmp_path):
    words = [
        "data.problem=mixed",
        "data.customers=8",
        "data.capacity=20",
        "data.labels=40",
        "training.imitation_steps=4",
    ]
    words += ["data.validation_instances=20", "data.test_instances=6", "training.batch_size=8", "model.layers=1"]
    words += ["training.validation_steps=4", "training.checkpoint_steps=4", "training.warmup_steps=2"]
    for more in (["training.steps=8"], ["--resume", "training.steps=12"]):
        done = stage(tmp_path, "train.py", *words, *more)
        assert done.returncode == 0, done.stderr
    settings = ["evaluation.reference_seconds=0.002", "evaluation.milliseconds=3", "evaluation.starts_from=policy"]
    done = stage(tmp_path, "evaluate.py", *settings)
    assert done.returncode == 0, done.stderr
    run = tmp_path / "runs/cvrp/default"
    methods = [row["method"] for row in json.loads((run / "evaluations/test.json").read_text())["table"]]
    assert {"gt, greedy", "gt, multistart x 8 symmetries", "ruin and recreate from gt, 3 ms"} < set(methods)
    assert "ruin and recreate, 2 ms" in methods
    table = "name,x,y,demand,open,close\ndepot,0,0,0,0,900\n"
    (tmp_path / "mine.csv").write_text(
        table + "".join(f"c{i},{9 * i},{i * i},1,{30 * i},{30 * i + 99}\n" for i in range(1, 9))
    )
    for more in ("milliseconds=0", "milliseconds=5"):
        words = ["--name", "default", "mine.csv", "capacity=9", "starts_from=policy", more]
        done = stage(tmp_path, "predict.py", *words)
        answer = json.loads(done.stdout)
        assert sorted(node for route in answer["routes"] for node in route) == list(range(1, 9)), done.stderr
        assert len(answer["arrivals"]) == len(answer["routes"])
    done = export("onnx", "runs/cvrp/default", folder=tmp_path)
    assert "windows" in done.stderr
    assert done.returncode == 2
