"""The verdict on tours, and their pictures, from tables and drawings of evaluations."""

import json

import pytest
from markupsafe import Markup

from pipelines.engine.workload import Evaluation
from pipelines.workloads.cvrp import report
from pipelines.workloads.cvrp.report import sections
from tests.report.pages import Page

SOLVER, SAVINGS = "PyVRP 1.0, at most 0.5 s", "savings (Clarke-Wright)"


def row(method, cost, gap, seconds=1.0, n=100):
    found = {"method": method, "cost": cost, "± 95 %": None if n == 1 else 0.01, "n": n, "core ms": 1000 * seconds / n}
    return found | {"gap %": gap, "gap 95 %": None if n == 1 else [gap - 0.1, gap + 0.1]}


def evaluation(*rows, split="test", name="an instance"):
    locs = [[0.5, 0.5], [0.1, 0.2], [0.9, 0.2]]
    drawing = {"which": "only", "name": name, "locs": locs, "routes": [[1, 2]], "cost": 2.0, "reference": None}
    model, cost = next((row["method"], row["cost"]) for row in reversed(rows) if row["method"].startswith("gt, "))
    return Evaluation(
        split, {"cost": cost, "last": model}, rows, files={f"{split}.tours.jsonl": json.dumps(drawing) + "\n"}
    )


def verdict(*evaluations):
    """Return its heading and text. Pictures, which take most of the time, are not drawn."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(report, "svg", lambda *_, **__: Markup())
        (heading, html), *_ = sections(None, {}, evaluations, None)
    return heading, " ".join(html.split())


def test_a_verdict_is_at_equal_cost_and_names_where_a_dearer_method_is_better():
    heading, text = verdict(
        evaluation(
            row(SAVINGS, 6.6, 7.0, seconds=0.1),
            row("gt, greedy", 7.0, 14.0, seconds=0.2),
            row("gt, multistart x 8 symmetries", 6.4, 4.0),
            row("local search", 6.5, 6.0, seconds=1.2),
            row(SOLVER, 6.1, 0.0, seconds=5, n=10),
        )
    )
    assert heading == f"Within 10 core-ms: first of 3; from 500 core-ms on, {SOLVER} is better"
    assert (
        "(gt, multistart x 8 symmetries) cost 6.4 on average [6.39, 6.41] over 100 instances and take 10 mill" in text
    )
    assert (
        "within that time or a quarter more, local search has tours that are 1.92 % longer [1.79, 2.06] in 12" in text
    )
    assert f"With 50 times the time, {SOLVER} has tours that are 3.85 % shorter [3.71, 3.98] in 500 milli" in text
    assert "on the 10 instances that it solved." in text
    assert 'class="answer better"' in text


def test_a_dearer_method_alone_makes_no_model_worse():
    heading, text = verdict(evaluation(row("gt, greedy", 6.3, 2.0), row(SOLVER, 6.1, 0.0, seconds=1.3)))
    assert heading == f"Within 10 core-ms: nothing to compare with; from 13 core-ms on, {SOLVER} is better"
    assert 'class="answer even"' in text


def test_the_verdict_is_on_the_last_way_and_instance_by_instance():
    own = row("gt, multistart + local search of 4", 6.2, 1.0, seconds=2)
    rival = row(SAVINGS, 6.21, 1.2, seconds=1) | {report.PAIRED: [0.1, 0.3]}
    found = evaluation(row("gt, multistart", 6.5, 5.0), own, rival)
    found.summary["last"] = own["method"]
    heading, text = verdict(found)
    assert heading == "Within 20 core-ms: first of 2"
    assert "0.2 % longer [0.1, 0.3]" in text  # from gaps alone, which overlap, it would be no clear difference


@pytest.mark.parametrize(("cost", "said"), [(7.7, ""), (12.4, "; the network's own tours are 100% longer")])
def test_a_search_does_not_hide_a_network_that_has_learnt_little(cost, said):
    searched = row("ruin and recreate, 20 ms", 6.2, 1.0, seconds=2)
    found = evaluation(row("gt, multistart", cost, 25.0), searched, row(SOLVER, 6.21, 1.2, seconds=1))
    found.summary["last"] = searched["method"]
    heading, _ = verdict(found)
    assert heading.endswith(f"first of 3{said}")


@pytest.mark.parametrize(
    ("cost", "outcome", "words"),
    [(374, "better", "0.267 % longer"), (376, "worse", "0.266 % shorter"), (375 - 1e-13, "even", "0 % longer")],
)
def test_one_instance_is_better_or_worse_without_an_interval(cost, outcome, words):
    rows = (row("gt, greedy", cost, 100 * cost / 375 - 100, n=1), row(SOLVER, 375, 0.0, n=1))
    _, text = verdict(evaluation(*rows))
    assert f"cost {cost:.4g} over 1 instance and take" in text
    assert f"{SOLVER} has tours that are {words} in" in text
    assert f'class="answer {outcome}"' in text


def test_other_instances_have_their_verdicts_below_and_only_some_are_drawn(monkeypatch):
    monkeypatch.setattr(report, "MOST_DRAWN", 2)
    rows = (row("gt, greedy", 6.3, 2.0), row(SOLVER, 6.1, 0.0))
    all_splits = ["test", "file-0", "file-1"]
    parts = sections(None, {}, [evaluation(*rows, split=split) for split in all_splits], None)
    assert [heading for heading, _ in parts[1:]] == [f"Cost against time: {split}" for split in all_splits[:2]]
    assert "Verdicts on other sets of instances: 2" in parts[0][1]
    assert parts[0][1].count('class="answer worse"') == 3
    assert [html.count("routes from the depot") for _, html in parts] == [1, 0, 1]


def test_names_of_instances_are_no_markup():
    name = "a$\\frac$<script>&\u202e"
    ((_, html), *_) = sections(None, {}, [evaluation(row("gt, a", 1.0, 2.0), row(SOLVER, 0.9, 0.0), name=name)], None)
    page = Page(html)
    (caption,) = [text for tag, text in page.texts if tag == "figcaption"]
    assert caption == "only: a$\\frac$<script>&\\u202e, cost 2"
    assert page.all("script") == []
    assert caption in page.all("svg")[0]["aria-label"]


def test_routes_are_drawn_from_their_own_depots_and_open_ones_not_back(monkeypatch):
    drawn = []
    monkeypatch.setattr(report, "svg", lambda figure, seen: drawn.append((figure, seen)) or Markup())
    locs = [[0, 0], [1, 0], [9, 1], [9, 0]]
    drawing = {"which": "only", "name": "a", "locs": locs, "routes": [[1], [2]], "cost": 2.0, "reference": None}
    for more, paths in (
        ({}, [[0, 1, 0], [0, 2, 0], [0]]),
        ({"ends": [0, 3], "open_routes": False}, [[0, 1, 0], [3, 2, 3], [0], [3]]),
        ({"ends": [0, 0], "open_routes": True}, [[0, 1], [0, 2], [0]]),
    ):
        report._tour(drawing | more)
        (axis,) = drawn[-1][0].axes
        assert [line.get_xydata().tolist() for line in axis.lines] == [[locs[node] for node in path] for path in paths]
        assert drawn[-1][1].startswith("2 routes from the depot through 2 customers")
