"""Whole training steps, timed."""

import resource
import statistics
import tempfile
import time
from typing import Any

import torch
from accelerate import Accelerator

from pipelines.engine.config import BaseConfig
from pipelines.engine.gpu import read_gpu
from pipelines.engine.loop import Loop
from pipelines.engine.runs import Run, processor
from pipelines.engine.workload import Task

WARM_UP = 3  # steps: allocations, kernel choices, compilation


def measure(
    task: Task, config: BaseConfig, accelerator: Accelerator, run: Run, select: str, steps: int
) -> dict[str, Any]:
    """Time `steps` updates (data, loss, backward, optimizer) after a warm-up. Nothing is kept of the training."""
    training = config.training.model_copy(update={"steps": WARM_UP + steps, "epochs": None})
    config = config.model_copy(update={"training": training})
    loop = Loop(task, config, accelerator, run, select)
    loop.choose_micro_batch_size()
    batches = loop.batches()
    loop.model.train()
    cuda = accelerator.device.type == "cuda"
    times, waits, utilisation = [], [], []
    for step in range(WARM_UP + steps):
        if step == WARM_UP and cuda:
            torch.cuda.reset_peak_memory_stats()
        began = time.perf_counter()
        loop.update(batches)
        if cuda:
            torch.cuda.synchronize()
        times.append(time.perf_counter() - began)
        waits.append(loop.monitor.waited)
        loop.monitor.waited = 0.0
        gpu = read_gpu(accelerator.device)
        if gpu and gpu.utilisation_percent is not None:
            utilisation.append(gpu.utilisation_percent)
    times, waits, utilisation = times[WARM_UP:], waits[WARM_UP:], utilisation[WARM_UP:]
    # On a CPU the process's peak, which the kernel counts in KiB, is the nearest there is.
    peak = torch.cuda.max_memory_allocated() if cuda else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    median = statistics.median(times)
    quartiles = statistics.quantiles(times, n=4) if len(times) > 1 else [median] * 3
    targets = statistics.mean(float(entry["count"]) for entry in loop.figures[WARM_UP:]) * accelerator.num_processes
    return {
        "workload": run.workload,
        "device": torch.cuda.get_device_name() if cuda else processor(),
        "processes": accelerator.num_processes,
        "threads": torch.get_num_threads(),
        "precision": accelerator.mixed_precision,
        "parameters": sum(p.numel() for p in task.model.parameters()),
        "batch_size": training.batch_size,
        "micro_batch_size": loop.progress.micro_batch_size,
        "steps": steps,
        "examples_per_s": training.batch_size / median,
        "targets_per_s": targets / median,  # what the loss is a mean over: examples, tokens, characters
        "step_s": median,
        "step_s_quartiles": [quartiles[0], quartiles[2]],
        "peak_memory_gib": peak / 2**30,
        "data_wait": sum(waits) / sum(times),
        "gpu_utilisation_percent": statistics.mean(utilisation) if utilisation else None,
    }


def temporary_run(workload: str) -> Run:
    """A run whose folder nobody will look at."""
    run = Run(workload, "benchmark")
    run.folder = type(run.folder)(tempfile.mkdtemp(prefix="benchmark-"))
    return run
