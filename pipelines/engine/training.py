"""Training one model from a prepared data folder: what `train.py` does, for a run or for each member of one."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator

from pipelines import cli
from pipelines.engine import hardware
from pipelines.engine.config import BaseConfig
from pipelines.engine.loop import Loop, Progress
from pipelines.engine.runs import Run
from pipelines.engine.workload import Workload


def train(
    workload: Workload,
    config: BaseConfig,
    folder: Path,
    facts: Mapping[str, Any],
    run: Run,
    accelerator: Accelerator,
    resume: bool,
    *member: str,
) -> Progress:
    """Train, or go on; `facts` of the data go into the run's provenance. Raises what `Loop` raises."""
    torch.manual_seed(config.seed)  # initial weights, the same on every rank
    task = workload.task(config, folder, accelerator.device, *member)
    hardware.apply(config.hardware, accelerator.device, task.model, accelerator.print)
    accelerator.print(f"{sum(p.numel() for p in task.model.parameters()):,} parameters on {accelerator.device}")
    for note in task.notes:
        accelerator.print(note)

    loop = Loop(task, config, accelerator, run, workload.select, workload.maximise)
    resume = resume and run.started()
    accelerator.wait_for_everyone()
    if accelerator.is_main_process:
        run.begin(config, accelerator.num_processes, facts)
    cli.start_trackers(accelerator, run, config)
    progress = loop.fit(resume)
    accelerator.end_training()
    return progress
