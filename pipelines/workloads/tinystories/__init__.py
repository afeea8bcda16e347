"""Tiny transformers that tell stories on a microcontroller."""

from common.config.lazy import lazily
from pipelines.engine.workload import Metric, Workload
from pipelines.workloads.tinystories.config import Config

_package = "pipelines.workloads.tinystories"
WORKLOAD = Workload(
    config=Config,
    prepare=lazily(f"{_package}.data:prepare"),
    task=lazily(f"{_package}.task:StoriesTask"),
    evaluate=lazily(f"{_package}.evaluation:evaluate"),
    report=lazily(f"{_package}.report:sections"),
    metric=Metric("val/bits_per_character"),
)
