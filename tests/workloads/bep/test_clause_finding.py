"""How often clauses of other projects say the same, in figures known beforehand."""

import pytest

from models.plans.library import Document
from models.plans.outline import divide
from pipelines.engine.workload import Evaluation
from pipelines.workloads.bep import clause_finding, report

CLASH = "Clashes are tested every week by the coordinator of each team."
ROLES = "The information manager checks each model before it is shared."


def document(number, clash):
    text = f"# Plan\n\n## Clash detection\n\n{clash}\n\n## Roles and responsibilities\n\n{ROLES}\n\n## Canteen\n\n"
    text += "Lunch number one is served at noon.\n" if number == 0 else ""
    return Document(f"{number}.md", f"project {number}", text, divide(text))


def test_hits_silence_and_the_gain_are_counted_over_projects():
    documents = [
        document(0, CLASH),
        document(1, CLASH),
        document(2, "Interference reports go to all designers weekly."),
    ]
    summary, table = clause_finding.measure(documents, 10, 0)
    rows = {(row["given"], row["suggestions"]): row for row in table}
    own = rows["heading", clause_finding.OWN]
    assert (summary["clauses_asked"], summary["plans_of"]) == (7, 3)
    assert own["hit@3, %"] == summary["clauses_hit_heading"] == pytest.approx(100 * 5 / 7)  # two clashes, three roles
    assert own["silent, %"] == pytest.approx(100 / 7)  # lunch
    assert own["off the topic, %"] == 0
    rival = rows["heading", clause_finding.RIVAL]
    assert rival["hits@3 fewer, points"] == pytest.approx(own["hit@3, %"] - rival["hit@3, %"])
    assert rows["heading", "the form's own beginning"]["hit@3, %"] < own["hit@3, %"]
    said = report._measured(
        Evaluation("test", {**summary, "clauses": table}, [], {}, {}), "clauses"
    )  # the section's words
    assert "Of 7 clauses of 3 projects" in said


def test_a_single_project_or_no_clauses_are_not_measured():
    assert clause_finding.measure([document(0, CLASH)], 10, 0) == ({}, [])
    assert clause_finding.measure([document(0, CLASH), document(1, CLASH)], 0, 0) == ({}, [])
