"""Tables for the page and for a terminal."""

import pytest

from pipelines.engine.workload import Evaluation
from pipelines.report.markup import shown
from pipelines.report.tables import as_text, matrix, table
from tests.report.pages import Page


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
    page = Page(table([{"method": "model", "cost": 1.5}, {"method": "savings", "gap": 0.25}]))
    heads = [text for tag, text in page.texts if tag == "th"]
    assert heads == ["method", "cost", "gap", "model", "savings"]
    assert page.all("th")[-1] == {"scope": "row"}
    assert [text for tag, text in page.texts if tag == "td"] == ["1.5", "0.25"]
    assert len(page.all("td")) == 4


def test_a_wide_table_scrolls_in_a_box_that_the_keyboard_reaches():
    (box,) = Page(table([{"a": 1}], "figures of <test>")).all("div")
    assert box == {"class": "wide", "role": "group", "aria-label": "figures of <test>", "tabindex": "0"}


def test_markup_in_cells_and_heads_is_escaped():
    html = table([{"<b>": "<script>", "<i>": "<u>"}])
    assert '<th scope="col">&lt;b&gt;</th>' in html
    assert '<th scope="row">&lt;script&gt;</th>' in html
    assert "<td>&lt;u&gt;</td>" in html


def test_an_interval_stays_on_one_line():
    assert "[0.1,\N{NO-BREAK SPACE}0.2]" in table([{"a": 1, "b": [0.1, 0.2]}])


def test_a_matrix_has_counts_and_shares_of_its_rows():
    page = Page(matrix([[3, 1], [0, 0]], ["<yes>", "no"], "label", "answer"))
    cells = [text for tag, text in page.texts if tag == "td"]
    assert cells == ["3", "75.0 %", "1", "25.0 %", "0", "0.0 %", "0", "0.0 %"]
    assert [cell["style"] for cell in page.all("td")] == [f"--share: {share:.3f}" for share in (0.75, 0.25, 0, 0)]
    assert [text for tag, text in page.texts if tag == "caption"] == [
        "confusion matrix: label by answer, shares of each row"
    ]


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


def test_columns_that_a_terminal_does_not_hold_follow_below_with_the_names_of_the_rows():
    rows = ({"method": "model", "cost": 1.5, "gap": 0.25, "n": 96}, {"method": "savings", "cost": 1.75})
    assert as_text(Evaluation("test", {}, rows), 17).splitlines()[2:] == [
        "method   cost",
        "-------------",
        "model     1.5",
        "savings  1.75",
        "",
        "method    gap   n",
        "-----------------",
        "model    0.25  96",
        "savings          ",
    ]


def test_a_split_named_by_a_file_has_no_effect_on_a_terminal():
    assert as_text(Evaluation("a\x1b[2J", {"n": 3})).splitlines()[1] == "a\\x1b[2J:"


def test_an_evaluation_without_a_table_shows_its_summary():
    assert as_text(Evaluation("test", {"cost": 1.5, "n": 3})).splitlines()[2:] == ["cost  n", "-------", "1.5   3"]
