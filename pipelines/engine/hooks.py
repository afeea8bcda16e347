"""Hooks: a user's own classes that watch training, named by `training.hooks`."""

import importlib
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from accelerate import Accelerator
from torch import Tensor, nn

from common.config.mistakes import nearest
from common.errors import UserError, as_user_error
from pipelines.engine.config import BaseConfig
from pipelines.run.folder import Run
from pipelines.tracking import trackers


@dataclass(frozen=True)
class Moment:
    """The state of training. Hooks must not change it: a run has the same bits without them."""

    run: Run
    config: BaseConfig
    step: int  # updates made
    steps: int  # of the whole training
    model: nn.Module  # the task's; of sharded training each process has its part
    accelerator: Accelerator

    def track(self, histograms: Mapping[str, Tensor], images: Mapping[str, np.ndarray]) -> None:
        """Send {name: numbers} and {name: (H, W, 3) uint8} of this step to the trackers in tracking.log_with."""
        trackers.track(self.accelerator, self.step, histograms, images)


class Hook:
    """Base class of hooks, whose methods run on every process, except `on_save`, without gradients."""

    def on_update(self, now: Moment) -> None:
        """After each update: parameters hold its gradients, which are averaged over processes and clipped."""

    def on_validation(self, now: Moment, values: Mapping[str, float]) -> None:
        """After each validation, with the values recorded for it."""

    def on_save(self, now: Moment, checkpoint: Path) -> None:
        """After a checkpoint and model/last are written, on the main process, during training: read the files."""

    def on_end(self, now: Moment) -> None:
        """When training ends, be it done, stopped or failed."""


def load(word: str) -> Hook:
    """Instantiate the hook module:Class. Raises UserError if there is none."""
    module, _, name = word.partition(":")
    if "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.append(str(Path.cwd()))
    place = "where module is a file of the working folder or an installed one, as in my_hooks:Histograms"
    way = f"; give module:Class, {place} for my_hooks.py"
    with as_user_error(f"training.hooks: {word}: ", way, ModuleNotFoundError):
        there = vars(importlib.import_module(module)) if module[:1] not in ("", ".") else {}
    known = {each: value for each, value in there.items() if isinstance(value, type) and issubclass(value, Hook)}
    if name not in known:
        near = nearest(name, known)
        hint = f"did you mean {module}:{near[0]}?" if near else "give module:Class, a pipelines.engine.hooks.Hook"
        raise UserError(f"training.hooks: {word} is not a hook; {hint}")
    return known[name]()
