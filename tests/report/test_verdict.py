"""Whether a model beats the strongest alternative in its table."""

import pytest

from pipelines.report.verdict import BETTER, EVEN, WORSE, answer, compare, divide

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
    assert unknown.by("bits", "less", "more") == "1 bits less (too few examples for an interval)"


def test_the_words_of_a_verdict_are_escaped():
    assert "<p>a &lt;b&gt;</p><p>c</p>" in answer(WORSE, "a <b>", "c")
