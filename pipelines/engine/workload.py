"""The contract between the stages and a workload.

A workload is a frozen dataclass of callables, a task one object with a model and a few methods. The loop knows neither
what a batch is nor what is learned. torch is not imported here: a workload's config is read, and refused, before it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from common.errors import UserError
from pipelines.engine.config import BaseConfig

if TYPE_CHECKING:
    from torch import Tensor, nn

    from models.io import Model


class Source(Protocol):
    """Where batches come from. A batch is a pure function of item numbers, so order and resumption are the engine's."""

    @property
    def size(self) -> int | None:
        """Number of items; None: endless, every item number is valid and used once."""

    @property
    def workers(self) -> int:
        """Processes that load ahead; 0 where batches are made on the device."""

    def batch(self, items: Tensor) -> object:
        """The batch of `items` (b,) int64, on the device unless there are workers."""


@dataclass(frozen=True)
class Loss:
    """Sums over the examples (or tokens) of one micro-batch; the engine divides once, by the count of all ranks."""

    value: Tensor  # () differentiable sum
    count: Tensor | int  # how many examples or tokens the sums cover
    metrics: Mapping[str, Tensor] = field(default_factory=dict)  # () sums, logged as train/<name>


class MapItems(Protocol):
    """Maps a function over all items of a source, spread over the processes; every process gets all results."""

    def __call__(
        self, source: Source, function: Callable[[Any], Mapping[str, Tensor]], batch_size: int | None = None
    ) -> dict[str, Tensor]:
        """{name: (N, ...)} on the CPU; `function` maps a batch of at most `batch_size` items to {name: (b, ...)}."""


class Task(Protocol):
    """A model, its data and what is to be minimised. Tasks subclass it and write the methods that they need."""

    model: Model
    train: Source
    validation: Source  # finite
    notes: Sequence[str] = ()  # what a user should read before training starts, a line each

    def loss(self, model: nn.Module, batch: Any) -> Loss:
        """All differentiable work goes through `model(...)`: that call synchronises gradients between processes."""
        ...

    def score(self, model: nn.Module, batch: Any) -> Mapping[str, Tensor]:
        """One number per example, {name: (b,)}; means are logged as val/<name>.

        Where examples weigh differently, `count` (b,) says over how many tokens, say, the other numbers are sums.
        """
        ...

    def refit(self, map_items: MapItems) -> Mapping[str, float]:
        """Fit what of the model is not learnt by gradients, kept in buffers, to the weights as they are.

        Called on all ranks before each validation and the save at that step, with the model in its evaluation mode and
        averaged weights if there are any. What it sets must be the same on all ranks and whenever it is called with
        these weights; what it returns is logged. If it takes minutes it calls `stop_if_asked`, which saves training.
        """
        return {}

    def after_validation(self, map_items: MapItems) -> Mapping[str, float]:
        """Called on all ranks after each validation; what it returns is logged."""
        return {}

    def state_dict(self) -> Mapping[str, object]:
        """Tensors and plain values beyond the model that resuming needs."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take back what `state_dict` returned."""
        return


@dataclass(frozen=True)
class Evaluation:
    """What a workload found out about a model on one split."""

    split: str
    summary: Mapping[str, Any]  # numbers with their n, interval and seconds; written to evaluations/<split>.json
    table: Sequence[Mapping[str, Any]] = ()  # rows beside baselines, shown and kept in the summary
    examples: Mapping[str, Sequence[Any]] = field(default_factory=dict)  # columns of the per-example file
    files: Mapping[str, str] = field(default_factory=dict)  # path below evaluations/ -> text
    member: str | None = None  # of a run of many models, the one in whose folder this is kept; None: the run's own


@dataclass(frozen=True)
class Metric:
    """The validation metric that picks model/best and counts for patience."""

    name: str = "val/loss"
    maximise: bool = False

    def chosen(self, word: str | None) -> Metric:
        """Return the metric that training.metric names, [max:|min:]NAME; None: this one, whose name has its direction.

        Raises UserError for another direction.
        """
        direction, _, name = (word or self.name).rpartition(":")
        if direction not in ("", "max", "min"):
            raise UserError(f"training.metric: {word}: a direction is max or min, as in max:{name}")
        maximise = direction == "max" or (not direction and name == self.name and self.maximise)
        return Metric(name, maximise)

    def better(self, value: float, best: float | None) -> bool:
        """Whether `value` beats `best`, the best so far; NaN beats nothing, and any number beats NaN."""
        if math.isnan(value):
            return False
        return best is None or math.isnan(best) or (value > best if self.maximise else value < best)


@dataclass(frozen=True)
class Workload:
    """One workload: what its data, model, loss and report are. `folder` is that of the prepared data.

    `models` maps names to trained models: of a run of one model, the run's name to it; of a run of many, the members'
    names to theirs; empty where the config names a method without weights.
    """

    config: type[BaseConfig]
    # (config, folder) -> facts for the manifest; (config, folder, earlier) if the data section `renews`
    prepare: Callable[..., Mapping[str, object]]
    task: Callable[..., Task]  # (config, folder, device)
    evaluate: Callable[..., Sequence[Evaluation]]  # (config, models, folder, device, map_items)
    # (config, models, evaluations, run) -> (heading, HTML) sections; the first, the verdict, stands above everything.
    report: Callable[..., Sequence[tuple[str, str]]]
    # (config, folder) -> {name: config} of a run of many models, each an ordinary run below it; {}: the run is of one.
    expand: Callable[..., Mapping[str, BaseConfig]] | None = None
    metric: Metric = Metric()
