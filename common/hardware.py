"""Machine settings beyond Accelerate's: the config section, and how it is applied."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from pydantic import Field

from common.config import Section
from common.errors import UserError
from common.machine import cores, keep_freed_memory, launched_on_one_thread, mkl_is_slow

if TYPE_CHECKING:
    import torch
    from torch import nn


class Hardware(Section):
    """Use of the machine. Accelerate has the device, precision and number of processes: `accelerate config`."""

    threads: int | None = Field(None, ge=1, description="CPU threads of a process; null: OMP_NUM_THREADS or its cores")
    memory_fraction: float = Field(1.0, gt=0, le=1, description="largest share of GPU memory for this process")
    cudnn_benchmark: bool = Field(True, description="let cuDNN time its kernels; pays with constant shapes")
    tf32: bool = Field(True, description="compute products of float32 in TensorFloat-32 on GPUs that have it")
    onednn: bool = Field(True, description="compute products of float32 by oneDNN on AMD's CPUs with AVX-512")
    compile: bool = Field(False, description="compile the model with torch.compile: a slower start, faster steps")
    stack: bool = Field(True, description="on a GPU, train members, such as coins, in one process if configs allow")
    patience: float = Field(600, gt=60, description="seconds without a sign of another process before training ends")
    deterministic: bool = Field(False, description="refuse GPU kernels whose results vary from run to run")
    gpu_log_interval: int = Field(10, ge=0, description="updates between readings of GPU figures; 0: never")
    change_precision: bool = Field(False, description="let --resume go on in another precision, which is recorded")
    gradient_checkpointing: bool = Field(False, description="recompute activations to save memory, if the model can")


def apply(hardware: Hardware, device: torch.device, say: Callable[[str], None]) -> None:
    """Apply `hardware` before the device computes, as cuBLAS reads its setting once; report ignored settings."""
    import torch

    alone = hardware.threads is None and device.type == "cpu" and launched_on_one_thread()
    threads = cores() if alone else hardware.threads
    if threads is not None and threads != torch.get_num_threads():
        torch.set_num_threads(threads)
        say(f"computing on {threads} CPU thread{'s' * (threads > 1)} per process; hardware.threads changes that")
    if device.type == "cuda":
        # Accelerate leaves the first GPU the current one even if ACCELERATE_TORCH_DEVICE names another. Seeds and
        # figures of memory are those of the current one.
        if device.index is not None:
            torch.cuda.set_device(device)
        torch.cuda.set_per_process_memory_fraction(hardware.memory_fraction)
        torch.backends.cudnn.benchmark = hardware.cudnn_benchmark and not hardware.deterministic
        torch.set_float32_matmul_precision("high" if hardware.tf32 else "highest")
        torch.backends.cudnn.allow_tf32 = hardware.tf32
    else:
        keep_freed_memory()
        # Leave to round to bfloat16 sends products to oneDNN, which takes it only where a processor has AMX.
        products = torch.backends.mkldnn.matmul  # type: ignore[attr-defined]
        products.fp32_precision = "bf16" if hardware.onednn and mkl_is_slow() else "ieee"
        if hardware.memory_fraction < 1:  # unlike other settings of a GPU, none that is on by default
            say("without a CUDA device hardware.memory_fraction has no effect")
    if hardware.deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # cuBLAS demands it for repeatable results
    if torch.are_deterministic_algorithms_enabled() != hardware.deterministic:  # setting it imports half of a compiler
        torch.use_deterministic_algorithms(hardware.deterministic)


def apply_to(model: nn.Module, hardware: Hardware) -> None:
    """Apply the model's settings. Raises UserError for those it lacks."""
    if hardware.gradient_checkpointing:
        if not hasattr(model, "gradient_checkpointing"):
            raise UserError(f"hardware.gradient_checkpointing: {type(model).__name__} cannot do that; set it to false")
        setattr(model, "gradient_checkpointing", True)  # noqa: B010 (modules have no such attribute by their type)
    if hardware.compile:
        model.compile()
