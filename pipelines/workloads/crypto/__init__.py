"""Per-coin trading signals from candles: SHORT, NO_TRADE or LONG."""

from common.packages import lazily
from pipelines.engine.workload import Metric, Workload
from pipelines.workloads.crypto.config import Config

WORKLOAD = Workload(
    config=Config,
    prepare=lazily(f"{__name__}.data:prepare"),
    expand=lazily(f"{__name__}.task:expand"),
    task=lazily(f"{__name__}.task:task"),
    evaluate=lazily(f"{__name__}.evaluation:evaluate"),
    report=lazily(f"{__name__}.report:sections"),
    metric=Metric("val/log_loss"),
)
