"""The verdict on tours, and their pictures, from tables and drawings of evaluations."""

import json

import pytest

from pipelines.engine.workload import Evaluation
from pipelines.workloads.cvrp import report
from pipelines.workloads.cvrp.report import sections
from tests.report.pages import Page

SOLVER, SAVINGS = "PyVRP 1.0, at most 0.5 s", "savings (Clarke-Wright)"


def row(method, cost, gap=None, seconds=1.0, n=100):
    found = {"method": method, "cost": cost, "± 95 %": None if n == 1 else 0.01, "n": n, "core ms": 1000 * seconds / n}
    return found if gap is None else found | {"gap %": gap, "gap 95 %": None if n == 1 else [gap - 0.1, gap + 0.1]}


def evaluation(*rows, split="test", name="an instance"):
    locs = [[0.5, 0.5], [0.1, 0.2], [0.9, 0.2]]
    drawing = {"which": "only", "name": name, "locs": locs, "routes": [[1, 2]], "cost": 2.0, "reference": None}
    model = next(row["method"] for row in reversed(rows) if row["method"].startswith("gt, "))
    return Evaluation(split, {"decode": model}, rows, files={f"{split}.tours.jsonl": json.dumps(drawing) + "\n"})


def verdict(*evaluations):
    (heading, html), *_ = sections(None, {}, evaluations, None)
    return heading, " ".join(html.split())


def test_a_model_that_a_quicker_method_beats_is_dominated():
    heading, text = verdict(
        evaluation(
            row(SAVINGS, 6.4, 4.0, seconds=0.1),
            row("gt, greedy", 7.0, 14.0, seconds=0.2),
            row("gt, multistart x 8 symmetries", 6.6, 7.0),
            row(SOLVER, 6.1, 0.0, seconds=5, n=10),
        )
    )
    assert heading == f"Worse than the strongest alternative: {SOLVER}"
    assert "(gt, multistart x 8 symmetries) cost 6.6 on average [6.59, 6.61] over 100 instances: 7 % more" in text
    assert f"strongest alternative, {SOLVER}, on the 10 instances that it solved." in text
    assert "They take 10 ms per instance, the alternative&#39;s 500 ms." in text
    assert f"Dominated: {SAVINGS} is no worse on average and quicker." in text
    assert 'class="answer worse"' in text


def test_a_model_that_is_worse_but_quicker_has_both_said():
    rows = (row(SAVINGS, 6.4, 4.0, seconds=0.1), row("gt, greedy", 6.3, 2.0), row(SOLVER, 6.1, 0.0, seconds=50))
    heading, text = verdict(evaluation(*rows))
    assert heading == f"Worse than the strongest alternative, but quicker: {SOLVER}"
    assert "No alternative in the table is as good on average and quicker." in text


def test_a_model_that_the_strongest_method_dominates():
    rows = (row("gt, greedy", 6.3, 2.0), row(SOLVER, 6.1, 0.0, seconds=0.5))
    assert verdict(evaluation(*rows))[0] == f"Worse than the strongest alternative, which is also quicker: {SOLVER}"


def test_without_a_reference_costs_are_compared():
    heading, text = verdict(evaluation(row(SAVINGS, 8.0), row("gt, greedy", 6.0)))
    assert heading == f"Better than the strongest alternative: {SAVINGS}"
    assert "25 % less [24.8, 25.2]" in text


@pytest.mark.parametrize(
    ("cost", "outcome", "words"),
    [(374, "better", "0.267 % less"), (376, "worse", "0.267 % more"), (375 - 1e-13, "even", "0 % less")],
)
def test_one_instance_is_better_or_worse_without_an_interval(cost, outcome, words):
    rows = (row("gt, greedy", cost, 100 * cost / 375 - 100, n=1), row(SOLVER, 375, 0.0, n=1))
    _, text = verdict(evaluation(*rows))
    assert f"cost {cost:.4g} over 1 instance: {words} than those" in text
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
