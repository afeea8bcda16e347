"""The metric that picks a model."""

import pytest

from pipelines.engine.workload import Metric


@pytest.mark.parametrize(("maximise", "value", "best", "better"), [
    (False, 1.0, None, True),
    (False, 1.0, 2.0, True),
    (False, 2.0, 1.0, False),
    (True, 2.0, 1.0, True),
    (True, 1.0, 2.0, False),
    (False, 1.0, 1.0, False),  # the earlier model stays
    (True, 1.0, 1.0, False),
    (False, float("nan"), 1.0, False),
    (True, float("nan"), 1.0, False),
    (False, float("nan"), None, False),
    (True, float("nan"), None, False),
    (False, float("nan"), float("nan"), False),
    (False, 1.0, float("nan"), True),
    (True, -float("inf"), float("nan"), True),
])  # fmt: skip
def test_a_value_is_better_in_the_direction_of_the_metric(maximise, value, best, better):
    assert Metric("val/x", maximise).better(value, best) is better


def test_the_config_may_choose_another_metric_and_its_direction():
    own = Metric("val/accuracy", maximise=True)
    assert own.chosen(None) == own.chosen("val/accuracy") == own.chosen("max:val/accuracy") == own
    assert own.chosen("min:val/accuracy") == Metric("val/accuracy")
    assert own.chosen("val/loss") == own.chosen("min:val/loss") == Metric("val/loss")
