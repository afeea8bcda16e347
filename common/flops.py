"""Counting the floating-point operations of what a model computes."""

import contextlib
from collections.abc import Iterator

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode


@contextlib.contextmanager
def counted() -> Iterator[FlopCounterMode]:
    """Count operations in the block, including those of attention on a CPU, whose own kernel torch does not count."""
    kernels = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.CUDNN_ATTENTION]
    kernels = [*(kernels if torch.cuda.is_available() else []), SDPBackend.MATH]
    with sdpa_kernel(kernels), FlopCounterMode(display=False) as counter:
        yield counter
