"""Bytes of tensors that live together."""

import torch

from models.images.vlm_comparator.memory import Live


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
