"""Measurements of whole training steps: time, memory, utilisation, floating-point operations."""

import statistics
import time
from collections import Counter

import numpy as np
import torch
from accelerate import Accelerator
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.benchmark import Timer
from torch.utils.flop_counter import FlopCounterMode

from common.gpu import GIB, read_gpu
from common.machine import peak_memory_bytes, processor
from common.plain import Plain
from pipelines.engine.batches import stream
from pipelines.engine.config import BaseConfig
from pipelines.engine.update import Updater
from pipelines.engine.workload import Task
from pipelines.run.folder import Run

WARM_UP = 3  # steps: allocations, kernel choices, compilation
GROUPS = 5  # of timed steps on a GPU


def measure(task: Task, config: BaseConfig, accelerator: Accelerator, run: Run, steps: int) -> dict[str, Plain]:
    """Time `steps` updates (data, loss, backward, optimizer) after a warm-up. Nothing is written into `run`."""
    training = config.training.model_copy(update={"steps": WARM_UP + steps, "epochs": None, "most_epochs": None})
    config = config.model_copy(update={"training": training})
    updater = Updater(task, config, accelerator, run)
    updater.choose_micro_batch_size()
    cuda = accelerator.device.type == "cuda"
    step_seconds, elapsed, gpu_percent = _time_steps(updater, accelerator.device, steps)
    # On a CPU, the process's own peak comes nearest to the peak of allocations.
    peak = torch.cuda.max_memory_allocated() if cuda else peak_memory_bytes()
    median = statistics.median(step_seconds)
    quartiles = [float(share) for share in np.quantile(step_seconds, (0.25, 0.75))]
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
        "step_s_quartiles": quartiles,
        "peak_memory_gib": peak / GIB,
        "data_wait": updater.monitor.waited / elapsed,
        "gpu_utilisation_percent": statistics.mean(gpu_percent) if gpu_percent else None,
        # Per process, relative to a large matrix product, the most that this machine reaches, not a data sheet's peak.
        "model_tflops_per_s": None if reached is None else reached / 1e12,
        "product_tflops_per_s": product / 1e12,
        "model_flops_utilisation": None if reached is None else reached / product,
    }


def _time_steps(updater: Updater, device: torch.device, steps: int) -> tuple[list[float], float, list[float]]:
    """Return the mean seconds of a step by groups, those of all, and the GPU's utilisation, after WARM_UP updates."""
    batches, cuda = updater.batches(), device.type == "cuda"
    step_seconds, elapsed, gpu_percent = list[float](), 0.0, list[float]()
    updater.model.train()
    for _ in range(WARM_UP):
        updater.update(batches)
    if cuda:
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
    updater.monitor.waited = 0.0
    for group in torch.arange(steps).chunk(GROUPS if cuda else steps):
        began = time.perf_counter()
        for _ in group:
            updater.update(batches)
        if cuda:
            torch.cuda.synchronize()
        seconds = time.perf_counter() - began
        elapsed += seconds
        step_seconds.append(seconds / len(group))
        gpu_percent += [value for name, value in read_gpu(device).items() if name == "gpu/utilisation_percent"]
    return step_seconds, elapsed, gpu_percent


def flops_per_example(task: Task, updater: Updater, accelerator: Accelerator) -> float | None:
    """Count operations of an example's loss and gradient, without repeats; None for recurrent nets."""
    model, size = task.model, updater.progress.micro_batch_size
    if any(isinstance(module, nn.RNNBase) for module in model.modules()):
        return None
    if again := getattr(model, "gradient_checkpointing", False):
        size = 1  # one example's activations fit
        setattr(model, "gradient_checkpointing", False)  # noqa: B010 (modules have no such attribute by their type)
    try:
        ((_, batch),) = stream(task.train, iter([updater.order.items(0)[:size]]), accelerator.device)
        # On a CPU attention has a kernel of its own, which torch does not count.
        kernels = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.CUDNN_ATTENTION]
        counted = [*kernels * torch.cuda.is_available(), SDPBackend.MATH]
        counter = FlopCounterMode(display=False)
        with torch.compiler.set_stance("force_eager"), sdpa_kernel(counted), counter:
            with accelerator.autocast():
                loss = task.loss(model, batch).value
            loss.backward()
    finally:
        if again:
            setattr(model, "gradient_checkpointing", True)  # noqa: B010
        model.zero_grad()
    return counter.get_total_flops() / size


def product_flops_per_s(model: nn.Module, accelerator: Accelerator) -> float:
    """Return the operations per second of a large matrix product in the type that most of the model computes in."""
    mixed = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(accelerator.mixed_precision)
    counts: Counter[torch.dtype] = Counter()
    for parameter in model.parameters():
        counts[parameter.dtype if parameter.is_floating_point() else mixed or torch.bfloat16] += parameter.numel()
    side = 8192 if accelerator.device.type == "cuda" else 1024
    matrix = torch.randn(side, side, device=accelerator.device).to(mixed or counts.most_common(1)[0][0])
    timer = Timer("matrix @ matrix", globals={"matrix": matrix}, num_threads=torch.get_num_threads())
    return float(2 * side**3 / min(timer.blocked_autorange().times))
