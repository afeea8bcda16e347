"""The evaluation leaves out what cannot solve a set of problems, and says so, or refuses it by name."""

import json

import numpy as np
import pytest
import torch

from common.errors import UserError
from common.statistics import mean_and_half_width
from models.routing.config import RoutingConfig
from models.routing.policy import RoutingPolicy
from pipelines.workloads.cvrp import evaluation, report
from pipelines.workloads.cvrp.config import Config
from pipelines.workloads.cvrp.solvers import solving
from pipelines.workloads.cvrp.solvers.solving import Solved
from tests.workloads.cvrp.files import SMALL, vrp
from tests.workloads.cvrp.test_edge_weight_types import explicit

CPU = torch.device("cpu")


def alone(source, function, batch_size=64):
    parts = [function(source.batch(items)) for items in torch.arange(source.size).split(batch_size)]
    return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}


def evaluated(path, model=None, rules=False, **settings):
    kind = "gt" if model else "savings"
    settings = {"instances": str(path), "reference_seconds": 0.001, "augment": False, **settings}
    config = Config.model_validate({"model": {"kind": kind}, "evaluation": settings})
    torch.manual_seed(0)
    models = {"made": RoutingPolicy(RoutingConfig(width=16, heads=2, layers=1, rules=rules))} if model else {}
    (found,) = evaluation.evaluate(config, models, path.parent, CPU, alone)
    return found


def test_a_network_solves_a_matrix_in_the_plane_and_is_measured_by_the_matrix(tmp_path):
    whole = np.rint(100 * np.random.default_rng(0).random((6, 6)))
    found = evaluated(vrp(tmp_path, explicit(whole + whole.T, "UPPER_ROW")), model=True)
    costs = {row["method"]: row["cost"] for row in found.table}
    assert any(method.startswith("search from gt and mix") for method in costs)
    assert costs["search from gt and mix, 5 ms"] == costs["HGS, 1 ms"] == min(costs.values())
    assert all(cost == int(cost) for cost in costs.values())


def test_searches_from_savings_stand_beside_the_models_at_its_time_and_at_the_solvers(tmp_path):
    found = evaluated(vrp(tmp_path, SMALL), model=True, milliseconds=3, starts_from="policy")
    costs = {row["method"]: row["cost"] for row in found.table}
    assert found.summary["cost_search"] == costs["search from gt, 3 ms"]
    assert found.summary["last"] == "search from gt, 3 ms"
    for name in ("randomised savings + local search", "savings, then ruin and recreate"):
        assert {f"{name}, 1 ms", f"{name}, 3 ms"} < set(costs)
    alone = evaluated(vrp(tmp_path, SMALL), model=True, milliseconds=0)
    assert not [row for row in alone.table if "search" in row["method"] and "PyVRP" not in row["method"]]


@pytest.mark.parametrize("model", [None, True])
def test_a_limit_on_routes_is_kept_to_by_native_search_and_pyvrp(tmp_path, capsys, model):
    path = vrp(tmp_path, SMALL.replace("CAPACITY", "DISTANCE : 107\nCAPACITY"))
    found = evaluated(path, model)
    assert found.summary["decode"] == "ruin and recreate, 5 ms"
    assert found.summary["cost"] == min(row["cost"] for row in found.table)
    assert "is more than a plain CVRP: native ruin and recreate solves it, no network" in capsys.readouterr().err


def test_the_import_of_pyvrp_is_not_in_its_time(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(solving, "pyvrp_plan", lambda problem, *_: asked.append(problem.name))
    evaluated(vrp(tmp_path, SMALL.replace("CAPACITY", "DISTANCE : 107\nCAPACITY")))
    assert asked[:2] == ["trifle", "small"]


def test_solvers_have_as_much_time_as_the_model_if_asked_to(tmp_path):
    methods = [row["method"] for row in evaluated(vrp(tmp_path, SMALL), milliseconds=3, reference_seconds=None).table]
    assert [method for method in methods if method.startswith("HGS")] == ["HGS, 3 ms"]
    assert not [method for method in methods if method.endswith(" ms") and not method.endswith(", 3 ms")]


@pytest.mark.parametrize("milliseconds", [0.123, 1.001])
def test_methods_of_equal_time_have_one_row_each(tmp_path, milliseconds):
    for text in (SMALL, SMALL.replace("CAPACITY", "DISTANCE : 107\nCAPACITY")):
        for seconds in (milliseconds / 1000, None):
            found = evaluated(vrp(tmp_path, text), milliseconds=milliseconds, reference_seconds=seconds)
            methods = [row["method"] for row in found.table]
            assert len(methods) == len(set(methods)) > 1


def test_a_policy_whose_tours_take_too_many_vehicles_is_left_out_and_the_others_are_compared(tmp_path, capsys):
    text = SMALL.replace("TYPE : CVRP", "TYPE : VRPTW\nVEHICLES : 1").replace("CAPACITY : 100", "CAPACITY : 255")
    times = "TIME_WINDOW_SECTION\n1 0 999\n2 0 300\n3 100 110\n4 200 210\n5 300 310\n6 400 410\n"
    found = evaluated(vrp(tmp_path, text.replace("DEPOT_", f"{times}DEPOT_")), model=True, rules=True, decode="greedy")
    said = capsys.readouterr().err
    assert "the policy's own tours are left out, as not all are solutions (small: " in said
    assert "vehicles of kind 0 are used; there are 1)" in said
    assert found.summary["last"] == found.table[0]["method"] == "ruin and recreate, 5 ms"


def test_pictures_know_where_routes_begin_and_whether_they_end_there(tmp_path):
    text = SMALL.replace("TYPE : CVRP", "TYPE : OVRP").replace("6 25", "6 0").replace(" 1\n -1", " 1\n 6\n -1")
    found = evaluated(vrp(tmp_path, text))
    drawing = json.loads(found.files["small.tours.jsonl"])
    assert drawing["open_routes"] is True
    assert len(drawing["ends"]) == len(drawing["routes"])
    assert {*drawing["ends"]} <= {0, 5}


def test_very_many_customers_are_for_the_heuristics_and_our_own_searches(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(evaluation, "MOST_CUSTOMERS", 4)
    path = vrp(tmp_path, SMALL)
    found = {row["method"].rpartition(",")[0] for row in evaluated(path).table[1:]}
    assert found == {"randomised savings + local search", "savings, then ruin and recreate"}
    assert "more than 4 are too many for HGS and PyVRP" in capsys.readouterr().err
    with pytest.raises(UserError, match="more than 4 are too many for networks, which compare all pairs"):
        evaluated(path, model=True)


def test_tours_that_would_take_very_long_are_refused_with_what_to_ask_for(tmp_path, monkeypatch):
    monkeypatch.setattr(evaluation, "MOST_SCORES", 100)
    path = vrp(tmp_path, SMALL)
    with pytest.raises(UserError, match=r"5 tours of a policy for 5 customers would take long; give starts=1"):
        evaluated(path, model=True)
    assert evaluated(path, model=True, starts=2).summary["n"] == 1


def test_the_model_stands_beside_every_method_instance_by_instance():
    def solved(method, *costs):
        return Solved(method, [[[1]]] * len(costs), np.array(costs), 1.0, 1.0, "cpu x 1")

    last, other, few = solved("model", 1, 2, 4), solved("other", 1.2, 2, 3), solved("few", 1.1, 2.2)
    rows = evaluation.comparison_table(
        [other, last, few], last, evaluation.Reference("best known", np.array([1.0, 2.0]))
    )
    mean, half = mean_and_half_width(np.array([20, 0, -25.0]))
    assert rows[0]["model saves %, 95 %"] == pytest.approx([mean - half, mean + half])
    assert rows[0]["on % of instances"] == pytest.approx(100 / 3)
    assert "on % of instances" not in rows[1]
    assert rows[2]["model saves %, 95 %"] == pytest.approx([10, 10])


def test_tours_that_cost_nothing_are_equally_long(tmp_path):
    path = tmp_path / "depot.csv"
    path.write_text("name;x;y;demand;capacity\ndepot;1,5;2,5;0;5\na;1,5;2,5;3;5\nb;1,5;2,5;4;5\n")
    found = evaluated(path)
    assert found.summary["cost"] == found.summary["gap"] == 0
    assert {row["gap %"] for row in found.table} == {0}
    assert {row.get("on % of instances", 0) for row in found.table} == {0}


def test_a_network_is_compared_with_the_policy_that_ships_for_its_size(monkeypatch, tmp_path):
    monkeypatch.setattr(evaluation, "splits", lambda config, folder: {"test": evaluation.standard_test_set(20, 8)})
    found = evaluated(tmp_path / "unread", model=True, milliseconds=0, reference=(), decode="greedy")
    low, high = found.summary["shipped_saves"]
    assert 5 < low < high
    (_, shown), *_ = report.sections(None, {}, [found], None)
    longer = f"{low:.2g} to {high:.2g} % longer than those of the policy that ships."
    assert f"Without a search its tours are {longer}" in shown
    monkeypatch.setattr(evaluation, "splits", lambda config, folder: {"test": evaluation.standard_test_set(20, 1)})
    alone = evaluated(tmp_path / "unread", model=True, milliseconds=0, reference=(), decode="greedy")
    assert alone.summary["shipped_saves"] is None


def test_a_cost_above_a_reference_of_nothing_is_longer_by_all_of_it():
    def solved(method, *costs):
        return Solved(method, [[[1]]] * len(costs), np.array(costs), 1.0, 1.0, "cpu x 1")

    last, other = solved("model", 0.0, 3.0), solved("other", 5.0, 3.0)
    rows = evaluation.comparison_table([other, last], last, evaluation.Reference("best found", np.array([0.0, 3.0])))
    assert [row["gap %"] for row in rows] == [50, 0]
    assert rows[0]["on % of instances"] == 50
    assert all(np.isfinite(rows[0]["model saves %, 95 %"]))


def test_problems_of_several_sizes_are_compared_each_with_the_policy_that_ships_for_its_size(monkeypatch, tmp_path):
    several = [*evaluation.standard_test_set(20, 2), *evaluation.standard_test_set(50, 1)]
    monkeypatch.setattr(evaluation, "splits", lambda config, folder: {"test": several})
    loaded, load = [], evaluation.io.load
    monkeypatch.setattr(
        evaluation.io, "load", lambda folder, device: (loaded.append(folder.name), load(folder, device))[1]
    )
    found = evaluated(tmp_path / "unread", model=True, milliseconds=0, reference=(), decode="greedy")
    assert set(loaded) == {"cvrp-20", "cvrp-50"}
    assert found.summary["shipped_saves"][0] is not None


def test_an_evaluation_beyond_the_plain_problem_says_that_answers_have_more_time(tmp_path, capsys):
    path = vrp(tmp_path, SMALL.replace("CAPACITY", "DISTANCE : 107\nCAPACITY"))
    said = ": a millisecond per customer, of which answers take 10 by default"
    evaluated(path)
    assert said in capsys.readouterr().err
    evaluated(path, milliseconds=2)
    assert said not in capsys.readouterr().err
