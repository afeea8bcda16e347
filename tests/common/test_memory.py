"""Bytes of tensors that live together."""

import pytest
import torch

from common.memory import Live, planned


def test_tensors_count_while_they_live_and_views_do_not():
    with Live() as used:
        one = torch.zeros(1000)
        _ = one.view(10, 100)[0]
        assert used.now == 4000
        two = one + 1
        del one
        assert (used.now, used.peak) == (4000, 8000)
        two.add_(1)
        del two
    assert (used.now, used.peak) == (0, 8000)


@pytest.mark.slow  # imports
def test_a_plan_needs_no_memory():
    with planned() as used:
        whole = torch.zeros(10**6, 10**6)
        assert (whole.sum() + 1).shape == ()
    assert used.peak > 4 * 10**12
