"""Capacitated vehicle routing: neural solvers trained by imitation and reinforcement learning."""

from common.packages import lazily
from pipelines.engine.workload import Metric, Workload
from pipelines.workloads.cvrp.config import Config

WORKLOAD = Workload(
    config=Config,
    prepare=lazily(f"{__name__}.prepare:prepare"),
    task=lazily(f"{__name__}.task:CvrpTask"),
    evaluate=lazily(f"{__name__}.evaluation:evaluate"),
    report=lazily(f"{__name__}.report:sections"),
    metric=Metric("val/cost"),
)
