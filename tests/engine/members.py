"""A workload of many toys, importable by the processes that train its members."""

import os
import signal
from typing import Any

from common.config import Section
from models import io
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


def find():
    """The workload; whoever calls it no longer saves models, since the toy is no family of models/."""
    io.save = lambda model, folder, **_: folder.mkdir(parents=True, exist_ok=True)
    return Workload(Config, unused, task, unused, unused, metric=Metric("val/error"))
