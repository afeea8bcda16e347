"""The config of the workload: instances, the policy, its training and its evaluation."""

import math
from typing import Annotated, ClassVar, Literal

import numpy as np
from pydantic import Field, ValidationInfo, field_validator, model_validator

from common.config import Choice, Section
from models.routing.config import KINDS, PRESETS, RoutingConfig
from models.routing.inputs import SearchSettings
from models.routing.problems import ROUNDINGS
from pipelines.engine.config import BaseConfig, DataSection, Training
from pipelines.workloads.cvrp.instances.distributions import CAPACITY, DISTRIBUTIONS, PROBLEMS
from pipelines.workloads.cvrp.solvers.heuristics import HEURISTICS
from pipelines.workloads.cvrp.solvers.reference import SOLVERS

OUTLIVED = ("sisrs", "pyvrp_from_savings")
Size = Annotated[int, Field(ge=2, le=10_000)]


class Data(DataSection):
    """The distribution of instances; a policy can be evaluated on another one than it was trained on."""

    settled: ClassVar[bool] = False

    customers: Size | tuple[Size, Size] = Field(20, description="customers per instance; [low, high]: drawn per batch")
    capacity: int | None = Field(
        None,
        ge=1,
        description="capacity of a vehicle, in units of demand; null: as in Kool et al. 2019, drawn by distribution x",
    )
    distribution: Annotated[str, Choice(DISTRIBUTIONS)] = Field(
        "uniform", description="; ".join(f"{name}: {entry.description}" for name, entry in DISTRIBUTIONS.items())
    )
    problem: Annotated[str, Choice(PROBLEMS)] = Field(
        "cvrp",
        description="what instances have beyond capacities: vrptw (time windows and services), vrpl (a limit on the "
        "length of routes), ovrp (open routes), mixed (each of these and a limit on durations at random), acvrp "
        "(one-way roads: costs there and back differ), cvrp (nothing)",
    )
    validation_instances: int = Field(1000, ge=1, description="instances on which the best model is chosen")
    test_instances: int = Field(1000, ge=1, le=10_000, description="instances of the test set to evaluate on")
    labels: int = Field(0, ge=0, description="instances to imitate, solved first by HGS; as many as updates read")

    @model_validator(mode="after")
    def _capacity_fits(self) -> "Data":
        if not self.sizes:
            raise ValueError(f"data.customers={self.customers}: give the smaller number first")
        distribution = DISTRIBUTIONS[self.distribution]
        if self.capacity is None and not distribution.own_capacity and self.customers not in CAPACITY:
            usual = round(np.interp(self.sizes[-1], [*CAPACITY], [*CAPACITY.values()]))
            own = " or ".join(name for name, entry in DISTRIBUTIONS.items() if entry.own_capacity)
            wanted = f"data.capacity must be given for data.customers={self.customers}, such as data.capacity={usual}"
            known = f"it is known for {', '.join(map(str, CAPACITY))} customers only"
            raise ValueError(f"{wanted}; {known}, and drawn by data.distribution={own}")
        largest = distribution.largest_demand
        if self.vehicle_capacity is not None and self.vehicle_capacity < largest:
            below = f"data.capacity={self.capacity} is below the largest demand {largest}"
            raise ValueError(f"{below} of data.distribution={self.distribution}; give {largest} or more")
        return self

    @property
    def vehicle_capacity(self) -> int | None:
        """The capacity given, else the usual one for the number of customers; None: each instance's own."""
        if self.capacity is not None or DISTRIBUTIONS[self.distribution].own_capacity:
            return self.capacity
        return CAPACITY[self.customers]  # type: ignore[index]

    @property
    def sizes(self) -> range:
        """The possible numbers of customers."""
        low, high = self.customers if isinstance(self.customers, tuple) else (self.customers, self.customers)
        return range(low, high + 1)

    def size_of(self, group: int) -> int:
        """Return the number of customers of a group of instances, such as a batch.

        All sizes come in turn; steps near the golden section of the range spread any few groups over it.
        """
        count = len(self.sizes)
        stride = next(step for step in range(round(0.618 * count), count + 2) if math.gcd(step, count) == 1)
        return self.sizes[group * stride % count]


class Model(Section):
    """A policy network, or a heuristic that needs no training."""

    kind: Annotated[str, Choice((*KINDS, *HEURISTICS))] = Field(
        "gt", description="gat, gt, dgt: networks; savings (Clarke-Wright): a heuristic"
    )
    preset: Annotated[str, Choice(PRESETS)] = Field(
        "small", description="size of the network; model.width, model.heads and model.layers override it"
    )
    width: int | None = Field(None, ge=8, description="channels of a node state; null: as in the preset")
    heads: int | None = Field(None, ge=1, description="attention heads; null: as in the preset")
    layers: int | None = Field(None, ge=1, description="encoder layers; null: as in the preset")
    neighbors: int = Field(0, ge=0, description="neighbours of each node in gat's graph; 0: the complete graph")

    @model_validator(mode="after")
    def _fits(self) -> "Model":
        if self.neighbors and self.kind != "gat":
            raise ValueError(f"model.neighbors={self.neighbors} needs model.kind=gat (given {self.kind})")
        if self.kind in KINDS:
            resolved = self.resolved()
            if resolved.width % resolved.heads:
                raise ValueError(f"model.width={resolved.width} is not a multiple of model.heads={resolved.heads}")
        return self

    def resolved(self, many_sizes: bool = False, **reads: bool) -> RoutingConfig:
        """Return the network's config, for `many_sizes` or one and what it `reads`: the preset with overrides."""
        sizes = {**PRESETS[self.preset], **{k: v for k in ("width", "heads", "layers") if (v := getattr(self, k))}}
        return RoutingConfig(kind=self.kind, neighbors=self.neighbors, spacing=many_sizes, **reads, **sizes)


class CvrpTraining(Training):
    """Imitation, then REINFORCE with one of two baselines."""

    baseline: Literal["multistart", "rollout"] = Field(
        "multistart",
        description="multistart: mean cost over the starts of an instance (Kwon et al. 2020); "
        "rollout: greedy tour of a frozen copy (Kool et al. 2019)",
    )
    starts: int | None = Field(
        None, ge=2, description="tours per instance with multistart; null: one per customer, of the smallest instance"
    )
    best_of: int | None = Field(
        None,
        ge=1,
        description="with baseline multistart, optimise the expected best of this many tours (Walder and Karkhanis "
        "2025); 1: the mean; null: 4, or the number of starts if smaller",
    )
    imitation_steps: int = Field(0, ge=0, description="updates that first imitate the tours of data.labels instances")
    challenge_instances: int = Field(2000, ge=100, description="instances that test the model against rollout")


class EvaluationSettings(SearchSettings, defaults={"augment": True}):
    """The instances to solve, how to solve them, and the solvers to compare with."""

    instances: str = Field(
        "test",
        description="test (the test set), or a .vrp, .txt (Solomon's) or .npz file, a table of customers (.csv, .xlsx, "
        ".geojson), or a folder of such files",
    )
    capacity: float | None = Field(None, gt=0, description="of a vehicle, for tables; null: as their column says")
    speed: float | None = Field(None, gt=0, description="km/h, for tables with opening hours; null: 60")
    service_times: float | None = Field(None, ge=0, description="at customers of tables; null: as their column says")
    rounding: Annotated[str, Choice(tuple(ROUNDINGS))] | None = Field(
        None,
        description="rounding of each distance in files: round, exact, trunc (cut) or dimacs (cut to one decimal); "
        "null: exact for CMT, Golden, tai, .npz files and matrices, dimacs with time windows, else round",
    )
    reference: tuple[Annotated[str, Choice(SOLVERS)], ...] = Field(
        tuple(SOLVERS), description="solvers beside the model and our own searches: hgs, pyvrp (iterated local search)"
    )
    reference_seconds: tuple[Annotated[float, Field(ge=0)], ...] | None = Field(
        (0.001, 0.01, 0.1),
        description="CPU seconds per instance for each of these solvers, a row each; 0: none; null: as long as the "
        "model's search",
    )
    reference_instances: int = Field(100, ge=1, description="number of first instances for these solvers and gaps")

    @field_validator("reference", "reference_seconds", mode="before")
    @classmethod
    def _listed(cls, given: object) -> object:
        """Accept a single number as a list; drop zeros, and solvers of older runs that are no more."""
        given = [given] if isinstance(given, int | float) else given
        return [each for each in given if each not in (0, *OUTLIVED)] if isinstance(given, list | tuple) else given


class Config(BaseConfig):
    """The workload's whole config."""

    data: Data = Data()
    model: Model = Model()
    training: CvrpTraining = CvrpTraining(steps=2000)
    evaluation: EvaluationSettings = EvaluationSettings()

    @property
    def trains(self) -> bool:
        """Whether model.kind is a network: heuristics have nothing to learn."""
        return self.model.kind not in HEURISTICS

    @model_validator(mode="after")
    def _labels_are_read(self, info: ValidationInfo) -> "Config":
        """Leave out instances that no update would imitate, as all of them are solved before the first."""
        imitating = min(self.training.imitation_steps, self.training.steps or math.inf) if self.trains else 0
        labels = min(self.data.labels, int(imitating) * self.training.batch_size)
        if (found := info.context or {}).get("run") and "data.labels" not in found["typed"]:
            begun = found["run"].get("data", {}).get("labels")
            if begun == self.data.labels or begun in range(0, labels + 1, self.training.batch_size):
                labels = begun  # a run's data stay, though more updates would read more
        object.__setattr__(self, "data", self.data.model_copy(update={"labels": labels}))  # the config is frozen
        return self

    @model_validator(mode="after")
    def _roads_are_read(self) -> "Config":
        if self.model.kind == "gat" and PROBLEMS[self.data.problem].reads["one_way"]:
            raise ValueError(f"data.problem={self.data.problem} needs model.kind=gt or dgt (given gat)")
        return self

    @model_validator(mode="after")
    def _starts_fit(self) -> "Config":
        for name in ("starts", "best_of"):
            if (given := getattr(self.training, name)) is not None and self.training.baseline == "rollout":
                raise ValueError(f"training.{name}={given} has no meaning with training.baseline=rollout; leave it out")
        if (starts := self.training.starts) is not None and starts > self.data.sizes[0]:
            raise ValueError(f"training.starts={starts} is more than data.customers={self.data.customers}")
        best_of, tours = self.training.best_of, starts or self.data.sizes[0]
        if best_of is not None and best_of > tours:
            raise ValueError(f"training.best_of={best_of} is more than the {tours} tours of an instance")
        return self
