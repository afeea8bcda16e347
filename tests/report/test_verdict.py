"""Whether a model beats the strongest alternative in its table."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.report.verdict import BETTER, EQUAL_COST, EVEN, WORSE, answer, at_cost, compare, divide

ROWS = [
    {"predictor": "small, float32", "bits": 2.5, "95 %": [2.4, 2.6]},
    {"predictor": "small, int8", "bits": 2.6, "95 %": [2.5, 2.7]},
    {"predictor": "5-gram", "bits": 2.0, "95 %": [1.7, 2.3]},
    {"predictor": "xz", "bits": 3.0},
    {"predictor": "buy-and-hold"},
]


def test_rows_of_the_model_begin_as_the_first_or_the_named_one():
    own, others = divide(ROWS)
    assert own == ROWS[:2]
    assert others == ROWS[2:]
    assert divide(ROWS, "5-gram, smoothed")[0] == [ROWS[2]]


def test_a_model_that_loses_is_called_worse():
    found = compare(ROWS[0], ROWS[2:], "bits", "95 %")
    assert found.rival is ROWS[2]
    assert found.gain == -0.5
    assert found.interval == pytest.approx([-0.5 - 0.1**0.5, -0.5 + 0.1**0.5])
    assert found.outcome == WORSE
    assert found.heading == "Worse than the strongest alternative"
    assert found.in_percent(2.0).by("%", "less", "more") == "25 % more [9.19, 40.8]"


def test_a_model_that_wins_is_called_better_by_intervals_or_half_their_widths():
    rows = [{"predictor": name, "bits": bits, "±": 0.1} for name, bits in (("model", 1.0), ("a", 2.0), ("b", 1.5))]
    found = compare(rows[0], rows[1:], "bits", "±")
    assert found.outcome == BETTER
    assert found.by("bits", "less", "more") == "0.5 bits less [0.359, 0.641]"


def test_more_may_be_better():
    rows = [{"accuracy": 0.9, "95 %": [0.85, 0.95]}, {"accuracy": 0.5}, {"accuracy": 0.8}]
    found = compare(rows[0], rows[1:], "accuracy", "95 %", maximise=True)
    assert found.gain == pytest.approx(0.1)
    assert found.interval == pytest.approx([0.05, 0.15])  # a rival without an interval has no width
    assert found.outcome == BETTER
    assert compare(rows[1], rows[2:], "accuracy", "95 %", maximise=True).gain == pytest.approx(-0.3)


def test_an_interval_that_holds_0_or_none_at_all_decides_nothing():
    near = {"bits": 2.1, "95 %": [1.9, 2.3]}
    assert compare(near, ROWS[2:], "bits", "95 %").outcome == EVEN
    unknown = compare({"bits": 1.0}, ROWS[2:], "bits", "95 %")
    assert unknown.interval is None
    assert unknown.outcome == EVEN
    assert unknown.heading == "Too few examples to compare with the strongest alternative"
    assert unknown.by("bits", "less", "more") == "1 bits less (too few examples for an interval)"


def test_the_words_of_a_verdict_are_escaped():
    assert "<p>a &lt;b&gt;</p><p>c</p>" in answer(WORSE, "a <b>", "c")


def judged(own, *others):
    """Return the verdict at equal cost on (figure, cost), the less the better, with intervals of +-0.1."""
    rows = [
        {"method": name, "ms": ms, "gap": gap, "±": 0.1} for name, (gap, ms) in zip("abcdefghij", others, strict=False)
    ]
    model = {"method": "model", "gap": own[0], "ms": own[1], "±": 0.1}
    return at_cost(model, rows, "ms", lambda rival: compare(model, [rival], "gap", "±"))


@pytest.mark.parametrize(
    ("own", "others", "heading"),
    [
        ((1, 2.7), [(5, 0.5), (2, 3.3), (0.5, 5.46), (0.1, 100)], "first of 3; from 5.46 ms on, c is better"),
        ((1, 2.7), [(5, 0.5), (0.5, 2.7)], "second of 3, behind b"),
        (
            (1, 2.7),
            [(5, 0.5), (0.95, 2.7), (0.9, 50)],
            "second of 3, no clear difference from b; nothing dearer is clearly better",
        ),
        ((1, 2.7), [(1.05, 2.7)], "first of 2, no clear difference from a"),
        ((1, 2.7), [(5, 0.5), (1.1, 1), (1.05, 2.7)], "first of 4, no clear difference from b, which takes 1"),
        ((1, 2.7), [(5, 0.5), (1.1, 2.6), (1.05, 2.7)], "first of 4, no clear difference from c"),
        ((9, 2.7), [(1, 1), (2, 1), (3, 1), (4, 1), (0.1, 4)], "5th of 5, behind a; from 4 ms on, e is better"),
        ((1, 2.7), [(9, 99)], "nothing to compare with; nothing dearer is clearly better"),
    ],
)
def test_a_verdict_at_equal_cost_in_a_line(own, others, heading):
    assert judged(own, *others).heading("ms") == f"Within 2.7 ms: {heading}"


pairs = st.tuples(st.floats(0, 10), st.floats(0.01, 100))


@given(pairs, st.lists(pairs, max_size=9))
def test_what_costs_over_a_quarter_more_takes_no_place_before_a_model(own, others):
    found = judged(own, *others)
    near = [row for row in others if row[1] <= EQUAL_COST * own[1]]
    assert (found.of, found.dearer) == (1 + len(near), len(others) - len(near))
    assert found.place == 1 + sum(gap < round(own[0], 9) and round(own[0] - gap, 9) > 0 for gap, _ in near)
    if near:
        assert found.found.rival["gap"] == pytest.approx(min(gap for gap, _ in near), abs=1e-8)
        assert (found.outcome == WORSE) <= (found.place > 1)
    else:
        assert (found.found, found.outcome) == (None, EVEN)
    better = [ms for gap, ms in others if ms > EQUAL_COST * own[1] and gap < own[0] - 0.142]
    if better:
        assert found.better.rival["ms"] == min(better)
    assert found.better is None or found.better.rival["ms"] > EQUAL_COST * own[1]


def test_rows_without_a_cost_take_no_part_and_larger_may_be_better():
    model = {"method": "model", "accuracy": 0.9, "ms": 1.0, "95 %": [0.85, 0.95]}
    rows = [{"method": "unmeasured", "accuracy": 1.0}, {"method": "prior", "accuracy": 0.5, "ms": 0.0}]
    found = at_cost(model, rows, "ms", lambda rival: compare(model, [rival], "accuracy", "95 %", maximise=True))
    assert (found.outcome, found.place, found.of) == (BETTER, 1, 2)
