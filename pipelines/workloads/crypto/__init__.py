"""Per-coin trading signals from candles: SHORT, NO_TRADE or LONG."""

from common.config.lazy import lazily
from pipelines.engine.workload import Metric, Workload
from pipelines.workloads.crypto.config import Config

_package = "pipelines.workloads.crypto"
WORKLOAD = Workload(
    config=Config,
    prepare=lazily(f"{_package}.data:prepare"),
    expand=lazily(f"{_package}.task:expand"),
    task=lazily(f"{_package}.task:task"),
    evaluate=lazily(f"{_package}.evaluation:evaluate"),
    report=lazily(f"{_package}.report:sections"),
    metric=Metric("val/log_loss"),
)
