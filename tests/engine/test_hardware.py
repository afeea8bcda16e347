"""Settings of the machine, on devices that are only pretended."""

import pytest
import torch

from pipelines.engine import config
from pipelines.engine.config import Hardware


@pytest.fixture
def cuda(monkeypatch):
    """What CUDA was asked for, in order; every device is one of two that do not exist."""
    asked, current = [], [0]

    def set_device(index):
        asked.append(index)
        current[0] = index

    monkeypatch.setattr(torch.cuda.memory, "_lazy_init", lambda: None)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: current[0])
    monkeypatch.setattr(torch._C, "_cuda_setDevice", set_device, raising=False)
    monkeypatch.setattr(torch._C, "_cuda_setMemoryFraction", lambda *given: asked.append(given), raising=False)
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", torch.backends.cudnn.benchmark)
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", torch.backends.cudnn.allow_tf32)
    before = torch.get_float32_matmul_precision()
    yield asked
    torch.set_float32_matmul_precision(before)


def test_the_only_gpu_which_accelerate_names_without_a_number_keeps_its_share_of_memory(cuda):
    Hardware(memory_fraction=0.5).apply(torch.device("cuda"), print)
    assert cuda == [(0.5, 0)]


def test_the_second_gpu_is_the_one_that_is_seeded_and_measured(cuda):
    Hardware().apply(torch.device("cuda", 1), print)
    assert cuda == [1, (1.0, 1)]


@pytest.mark.parametrize(("tf32", "precision"), [(True, "high"), (False, "highest")])
def test_tf32_is_for_all_products_or_for_none(cuda, tf32, precision):
    Hardware(tf32=tf32).apply(torch.device("cuda", 0), print)
    assert torch.get_float32_matmul_precision() == precision
    assert torch.backends.cudnn.allow_tf32 is tf32  # convolutions and recurrent layers


def test_a_setting_that_only_a_gpu_has_is_said_to_have_no_effect_unless_it_is_a_default():
    said = []
    Hardware().apply(torch.device("cpu"), said.append)
    Hardware(memory_fraction=0.5, cudnn_benchmark=False).apply(torch.device("cpu"), said.append)
    assert said == ["without a CUDA device hardware.memory_fraction has no effect"]


@pytest.mark.parametrize("onednn", [True, False])
def test_products_of_float32_are_those_of_float32_whoever_computes_them(onednn):
    Hardware(onednn=onednn).apply(torch.device("cpu"), print)
    left, right = torch.randn(3, 65, 300), torch.randn(3, 300, 129)
    for product in (torch.matmul, lambda a, b: a[0] @ b[0]):
        exact = product(left.double(), right.double())
        assert (product(left, right) - exact).abs().max() < 1e-4  # in bfloat16 0.1


@pytest.mark.parametrize(
    ("slow", "onednn", "precision"), [(True, True, "bf16"), (True, False, "ieee"), (False, True, "ieee")]
)
def test_onednn_computes_where_mkl_is_slow_unless_it_is_not_wanted(monkeypatch, slow, onednn, precision):
    monkeypatch.setattr(config, "mkl_is_slow", lambda: slow)
    products = torch.backends.mkldnn.matmul
    before = products.fp32_precision
    try:
        Hardware(onednn=onednn).apply(torch.device("cpu"), print)
        assert products.fp32_precision == precision
    finally:  # or later tests of this process would round to bfloat16
        products.fp32_precision = before
