"""Tables for the page and for a terminal."""

import pytest

from pipelines.engine.workload import Evaluation
from pipelines.report.tables import as_text, shown, table


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, ""),
        (True, "yes"),
        (False, "no"),
        (3, "3"),
        (0.123456, "0.1235"),
        (12345.6, "12346"),
        (-12345.6, "-12346"),
        ((0.1, None, "a"), "[0.1, , a]"),
        ("greedy", "greedy"),
        ("\x1b[2J", "\\x1b[2J"),
    ],
)
def test_values_are_shown_as_a_reader_wants_them(value, text):
    assert shown(value) == text


def test_columns_are_the_keys_of_all_rows_in_their_order():
    html = table([{"method": "model", "cost": 1.5}, {"method": "savings", "gap": 0.25}])
    assert "<th>method</th><th>cost</th><th>gap</th>" in html
    assert "<tr><td>model</td><td>1.5</td><td></td></tr><tr><td>savings</td><td></td><td>0.25</td></tr>" in html


def test_markup_in_cells_and_heads_is_escaped():
    html = table([{"<b>": "<script>"}])
    assert "<th>&lt;b&gt;</th>" in html
    assert "<td>&lt;script&gt;</td>" in html


def test_a_terminal_gets_aligned_columns():
    rows = ({"method": "model", "cost": 1.5}, {"method": "a heuristic", "cost": 10.25})
    assert as_text(Evaluation("test", {}, rows)).splitlines() == [
        "",
        "test:",
        "method        cost",
        "------------------",
        "model          1.5",
        "a heuristic  10.25",
    ]


def test_a_split_named_by_a_file_has_no_effect_on_a_terminal():
    assert as_text(Evaluation("a\x1b[2J", {"n": 3})).splitlines()[1] == "a\\x1b[2J:"


def test_an_evaluation_without_a_table_shows_its_summary():
    assert as_text(Evaluation("test", {"cost": 1.5, "n": 3})).splitlines()[2:] == ["cost  n", "-------", "1.5   3"]
