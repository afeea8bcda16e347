"""Comparing images: a model answers which of two ranks higher, and many answers give every image a score."""

from common.packages import lazily
from pipelines.engine.workload import Metric, Workload
from pipelines.workloads.lmol.config import Config

WORKLOAD = Workload(
    config=Config,
    prepare=lazily(f"{__name__}.data:prepare"),
    task=lazily(f"{__name__}.task:ComparisonTask"),
    expand=lazily(f"{__name__}.data:expand"),
    evaluate=lazily(f"{__name__}.folds:evaluate"),
    report=lazily(f"{__name__}.report:sections"),
    # Not the loss: with few groups of images a model gets surer of its mistakes while its answers still get better.
    metric=Metric("val/accuracy", maximise=True),
)
