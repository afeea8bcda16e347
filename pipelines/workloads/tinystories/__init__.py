"""Tiny transformers that tell stories on a microcontroller."""

from common.packages import lazily
from pipelines.engine.workload import Metric, Workload
from pipelines.workloads.tinystories.config import Config

WORKLOAD = Workload(
    config=Config,
    prepare=lazily(f"{__name__}.data:prepare"),
    task=lazily(f"{__name__}.task:StoriesTask"),
    evaluate=lazily(f"{__name__}.evaluation:evaluate"),
    report=lazily(f"{__name__}.report:sections"),
    metric=Metric("val/bits_per_character"),
)
