"""Whole training steps, timed."""

import contextlib
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import torch
from accelerate import Accelerator
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from common.gpu import read_gpu
from common.machine import peak_memory_bytes, processor
from pipelines.engine.batches import stream
from pipelines.engine.config import BaseConfig
from pipelines.engine.run import Run
from pipelines.engine.update import Updater
from pipelines.engine.workload import Task

WARM_UP = 3  # steps: allocations, kernel choices, compilation


def measure(task: Task, config: BaseConfig, accelerator: Accelerator, run: Run, steps: int) -> dict[str, Any]:
    """Time `steps` updates (data, loss, backward, optimizer) after a warm-up. Nothing is kept of the training."""
    training = config.training.model_copy(update={"steps": WARM_UP + steps, "epochs": None})
    config = config.model_copy(update={"training": training})
    updater = Updater(task, config, accelerator, run)
    updater.choose_micro_batch_size()
    batches = updater.batches()
    updater.model.train()
    cuda = accelerator.device.type == "cuda"
    times, waits, utilisation = [], [], []
    for step in range(WARM_UP + steps):
        if step == WARM_UP and cuda:
            torch.cuda.reset_peak_memory_stats()
        began = time.perf_counter()
        updater.update(batches)
        if cuda:
            torch.cuda.synchronize()
        times.append(time.perf_counter() - began)
        waits.append(updater.monitor.waited)
        updater.monitor.waited = 0.0
        gpu = read_gpu(accelerator.device)
        if gpu and gpu.utilisation_percent is not None:
            utilisation.append(gpu.utilisation_percent)
    times, waits, utilisation = times[WARM_UP:], waits[WARM_UP:], utilisation[WARM_UP:]
    peak = torch.cuda.max_memory_allocated() if cuda else peak_memory_bytes()
    median = statistics.median(times)
    quartiles = statistics.quantiles(times, n=4) if len(times) > 1 else [median] * 3
    product, flops = product_flops_per_s(task.model, accelerator), flops_per_example(task, updater, accelerator)
    reached = None if flops is None else flops * training.batch_size / accelerator.num_processes / median
    targets = statistics.mean(float(entry["count"]) for entry in updater.figures[WARM_UP:]) * accelerator.num_processes
    return {
        "workload": run.workload,
        "device": torch.cuda.get_device_name() if cuda else processor(),
        "processes": accelerator.num_processes,
        "threads": torch.get_num_threads(),
        "precision": accelerator.mixed_precision,
        "parameters": sum(p.numel() for p in task.model.parameters()),
        "batch_size": training.batch_size,
        "micro_batch_size": updater.progress.micro_batch_size,
        "steps": steps,
        "examples_per_s": training.batch_size / median,
        "targets_per_s": targets / median,  # what the loss is a mean over: examples, tokens, characters
        "step_s": median,
        "step_s_quartiles": [quartiles[0], quartiles[2]],
        "peak_memory_gib": peak / 2**30,
        "data_wait": sum(waits) / sum(times),
        "gpu_utilisation_percent": statistics.mean(utilisation) if utilisation else None,
        # Of one process. A data sheet's peak is the usual denominator; a large product is what can be had of it here.
        "model_tflops_per_s": None if reached is None else reached / 1e12,
        "product_tflops_per_s": product / 1e12,
        "model_flops_utilisation": None if reached is None else reached / product,
    }


def flops_per_example(task: Task, updater: Updater, accelerator: Accelerator) -> float | None:
    """Floating-point operations of an example's loss and its gradient (Chowdhery et al. 2022), counted.

    What gradient checkpointing computes again is not among them. None for recurrent networks: their kernels are opaque.
    """
    model, size = task.model, updater.progress.micro_batch_size
    if any(isinstance(module, nn.RNNBase) for module in model.modules()):
        return None
    again = getattr(model, "gradient_checkpointing", False)
    if again:
        model.gradient_checkpointing, size = False, 1  # one example's activations fit
    try:
        ((_, batch),) = stream(task.train, iter([updater.order.items(0)[:size]]), accelerator.device)
        with torch.compiler.set_stance("force_eager"), counted() as counter:
            with accelerator.autocast():
                loss = task.loss(model, batch).value
            loss.backward()
    finally:
        if again:
            model.gradient_checkpointing = True
        model.zero_grad()
    return counter.get_total_flops() / size


@contextlib.contextmanager
def counted() -> Iterator[FlopCounterMode]:
    """Counts operations within it, also those of attention on a CPU, whose own kernel torch does not count."""
    kernels = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.CUDNN_ATTENTION]
    kernels = [*(kernels if torch.cuda.is_available() else []), SDPBackend.MATH]
    with sdpa_kernel(kernels), FlopCounterMode(display=False) as counter:
        yield counter


def product_flops_per_s(model: nn.Module, accelerator: Accelerator) -> float:
    """Operations per second of a large matrix product in the type that most of the model is computed in."""
    mixed = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(accelerator.mixed_precision)
    counts = Counter()
    for parameter in model.parameters():
        counts[parameter.dtype if parameter.is_floating_point() else mixed or torch.bfloat16] += parameter.numel()
    side = 8192 if accelerator.device.type == "cuda" else 1024
    matrix = torch.randn(side, side, device=accelerator.device).to(mixed or counts.most_common(1)[0][0])
    times = []
    for _ in range(10):
        began = time.perf_counter()
        matrix @ matrix
        if accelerator.device.type == "cuda":
            torch.cuda.synchronize()
        times.append(time.perf_counter() - began)
    return 2 * side**3 / min(times)


def temporary_run(workload: str) -> Run:
    """A run whose folder nobody will look at."""
    run = Run(workload, "benchmark")
    run.folder = type(run.folder)(tempfile.mkdtemp(prefix="benchmark-"))
    return run
