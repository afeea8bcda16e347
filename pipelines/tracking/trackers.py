"""Experiment trackers: Accelerate starts them and sends them figures; this module sends pictures and tables."""

from __future__ import annotations

import importlib
import importlib.util
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, TypeAlias

from pydantic import Field

from common.config import Choice, Section, leaves
from common.errors import UserError
from pipelines.run.folder import Run

if TYPE_CHECKING:
    import numpy as np
    from accelerate import Accelerator
    from accelerate.tracking import GeneralTracker
    from torch import Tensor

Rows = Sequence[Mapping[str, object]]
Tables: TypeAlias = "Mapping[str, Rows]"
Arrays: TypeAlias = "Mapping[str, np.ndarray]"
# The name under which Accelerate knows each tracker, and the package it needs.
TRACKERS = {"tensorboard": "tensorboard", "trackio": "trackio", "wandb": "wandb"}
# Where a tracker writes, unless the user's environment says otherwise: into the run's folder, and to no server.
PLACES = {
    "wandb": {"WANDB_DIR": "{folder}", "WANDB_MODE": "offline", "WANDB_SILENT": "true"},
    "trackio": {"TRACKIO_DIR": "{folder}"},
}


class Tracking(Section):
    """Experiment trackers beside metrics.jsonl."""

    log_with: tuple[Annotated[str, Choice(TRACKERS)], ...] = Field((), description="trackers that receive the metrics")


def check(tracking: Tracking, run: Run) -> None:
    """Set where the trackers write. Raises UserError for one that is not installed."""
    folder = run.folder / "trackers"
    for tracker in tracking.log_with:
        if importlib.util.find_spec(TRACKERS[tracker]) is None:
            raise UserError(f"tracking.log_with: {tracker} is not installed; pip install {TRACKERS[tracker]}")
        for name, value in PLACES.get(tracker, {}).items():
            os.environ.setdefault(name, value.format(folder=folder))


def start(accelerator: Accelerator, config: Section, run: Run) -> None:
    """Start the trackers, if there are any, with the config."""
    if accelerator.log_with:
        if accelerator.is_main_process:  # another machine has no folder of the run
            (run.folder / "trackers").mkdir(parents=True, exist_ok=True)
        plain = leaves(config.model_dump(mode="json"))
        flat = {key: value if isinstance(value, int | float | str) else str(value) for key, value in plain}
        accelerator.init_trackers(f"{run.workload}-{run.name}".replace("/", "-"), config=flat)


def show(accelerator: Accelerator, config: Section, run: Run, tables: Tables, pictures: Arrays) -> None:
    """Pass tables, {name: rows}, and pictures, {name: (H, W, 3) uint8}, to the trackers that take them."""
    if accelerator.log_with:
        start(accelerator, config, run)
        for tracker in accelerator.trackers:
            _send(tracker, tables, pictures, {}, None)
        accelerator.end_training()


def track(accelerator: Accelerator, step: int, histograms: Mapping[str, Tensor], images: Arrays) -> None:
    """Pass {name: numbers} and {name: (H, W, 3) uint8} of a step to the started trackers that take them."""
    numbers = {name: values.detach().float().flatten().cpu().numpy() for name, values in histograms.items()}
    for tracker in accelerator.trackers:
        _send(tracker, {}, images, numbers, step)


def _send(tracker: GeneralTracker, tables: Tables, pictures: Arrays, numbers: Arrays, step: int | None) -> None:
    library = None if tracker.name == "tensorboard" else importlib.import_module(TRACKERS[tracker.name])
    if library and not hasattr(library, "Table"):
        return  # it gets only figures, from Accelerate
    for name, rows in tables.items():
        columns = list(dict.fromkeys(key for row in rows for key in row))
        cells = [[row.get(column, "") for column in columns] for row in rows]
        if library is None:
            lines: list[Sequence[object]] = [columns, ["---"] * len(columns), *cells]
            tracker.writer.add_text(name, "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines))
        else:
            from pandas import DataFrame

            tracker.log({name: library.Table(dataframe=DataFrame(cells, columns=columns).astype(str))}, step=step)
    for name, picture in pictures.items():
        if library is None:
            tracker.log_images({name: picture[None]}, step=step, dataformats="NHWC")
        else:
            tracker.log({name: library.Image(picture)}, step=step)
    for name, values in numbers.items():
        if library is None:
            tracker.writer.add_histogram(name, values, global_step=step)
        else:
            tracker.log({name: library.Histogram(values)}, step=step)
