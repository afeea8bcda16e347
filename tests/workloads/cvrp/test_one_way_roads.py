"""Policies for one-way roads: instances with a matrix, in whose costs tours are built, learnt and measured."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from common.config import build
from common.errors import UserError
from models.routing import native, stepwise
from models.routing.config import RoutingConfig
from models.routing.decoder import Decoding, PointerDecoder
from models.routing.encoder import DistanceBiasedAttention
from models.routing.environment import Instances, distances_of, replay, routes_of, tour_length
from models.routing.inputs import RoutingInput, RoutingSettings, problem_of
from models.routing.policy import RoutingPolicy
from models.routing.problems import Vehicles, cost_of, distances, to_instances
from models.routing.solve import Asked, start_of
from pipelines.workloads.cvrp.config import Config
from pipelines.workloads.cvrp.imitation import Curriculum
from pipelines.workloads.cvrp.instances.distributions import PROBLEMS
from pipelines.workloads.cvrp.instances.generated import Generated, by_size, generate, problems_of
from pipelines.workloads.cvrp.prepare import load, prepare
from pipelines.workloads.cvrp.solvers.validator import check
from pipelines.workloads.cvrp.task import CvrpTask
from tests.models.routing.policies import make_noise, search
from tests.stages import export, stage
from tests.workloads.cvrp.test_rules import CPU, batch_of, config
from tests.workloads.cvrp.test_rules import made as made_with

KINDS = ["gt", "dgt"]
compiled = pytest.mark.skipif(native.unavailable() is not None, reason=f"no compiler: {native.unavailable()}")


def made(kind="gt", **others):
    return made_with(kind, rules=False, one_way=True, **others)


def test_ways_keep_the_triangle_inequality_and_differ_there_and_back():
    instances, problems = batch_of("acvrp", 6, 12)
    ways = instances.matrix
    straight = (instances.locs[:, :, None] - instances.locs[:, None]).norm(dim=-1)
    for over in range(13):
        assert (ways <= ways[:, :, over, None] + ways[:, over, None] + 1e-6).all()
    assert not ways.diagonal(dim1=1, dim2=2).any()
    assert (ways >= straight - 1e-6).all()
    assert (ways <= PROBLEMS["acvrp"].detour * straight + 1e-6).all()
    assert (ways - ways.mT).abs().mean() > 0.05 * ways.mean()
    for problem, matrix in zip(problems, ways, strict=True):
        assert problem.one_way
        assert np.array_equal(distances(problem), matrix.double().numpy())


def test_an_instance_is_a_plain_one_with_roads_whatever_its_batch():
    plain, roads = (Generated(config(name).data, 3, CPU).batch(torch.arange(6)) for name in ("cvrp", "acvrp"))
    assert all(torch.equal(plain[name], roads[name]) for name in plain)
    alone = generate(config("acvrp").data, 3, torch.tensor([4]))
    assert torch.equal(alone["matrix"][0], roads["matrix"][4])


@pytest.mark.parametrize("kind", KINDS)
def test_tours_are_plans_and_cost_what_the_matrix_says(kind):
    instances, problems = batch_of("acvrp", 12)
    rollout = made(kind)(instances, 7, torch.rand(12, 7, 14))
    there_and_back = 0
    for given, tours, costs in zip(problems, rollout.actions, rollout.cost.tolist(), strict=True):
        for tour, cost in zip(tours, costs, strict=True):
            check(given, routes_of(tour))
            assert cost_of(given, routes_of(tour)) == pytest.approx(cost, rel=1e-5)
            turned = [route[::-1] for route in routes_of(tour)]
            there_and_back += abs(cost_of(given, turned) - cost) > 1e-3
    assert there_and_back > 50


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("tours", [2, 9])  # fewer than nodes, and more: two ways to look up distances
def test_a_step_reads_the_ways_out_of_the_node_it_stands_on(kind, tours):
    (instances, _), decoder = batch_of("acvrp", 3), PointerDecoder(8, 2, kind == "dgt")
    for name, parameter in decoder.named_parameters():
        parameter.data.fill_(name == "distance")  # nothing counts but the distance
    cache = decoder.prepare(torch.zeros(3, 8, 8), distances_of(instances))
    first = torch.arange(tours) % 7 + 1
    found = stepwise.build(Decoding(decoder, cache, instances), tours, None, first)
    state = replay(instances, found)
    logits = decoder(cache, instances, state).view(3, 8, tours, -1)
    for b, each in enumerate(found.tolist()):
        for s, tour in enumerate(each):
            for t, (here, there) in enumerate(zip([0, *tour], tour, strict=False)):
                if t and (here or there):
                    allowed = logits[b, :, s, t] > -1e30
                    nearest = instances.matrix[b, here].where(allowed, torch.inf)
                    assert nearest[there] == nearest.min()


@compiled
@pytest.mark.parametrize("kind", KINDS)
def test_native_code_builds_scores_and_learns_the_same_tours_as_torch(kind):
    (instances, _), policy = batch_of("acvrp", 40, 9), made(kind)
    decoding = Decoding(policy.decoder, policy.encode(instances), instances)
    noise = make_noise(40, 9, 9)
    for uniform in (None, noise):
        found, expected = (code(decoding, 9, uniform) for code in (lambda *x: native.build(*x)[0], stepwise.build))
        steps = min(found.shape[2], expected.shape[2])
        assert (found[..., :steps] != expected[..., :steps]).any(2).float().mean() < 0.02
    results = []
    for log_prob in (native.log_prob, stepwise.log_prob):
        policy.zero_grad()
        scored = log_prob(Decoding(policy.decoder, policy.encode(instances), instances), expected, None, False)
        (scored * torch.arange(9.0)).sum().backward()
        results.append([scored.detach(), *(each.grad for each in policy.parameters())])
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-3 * float(other.abs().max()))


def test_the_encoder_reads_both_directions_and_no_node_numbers():
    (instances, _), policy = batch_of("acvrp", 4), made()
    states = policy.encode(instances).pointer_key
    back = instances._replace(matrix=instances.matrix.mT)
    assert not torch.allclose(policy.encode(back).pointer_key, states, atol=1e-3)
    order = torch.tensor([0, 3, 1, 2, 7, 5, 6, 4])
    renumbered = Instances(
        *(instances.locs[:, order], instances.demand[:, order], instances.capacity, None),
        instances.matrix[:, order][:, :, order],
    )
    torch.testing.assert_close(policy.encode(renumbered).pointer_key, states[:, order], rtol=1e-4, atol=1e-5)
    for name in ("asymmetry.weight", "back"):
        changed = made()
        (weight,) = [each for path, each in changed.named_parameters() if path.endswith(name)]
        weight.data.zero_()
        assert not torch.allclose(changed.encode(instances).pointer_key, states, atol=1e-4)


def test_a_way_back_is_read_as_the_way_there_of_the_mirrored_matrix():
    (instances, _), attention = batch_of("acvrp", 2), DistanceBiasedAttention(16, 2, one_way=True)
    nodes, distance, weights = torch.randn(2, 8, 16), distances_of(instances), torch.tensor([[2.0, -1.0], [1.0, 3.0]])
    for there, back in ((weights, 0 * weights), (0 * weights, weights)):
        attention.distance.data, attention.back.data = there, back
        found = attention(nodes, distance)
        attention.distance.data, attention.back.data = back, there
        torch.testing.assert_close(attention(nodes, distance.mT), found)
        assert not torch.allclose(attention(nodes, distance), found, atol=1e-3)


def test_costs_may_have_any_unit():
    (instances, _), policy = batch_of("acvrp", 8), made()
    found, cost = search(policy, instances)
    other, longer = search(policy, instances._replace(matrix=1000 * instances.matrix))
    assert torch.equal(found, other)
    torch.testing.assert_close(longer, 1000 * cost)
    torch.testing.assert_close(tour_length(instances, found[:, None])[:, 0], cost)
    nothing = instances._replace(matrix=0 * instances.matrix)
    assert not search(policy, nothing)[1].any()


def test_closed_ways_and_places_nobody_knows_leave_the_others_to_be_read():
    instances, _ = batch_of("acvrp", 3, 12)
    closed = instances.matrix.clone()
    closed[:, 3, 5] = closed[:, 7, 2] = 1e9
    shown = distances_of(instances._replace(matrix=closed))
    known = closed < 1e9
    assert torch.allclose(shown.where(known, 0), distances_of(instances).where(known, 0), rtol=0.35, atol=0)
    assert (shown[~known].view(3, -1) > shown.where(known, 0).flatten(1).max(1, keepdim=True).values).all()
    nowhere = distances_of(instances._replace(locs=torch.zeros_like(instances.locs)))
    assert nowhere.mean().item() == pytest.approx(0.52, rel=1e-4)


def test_a_policy_without_a_matrix_has_the_weights_it_had():
    plain, roads = (RoutingPolicy(RoutingConfig(layers=1, one_way=one_way)).state_dict() for one_way in (False, True))
    assert set(roads) - set(plain) == {"embedding.asymmetry.weight", "layers.0.attention.back"}


@pytest.mark.parametrize("customers", [7, [5, 8]])
def test_tours_to_imitate_are_driven_as_their_roads_lead(tmp_path, customers):
    asked = config("acvrp", customers=customers)
    prepare(asked, tmp_path)
    source, labels = Curriculum(asked, tmp_path, CPU), load(tmp_path, "labels")
    solved = zip(problems_of(labels), labels["tour"].long(), strict=True)
    kept = {round(cost_of(problem, routes_of(tour)), 4) for problem, tour in solved}
    for begin in range(0, 20, 4):
        batch = source.batch(torch.arange(begin, begin + 4))
        for problem, tours in zip(problems_of(batch), batch["tours"], strict=True):
            for tour in tours:
                check(problem, routes_of(tour))
                assert round(cost_of(problem, routes_of(tour)), 4) in kept  # none is reversed
    for _, instances in by_size(load(tmp_path, "validation")):
        assert instances.matrix.shape[1:] == (instances.demand.shape[1],) * 2
        assert (instances.matrix.sum(2) > 0).all()
    task = CvrpTask(asked, tmp_path, CPU)
    for begin in (0, 20):
        loss = task.loss(task.model, task.train.batch(torch.arange(begin, begin + 4))).value
        loss.backward()
        assert abs(loss.item()) < 1e4
    assert all(parameter.grad is not None for parameter in task.model.parameters())


def test_a_tour_to_imitate_begins_at_the_first_of_a_route_alone():
    (instances, _), policy = batch_of("acvrp", 5), made()
    tours = policy(instances, 3).actions
    begun = policy(instances, tours=tours).log_prob
    without = policy(instances._replace(matrix=None), tours=tours).log_prob
    exact = policy.log_prob(policy.encode(instances), instances, tours)
    assert (begun >= exact - 1e-4).all()
    assert (without != begun).any()
    one_route = torch.tensor([[[1, 2, 3, 4, 5, 6, 7]]]).expand(5, 1, -1)
    roomy = instances._replace(capacity=torch.full((5,), 99.0))
    cache = policy.encode(roomy)
    torch.testing.assert_close(policy(roomy, tours=one_route).log_prob, policy.log_prob(cache, roomy, one_route))


def test_problems_are_read_with_their_own_costs_and_the_others_refused_by_name():
    _, (problem, *_) = batch_of("acvrp", 1)
    policy, plain = made(), RoutingPolicy(RoutingConfig(width=16, heads=2, layers=1))
    from_policy = RoutingSettings(starts_from="policy")
    check(problem, start_of(policy, Asked(problem), from_policy))
    assert start_of(policy, Asked(problem), RoutingSettings()) is None
    with pytest.raises(ValueError, match=r"not read one-way roads: it was not trained on data\.problem=acvrp; give"):
        start_of(plain, Asked(problem), from_policy)
    late = np.tile([0.0, 9.0], (8, 1))
    for parts in ({"windows": late}, {"open_routes": True}, {"fleet": (Vehicles(20, longest=9.0),)}):
        with pytest.raises(ValueError, match=r"windows, limits and open routes: it was trained on data\.problem=acvrp"):
            start_of(policy, Asked(replace(problem, **parts)), from_policy)
    two = replace(problem, depots=2, fleet=(Vehicles(20), Vehicles(20, depot=1)), matrix=None)
    for reads in (policy, plain):  # what such a problem has, not what others that are no plain CVRP would have
        with pytest.raises(ValueError, match="not read several depots; give"):
            start_of(reads, Asked(two), from_policy)
    few = replace(problem, fleet=(Vehicles(20, 7),), durations=np.arange(64.0).reshape(8, 8))
    check(few, start_of(policy, Asked(few), from_policy))  # times that limit nothing
    longer = replace(problem, rounding="round", matrix=problem.matrix * 10)
    rounded = to_instances([longer], CPU, policy.config)
    assert torch.equal(rounded.matrix, rounded.matrix.round())
    assert rounded.matrix.max() > 1
    assert torch.equal(rounded.matrix[0].double(), torch.from_numpy(distances(longer)))
    assert to_instances([problem], CPU).matrix is None


def test_a_matrix_without_places_and_a_plain_problem_are_answered():
    roads = [[0, 3, 9, 4], [7, 0, 2, 9], [1, 5, 0, 6], [2, 2, 2, 0]]
    given = {"demands": [3, 4, 5], "capacity": 8}
    plain = {**given, "depot": [0, 0], "customers": [[1, 0], [0, 2], [2, 2]]}
    for each in ({**given, "distances": roads}, plain):
        for milliseconds, by in ((0, "policy"), (1, "policy, then search")):
            (found,) = made().predict([each], milliseconds=milliseconds, starts_from="policy")
            problem = problem_of(RoutingInput.model_validate(each))
            check(problem, found["routes"])
            assert found["cost"] == pytest.approx(cost_of(problem, found["routes"]))
            assert found["by"] == by


def test_what_cannot_read_a_matrix_is_refused_with_what_can():
    with pytest.raises(UserError, match=r"data\.problem=acvrp needs model\.kind=gt or dgt \(given gat\)"):
        build(Config, {}, ["data.problem=acvrp", "model.kind=gat"], "made")
    for others in ({"kind": "gat"}, {"rules": True}):
        with pytest.raises(ValueError, match="one_way is true, which needs kind 'gt' or 'dgt' without rules"):
            RoutingPolicy(RoutingConfig(**{"one_way": True, **others}))


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_commands_train_resume_evaluate_predict_and_export(tmp_path, kind):
    words = ["data.problem=acvrp", "data.customers=8", "data.capacity=20", "data.labels=40", f"model.kind={kind}"]
    words += ["data.validation_instances=20", "data.test_instances=6", "training.batch_size=8", "model.layers=1"]
    words += ["training.validation_steps=4", "training.checkpoint_steps=4", "training.imitation_steps=4"]
    words += ["training.warmup_steps=2", "training.schedule=constant"]
    runs = tmp_path / "runs/cvrp"
    for name, more in (("whole", ["training.steps=12"]), ("parts", ["training.steps=8"]), ("parts", ["--resume"])):
        steps = ["training.steps=12"] if more == ["--resume"] else []
        done = stage(tmp_path, "train.py", "--name", name, *words, *more, *steps)
        assert done.returncode == 0, done.stderr
    one, other = ((runs / name / "model/last/model.safetensors").read_bytes() for name in ("whole", "parts"))
    assert one == other
    settings = ["evaluation.reference_seconds=0.002", "evaluation.milliseconds=3", "evaluation.starts_from=policy"]
    done = stage(tmp_path, "evaluate.py", "--name", "parts", *settings)
    assert done.returncode == 0, done.stderr
    methods = [row["method"] for row in json.loads((runs / "parts/evaluations/test.json").read_text())["table"]]
    assert {f"{kind}, multistart x 8 symmetries", f"ruin and recreate from {kind}, 3 ms"} < set(methods)
    (tmp_path / "roads.jsonl").write_text(
        '{"distances": [[0, 3, 9], [7, 0, 2], [1, 5, 0]], "demands": [3, 4], "capacity": 8}\n'
    )
    done = stage(tmp_path, "predict.py", "--name", "parts", "roads.jsonl", "milliseconds=0")
    assert json.loads(done.stdout)["by"] == "policy", done.stderr
    assert export("safetensors", "runs/cvrp/parts", folder=tmp_path).returncode == 0
    for form in ("onnx", "web"):
        done = export(form, "runs/cvrp/parts", folder=tmp_path)
        assert "one-way roads" in done.stderr or "kind 'dgt'" in done.stderr
        assert "data.problem=cvrp" in done.stderr
        assert done.returncode == 2
