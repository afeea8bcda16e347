"""Settings of the machine that are not Accelerate's."""

import os
from collections.abc import Callable

import torch
from torch import nn

from common.errors import UserError
from pipelines.engine.config import Hardware


def apply(hardware: Hardware, device: torch.device, model: nn.Module, say: Callable[[str], None]) -> None:
    """Put `hardware` into force; what this machine ignores is said in one line."""
    _set_threads(hardware.threads, device, say)
    if device.type == "cuda":
        torch.cuda.set_per_process_memory_fraction(hardware.memory_fraction, device)
        torch.backends.cudnn.benchmark = hardware.cudnn_benchmark and not hardware.deterministic
        torch.set_float32_matmul_precision("high" if hardware.tf32 else "highest")
    else:
        only_cuda = {
            "memory_fraction": hardware.memory_fraction < 1,
            "cudnn_benchmark": hardware.cudnn_benchmark,
            "tf32": hardware.tf32,
        }
        ignored = [f"hardware.{name}" for name, given in only_cuda.items() if given]
        if ignored:
            say(f"without a CUDA device these settings have no effect: {', '.join(ignored)}")
    if hardware.deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # cuBLAS demands it for repeatable results
    torch.use_deterministic_algorithms(hardware.deterministic)
    if hardware.gradient_checkpointing:
        if not hasattr(model, "gradient_checkpointing"):
            raise UserError(f"hardware.gradient_checkpointing: {type(model).__name__} cannot do that; set it to false")
        model.gradient_checkpointing = True
    if hardware.compile:
        model.compile()


def _set_threads(threads: int | None, device: torch.device, say: Callable[[str], None]) -> None:
    """CPU threads of this process."""
    # Without a GPU `accelerate launch` sets OMP_NUM_THREADS=1 unless it is set: all cores but one would idle.
    launched = "ACCELERATE_MIXED_PRECISION" in os.environ and os.environ.get("OMP_NUM_THREADS") == "1"
    if threads is None and device.type == "cpu" and launched:
        threads = max(1, len(os.sched_getaffinity(0)) // int(os.environ.get("LOCAL_WORLD_SIZE", 1)))
    if threads is not None and threads != torch.get_num_threads():
        torch.set_num_threads(threads)
        say(f"{threads} CPU threads in each process; hardware.threads changes that")
