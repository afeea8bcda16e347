"""A workload of many toys, importable by the processes that train its members."""

import os
import signal
from typing import Any

import torch

from common.config import Section
from common.errors import UserError
from models import io
from pipelines.engine.batches import Resident
from pipelines.engine.config import BaseConfig
from pipelines.engine.workload import Metric, Workload
from tests.engine.toy import ToyTask


class Options(Section):
    """What goes wrong, if anything."""

    toy: Any = None
    fault: str | None = None


class Config(BaseConfig):
    model: Options = Options()


def task(config, folder, device):
    if config.model.fault == "exception":
        raise RuntimeError("pretended")
    if config.model.fault == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    return ToyTask(**config.model.toy or {})


def unused(*_):
    raise AssertionError("training a member calls nothing else")


def examined(factor, job, device, map_items):
    """Three times the items of a source, and what is to be found out about the process."""
    if job == "mistake":
        raise UserError("the member cannot be examined")
    source = Resident({"items": torch.arange(5)}, device)
    found = map_items(source, lambda batch: {"items": factor * batch["items"]}, 2)
    return {"job": job, "items": found["items"].tolist(), "threads": torch.get_num_threads(), "process": os.getpid()}


def find():
    """The workload; whoever calls it no longer saves models, since the toy is no family of models/."""
    io.save = lambda model, folder, **_: folder.mkdir(parents=True, exist_ok=True)
    return Workload(Config, unused, task, unused, unused, metric=Metric("val/error"))
