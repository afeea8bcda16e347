"""A character model that completes BIM Execution Plans in a firm's own language."""

from common.config.lazy import lazily
from pipelines.engine.workload import Metric, Workload
from pipelines.workloads.bep.config import Config

_package = "pipelines.workloads.bep"
WORKLOAD = Workload(
    config=Config,
    prepare=lazily(f"{_package}.data:prepare"),
    task=lazily(f"{_package}.task:CharTask"),
    evaluate=lazily(f"{_package}.evaluation:evaluate"),
    report=lazily(f"{_package}.report:sections"),
    metric=Metric("val/bits_per_character"),
)
