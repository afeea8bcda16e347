"""A workload of many toys, importable by the processes that train its members."""

import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from common.config import Section
from common.errors import UserError
from models import io
from pipelines.engine.batches import Resident
from pipelines.engine.config import BaseConfig
from pipelines.engine.workload import Metric, Workload
from tests.engine.toy import ToyTask

CPU = torch.device("cpu")


class Options(Section):
    """What goes wrong, if anything."""

    toy: Any = None
    fault: str | None = None
    weight: float = 1.0  # of the loss, and of what is to be learnt


class Config(BaseConfig):
    model: Options = Options()

    @property
    def stacks(self):
        return True


class MemberTask(ToyTask):
    """A loss that depends on a tensor of the task, and a process that is killed while there is a file `kill`."""

    def __init__(self, weight, **options):
        super().__init__(**options)
        self.weight = torch.tensor(weight)
        self.train = self.validation = Resident({**self.train.tensors, "y": self.train.tensors["y"] * weight}, CPU)

    def loss(self, model, batch):
        found = super().loss(model, batch)
        return replace(found, value=found.value * self.weight)

    def score(self, model, batch):
        if Path("kill").exists():
            os.kill(os.getpid(), signal.SIGKILL)
        return super().score(model, batch)


def task(config, folder, device):
    if config.model.fault == "exception":
        raise RuntimeError("pretended")
    if config.model.fault == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    return MemberTask(config.model.weight, **config.model.toy or {})


def unused(*_):
    raise AssertionError("training a member calls nothing else")


def examined(factor, job, device, map_items):
    """Three times the items of a source, and what is to be found out about the process."""
    if job == "mistake":
        raise UserError("the member cannot be examined")
    source = Resident({"items": torch.arange(5)}, device)
    found = map_items(source, lambda batch: {"items": factor * batch["items"]}, 2)
    return {"job": job, "items": found["items"].tolist(), "threads": torch.get_num_threads(), "process": os.getpid()}


def save(model, folder, state, write):
    folder.mkdir(parents=True, exist_ok=True)
    save_file(dict(state), folder / "model.safetensors")


def find():
    """The workload; whoever calls it saves weights alone, since the toy is no family of models/."""
    io.save = save
    return Workload(Config, unused, task, unused, unused, metric=Metric("val/error"))
