"""Builds of torch, and the GPUs and drivers that they suit."""

import pytest

from pipelines.checks.pytorch import cuda_build, has_kernels


@pytest.mark.parametrize(
    ("capability", "archs", "runs"),
    [
        ((8, 0), ["sm_80"], True),
        ((8, 6), ["sm_80"], True),  # machine code runs on later minor versions
        ((8, 0), ["sm_86"], False),  # not on earlier ones
        ((9, 0), ["sm_80", "sm_86"], False),  # nor on the next major version
        ((9, 0), ["sm_80", "compute_80"], True),  # which PTX reaches
        ((7, 5), ["sm_80", "compute_80"], False),
        ((6, 1), ["sm_50", "sm_60", "sm_70"], True),
        ((12, 1), ["sm_90", "sm_120"], True),
        ((9, 0), ["sm_90a"], True),
        ((9, 1), ["sm_90a", "compute_90a"], False),
        ((10, 3), ["sm_100f"], True),
        ((12, 0), ["compute_100f"], False),
        ((8, 0), ["gfx942", ""], False),
        ((8, 0), [], False),
    ],
)
def test_kernels_run_where_the_compatibility_rule_says(capability, archs, runs):
    assert has_kernels(capability, archs) is runs


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
