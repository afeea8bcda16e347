"""Small configs and tasks for tests."""

import torch

from pipelines.workloads.lmol.config import Config
from pipelines.workloads.lmol.task import ComparisonTask

CPU = torch.device("cpu")
FEW = {"size": 16, "train_pairs": 80, "evaluation_pairs": 200}
SMALL = {"siamese": {"width": 16}, "scorer": {}, "vlm": {"width": 16, "layers": 2, "heads": 2}}


def config(kind="siamese", training=None, loader="resident", **model):
    """A config of few pairs and a small model."""
    tree = {"model": {"kind": kind, **SMALL[kind], **model}, "training": {"steps": 1, **(training or {})}}
    return Config.model_validate({"data": {**FEW, "loader": loader}, **tree})


def make(prepared, *args, **changes):
    """A task whose model has the weights of one seed."""
    torch.manual_seed(0)
    return ComparisonTask(config(*args, **changes), prepared, CPU)
