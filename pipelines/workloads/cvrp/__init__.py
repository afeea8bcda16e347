"""Capacitated vehicle routing: neural solvers trained by reinforcement learning."""

from typing import ClassVar, Literal

from pydantic import Field, model_validator

from common.config import Section
from common.lazy import lazily
from models.routing.policy import KINDS, PRESETS, RoutingConfig
from pipelines.engine.config import BaseConfig, DataSection, Training
from pipelines.engine.workload import Metric, Workload

HEURISTICS = ("greedy", "savings")
CAPACITY = {10: 20, 20: 30, 50: 40, 100: 50}  # Kool et al. 2019, by number of customers
LARGEST_DEMAND = {"uniform": 9, "grid": 10, "clustered": 9}


class Data(DataSection):
    """The distribution of instances; a policy can be evaluated on others than it was trained on."""

    settled: ClassVar[bool] = False

    customers: int = Field(20, ge=2, le=10_000, description="customers per instance")
    capacity: int | None = Field(None, ge=1, description="of a vehicle, in units of demand; null: Kool et al.'s")
    distribution: Literal["uniform", "grid", "clustered"] = Field(
        "uniform",
        description="uniform: Kool et al. 2019; grid: coordinates k/100, demand 1 to 10; clustered: around seeds",
    )
    validation_instances: int = Field(1000, ge=1, description="instances that pick the best model")
    test_instances: int = Field(1000, ge=1, le=10_000, description="instances that are evaluated")

    @model_validator(mode="after")
    def _capacity_fits(self) -> "Data":
        if self.capacity is None and self.customers not in CAPACITY:
            raise ValueError(
                f"data.capacity must be given for data.customers={self.customers}; "
                f"it is known for {', '.join(map(str, CAPACITY))} customers only"
            )
        largest = LARGEST_DEMAND[self.distribution]
        if self.vehicle_capacity < largest:
            raise ValueError(
                f"data.capacity={self.capacity} is below the largest demand {largest} of "
                f"data.distribution={self.distribution}; give {largest} or more"
            )
        return self

    @property
    def vehicle_capacity(self) -> int:
        """The capacity, given or by the number of customers."""
        return self.capacity or CAPACITY[self.customers]


class Model(Section):
    """A policy network, or a heuristic that needs no training."""

    kind: Literal["gat", "gt", "dgt", "greedy", "savings"] = Field(
        "gt", description="gat, gt, dgt: networks; greedy (nearest neighbour), savings (Clarke-Wright): heuristics"
    )
    preset: Literal["small", "medium", "large"] = Field("small", description="size; the keys below override it")
    width: int | None = Field(None, ge=8, description="channels of a node state; null: the preset's")
    heads: int | None = Field(None, ge=1, description="attention heads; null: the preset's")
    layers: int | None = Field(None, ge=1, description="encoder layers; null: the preset's")
    neighbors: int = Field(0, ge=0, description="k of the nearest-neighbour graph of kind gat; 0: complete graph")

    @model_validator(mode="after")
    def _fits(self) -> "Model":
        if self.neighbors and self.kind != "gat":
            raise ValueError(f"model.neighbors={self.neighbors} needs model.kind=gat (given {self.kind})")
        if self.kind in KINDS:
            resolved = self.resolved()
            if resolved.width % resolved.heads:
                raise ValueError(f"model.width={resolved.width} is not a multiple of model.heads={resolved.heads}")
        return self

    def resolved(self) -> RoutingConfig:
        """The network's config, preset and overrides together."""
        sizes = {**PRESETS[self.preset], **{k: v for k in ("width", "heads", "layers") if (v := getattr(self, k))}}
        return RoutingConfig(kind=self.kind, neighbors=self.neighbors, **sizes)


class CvrpTraining(Training):
    """Reinforcement learning: REINFORCE with one of two baselines."""

    baseline: Literal["multistart", "rollout"] = Field(
        "multistart",
        description="multistart: mean over starts (Kwon et al. 2020); rollout: greedy copy (Kool et al. 2019)",
    )
    starts: int | None = Field(None, ge=2, description="tours per instance with multistart; null: one per customer")
    significance: float = Field(0.05, gt=0, lt=1, description="p-value below which the rollout baseline is replaced")
    challenge_instances: int = Field(2000, ge=100, description="instances on which the replacement is decided")


class EvaluationSettings(Section):
    """What is solved, how, and beside what."""

    instances: str = Field("test", description="test, or a .npz or .vrp file, or a folder of them")
    decode: Literal["greedy", "sampling", "multistart"] = Field("multistart", description="how tours are built")
    samples: int = Field(128, ge=1, description="tours per instance with decode=sampling")
    augment: bool = Field(True, description="solve each instance in the 8 symmetries of the square, keep the best")
    compare: bool = Field(True, description="also evaluate the cheaper ways to decode, for the cost-time curve")
    polish_seconds: float = Field(0, ge=0, description="seconds of PyVRP per instance, started from the model's tour")
    reference_seconds: float = Field(0.5, ge=0, description="seconds of PyVRP per instance from scratch; 0: none")
    reference_instances: int = Field(100, ge=1, description="on how many of the instances that reference is solved")


class Config(BaseConfig):
    """The workload's whole config."""

    data: Data = Data()
    model: Model = Model()
    training: CvrpTraining = CvrpTraining(steps=2000)
    evaluation: EvaluationSettings = EvaluationSettings()

    @property
    def trains(self) -> bool:
        """Whether model.kind is a network; heuristics have nothing to learn."""
        return self.model.kind not in HEURISTICS

    @model_validator(mode="after")
    def _starts_fit(self) -> "Config":
        starts = self.training.starts
        if starts is not None and self.training.baseline == "rollout":
            raise ValueError(f"training.starts={starts} has no meaning with training.baseline=rollout; leave it out")
        if starts is not None and starts > self.data.customers:
            raise ValueError(f"training.starts={starts} is more than data.customers={self.data.customers}")
        return self


_package = "pipelines.workloads.cvrp"
WORKLOAD = Workload(
    config=Config,
    prepare=lazily(f"{_package}.instances:prepare"),
    task=lazily(f"{_package}.task:CvrpTask"),
    evaluate=lazily(f"{_package}.evaluation:evaluate"),
    report=lazily(f"{_package}.report:sections"),
    metric=Metric("val/cost"),
)
