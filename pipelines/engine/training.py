"""Training one model from a prepared data folder, the same for a run and for each member of one."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from accelerate import Accelerator
from accelerate.utils import ProjectConfiguration

from common.disk.files import digests, folder_at_once, remove, write_json
from common.errors import UserError
from common.foreign_text import printable
from models import io
from pipelines.distributed import ranks
from pipelines.engine.batches import lack_as
from pipelines.engine.config import BaseConfig
from pipelines.engine.stepping import LARGER
from pipelines.engine.workload import Workload
from pipelines.run.folder import Run
from pipelines.tracking import trackers

if TYPE_CHECKING:
    from pipelines.engine.loop import Loop
    from pipelines.engine.update import Progress


def make_accelerator(config: BaseConfig, run: Run) -> Accelerator:
    """Return the Accelerator with the configured trackers. Raises UserError for a tracker that is not installed."""
    trackers.check(config.tracking, run)
    project = ProjectConfiguration(project_dir=str(run.folder), logging_dir=str(run.folder / "trackers"))
    try:
        accelerator = Accelerator(log_with=list(config.tracking.log_with) or None, project_config=project)
    except (ValueError, RuntimeError) as error:  # such as a precision, or a way to split, that the device lacks
        if isinstance(error, torch.AcceleratorError):
            raise  # a failing GPU
        remedy = "python pipelines/doctor.py under the same launcher says what it chooses, accelerate config changes it"
        raise UserError(f"Accelerate does not start: {str(error).rstrip('.')}; {remedy}") from error
    if accelerator.mixed_precision == "bf16" and unsuited(accelerator.device, "bf16"):
        torch.backends.mkldnn.enabled = False  # type: ignore[assignment]  # it has no LSTM in bf16 there, and fails
    return accelerator


def unsuited(device: torch.device, precision: str) -> list[str]:
    """Return a note where the CPU has no instructions for bf16, which makes an update seven times as slow, or fp16."""
    slow = precision == "bf16" and torch.backends.cpu.get_cpu_capability() == "AVX2"
    how = "several times more slowly than in fp32" if slow else "as in fp32, since Accelerate ignores it"
    note = f"this CPU computes in {precision} {how}; leave out --mixed_precision {precision}"
    return [note] * (device.type == "cpu" and (slow or precision == "fp16"))


@lack_as(lambda: UserError(f"out of memory; {LARGER}"))
def train(
    workload: Workload,
    config: BaseConfig,
    folder: Path,
    facts: Mapping[str, object],
    run: Run,
    accelerator: Accelerator,
    resume: bool,
) -> Progress:
    """Train or resume as `Loop` does, from scratch if the data's `content` changed; `facts` go into the provenance."""
    from pipelines.engine.loop import Loop  # late, as its imports take most of a second and an evaluation needs none

    config.hardware.apply(accelerator.device, accelerator.print)
    torch.manual_seed(config.seed)  # initial weights, the same on every rank
    task = ranks.agree(lambda: workload.task(config, folder, accelerator.device))
    config.hardware.apply_to(task.model)
    size, warmup = sum(p.numel() for p in task.model.parameters()), config.training.warmup_steps
    loop = Loop(task, config, accelerator, run, workload.metric)
    more = unsuited(accelerator.device, accelerator.mixed_precision)
    more += [f"training.warmup_steps={warmup} is more than the run's {loop.steps} updates"] * (warmup > loop.steps)
    accelerator.print(f"{size:,} parameters on {accelerator.device}", *map(printable, (*task.notes, *more)), sep="\n")
    if resume and not ranks.on_main(lambda: run.learnt_from(facts.get("content"))):
        accelerator.print("its data have changed: training starts over")
        ranks.on_main(run.begin_anew)
    ranks.on_main(lambda: _check_start(config, run, accelerator.mixed_precision))
    ranks.on_main(loop.check_same_model)
    ranks.on_main(lambda: _reopen(run))  # now that nothing is refused any more
    ranks.on_main(lambda: run.begin(config, accelerator.num_processes, facts, accelerator.mixed_precision))
    trackers.start(accelerator, config, run)
    progress = loop.fit(resume)
    if task.fits_again and progress.best is not None:
        _fit_again(workload, folder, loop)
    outcome = {"state": "done", "select": loop.metric.name, "best": progress.best}
    outcome |= {"best_step": progress.best_step, "step": progress.step}
    ranks.on_main(lambda: write_json(run.outcome_file, {**outcome, "models": digests(run.best.parent)}))
    accelerator.end_training()
    return progress


def _fit_again(workload: Workload, folder: Path, loop: Loop) -> None:
    """Fit on training and validation together, as many updates as led to the best model, on the same schedule."""
    run, config, first, steps = loop.run, loop.config, loop.task, loop.progress.best_step
    again, device = Run(run.workload, run.name, within="again"), loop.accelerator.device
    ranks.on_main(lambda: remove(again.folder))
    ranks.on_main(again.folder.mkdir)
    loop.accelerator.print(f"fitting again, on training and validation together: {steps} updates")
    torch.manual_seed(config.seed)
    with ranks.copy_of(run.best) as best:
        first.model = ranks.agree(lambda: io.load(best, device))
    task = ranks.agree(lambda: workload.task(config, folder, device, first))
    config.hardware.apply_to(task.model)
    length = config.training.model_copy(update={"steps": loop.updater.steps, "epochs": None, "hooks": ()})
    config = config.model_copy(update={"training": length, "tracking": type(config.tracking)()})
    last = type(loop)(task, config, make_accelerator(config, again), again, loop.metric)
    last.steps = last.progress.validated = steps  # where nothing is left to validate on
    last.fit()
    ranks.on_main(lambda: _ship(run, again))


def _ship(run: Run, again: Run) -> None:
    """Replace the best model by the one fitted again, with the files beside it; keep the former as `judged`."""
    run.best.rename(run.judged)
    with folder_at_once(run.best) as temporary:
        for folder in (run.judged, again.last):
            shutil.copytree(folder, temporary, dirs_exist_ok=True)
    remove(again.folder)


def _reopen(run: Run) -> None:
    """Remove the outcome; make the judged model the best one again, with the files that evaluations wrote."""
    remove(run.outcome_file)
    if run.judged.is_dir():
        for path in run.best.glob("*"):
            if not (run.judged / path.name).exists():
                shutil.copy(path, run.judged)
        remove(run.best)
        run.judged.rename(run.best)


def _check_start(config: BaseConfig, run: Run, now: str) -> None:
    run.check_goes_on()
    before = run.provenance().get("mixed_precision")
    if before in (None, now) or config.hardware.change_precision or not run.checkpoints.is_dir():
        return
    either = f"give accelerate launch --mixed_precision {before}, or set hardware.change_precision=true"
    was = f"{run.folder} was trained with --mixed_precision {before}, and would continue with {now}"
    raise UserError(f"{was}: {either}, which provenance.json records")
