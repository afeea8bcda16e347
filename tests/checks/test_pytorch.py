"""Builds of torch, and the GPUs and drivers that they suit."""

import pytest

from pipelines.checks.pytorch import cuda_build


@pytest.mark.parametrize(
    ("cuda_version", "capabilities", "build"),
    [
        ((12, 4), [(8, 0)], "cu126"),
        ((13, 0), [(9, 0)], "cu130"),
        ((13, 1), [(12, 0), (8, 6)], "cu130"),
        ((13, 0), [(6, 1)], "cu126"),  # CUDA 13 dropped Pascal
        ((12, 8), [(12, 0)], None),  # Blackwell needs CUDA 13
        ((11, 8), [(8, 0)], None),
        ((12, 2), [None], "cu126"),
        (None, [(8, 0)], None),
    ],
)
def test_the_build_suits_driver_and_gpus(cuda_version, capabilities, build):
    assert cuda_build(cuda_version, capabilities) == build
