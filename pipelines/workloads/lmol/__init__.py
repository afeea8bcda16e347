"""Comparing images: a model answers which of two ranks higher, and many answers give every image a score."""

from common.config.lazy import lazily
from pipelines.engine.workload import Metric, Workload
from pipelines.workloads.lmol.config import Config

_package = "pipelines.workloads.lmol"
WORKLOAD = Workload(
    config=Config,
    prepare=lazily(f"{_package}.data:prepare"),
    task=lazily(f"{_package}.task:ComparisonTask"),
    expand=lazily(f"{_package}.folds:expand"),
    evaluate=lazily(f"{_package}.folds:evaluate"),
    report=lazily(f"{_package}.report:sections"),
    # Not the loss: with few groups of images a model gets surer of its mistakes while its answers still get better.
    metric=Metric("val/accuracy", maximise=True),
)
