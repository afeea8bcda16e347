"""Bytes of tensors that live together."""

import pytest
import torch

from models.images.vlm_comparator.memory import Live, Plan


def test_tensors_count_while_they_live_and_views_do_not():
    with Live() as used:
        one = torch.zeros(1000)
        assert one.view(10, 100)[0].shape == (100,)
        assert used.now == 4000
        two = one + 1
        del one
        assert (used.now, used.peak) == (4000, 8000)
        two.add_(1)
        del two
    assert (used.now, used.peak) == (0, 8000)


@pytest.mark.slow  # imports
def test_a_plan_needs_no_memory_and_goes_on_where_it_left_off():
    outside = torch.ones(3)
    with (plan := Plan()):
        whole = torch.zeros(10**6, 10**6)
    assert plan.used.now == plan.used.peak == 4 * 10**12
    with plan:
        assert (whole.sum() + outside).shape == (3,)
    assert 4 * 10**12 < plan.used.peak < 4 * 10**12 + 1000
