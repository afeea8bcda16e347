"""The contract between the stages and a workload: a dataclass of callables. Configs are checked before torch loads."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from common.errors import UserError
from pipelines.engine.config import BaseConfig

if TYPE_CHECKING:
    from torch import Tensor, nn

    from models.io import Model

Sections = Sequence[tuple[str, str]]  # (heading, HTML) of report.html, the verdict first


class Source(Protocol):
    """Where batches come from. A batch is a pure function of item numbers, so order and resumption are the engine's."""

    @property
    def size(self) -> int | None:
        """Number of items; None: endless, every item number is valid and used once."""

    @property
    def workers(self) -> int:
        """Processes that load ahead; 0 where batches are made on the device."""

    def batch(self, items: Tensor) -> object:
        """Return the batch of `items` (b,) int64, on the device unless there are workers."""


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
    fits_again: bool = False  # on training and validation together, once the best model is chosen; model/best is that

    def loss(self, model: nn.Module, batch: Any) -> Loss:
        """Return the loss; all differentiable work goes through `model(...)`, which synchronises gradients."""
        ...

    def score(self, model: nn.Module, batch: Any) -> Mapping[str, Tensor]:
        """Return a number per example, {name: (b,)}; means are logged as val/<name>, weighted by `count` if there."""
        ...

    def refit(self, map_items: MapItems) -> Mapping[str, float]:
        """Fit what is not learnt by gradients, kept in buffers, to the present weights; return figures to log.

        Called on all ranks before each validation and its save, in evaluation mode with averaged weights, if any. It
        must be deterministic and equal on all ranks; if it takes minutes it calls `stop_if_asked`, which saves.
        """
        return {}

    def after_validation(self, map_items: MapItems) -> Mapping[str, float]:
        """Return further figures to log; called on all ranks after each validation."""
        return {}

    def state_dict(self) -> Mapping[str, object]:
        """Return tensors and plain values beyond the model that resuming needs."""
        return {}

    def load_state_dict(self, state: Mapping[str, object]) -> None:
        """Restore what `state_dict` returned."""
        return


@dataclass(frozen=True)
class Evaluation:
    """A workload's results for a model on one split."""

    split: str
    summary: Mapping[str, Any]  # numbers with their n, interval and seconds; written to evaluations/<split>.json
    table: Sequence[Mapping[str, Any]] = ()  # rows beside baselines, shown and kept in the summary
    examples: Mapping[str, Sequence[object]] = field(default_factory=dict)  # columns of the per-example file
    files: Mapping[str, str] = field(default_factory=dict)  # path below evaluations/ -> text
    beside: Mapping[str, str] = field(default_factory=dict)  # file in the folder of the model -> text
    member: str | None = None  # of a run of many models, the one in whose folder this is kept; None: the run's own


@dataclass(frozen=True)
class Metric:
    """The validation metric that picks model/best and counts for patience."""

    name: str = "val/loss"
    maximise: bool = False

    def chosen(self, word: str | None) -> Metric:
        """Return the metric of training.metric, [max:|min:]NAME; None: this one. UserError for other directions."""
        direction, _, name = (word or self.name).rpartition(":")
        if direction not in ("", "max", "min"):
            raise UserError(f"training.metric: {word}: a direction is max or min, as in max:{name}")
        return Metric(name, direction == "max" or (not direction and name == self.name and self.maximise))

    def better(self, value: float, best: float | None) -> bool:
        """Return whether `value` beats `best`; NaN beats nothing, and any number beats NaN."""
        beats = best is None or math.isnan(best) or (value > best if self.maximise else value < best)
        return beats and not math.isnan(value)


@dataclass(frozen=True)
class Workload:
    """One workload; `folder` holds the prepared data, `models` map the run's name, or its members', to models."""

    config: type[BaseConfig]
    # (config, folder) -> facts for the manifest; (config, folder, earlier) if the data section `renews`
    prepare: Callable[..., Mapping[str, object]]
    # (config, folder, device); to fit again (config, folder, device, task), the first one with the best model
    task: Callable[..., Task]
    evaluate: Callable[..., Sequence[Evaluation]]  # (config, models, folder, device, map_items)
    # (config, models, evaluations, run) -> (heading, HTML) sections; the first, the verdict, stands above everything.
    report: Callable[..., Sequence[tuple[str, str]]]
    # (config, folder) -> {name: config} of a run of many models, each an ordinary run below it; {}: a single model.
    expand: Callable[..., Mapping[str, BaseConfig]] = lambda config, folder: {}
    metric: Metric = Metric()


class Moment(NamedTuple):
    """One input of a stream that is followed."""

    time: int  # ms since 1970; increasing within a series
    input: Mapping[str, object]  # as the models take it
    outcome: tuple[int, str] | None  # an earlier moment's time, and its class, which is known by now


class Feed(Protocol):
    """A source of moments."""

    config: BaseConfig  # for a training on what `save` wrote
    series: Sequence[str]  # names
    step: int  # ms from one moment to the next
    every: float  # seconds between looks
    settings: Mapping[str, object]  # with which the models answer

    def fit(self, models: Mapping[str, object]) -> None:
        """Let inputs suit these models, and be long enough for earlier ones; called before `new`."""

    def new(self, series: str, after: int | None, now: int) -> Iterator[Moment]:
        """Yield the moments after a time that are complete at `now` (ms since 1970); None: the newest one.

        Raises an error, preferably UserError, if the series cannot be read at present.
        """

    def strangeness(self, model: object, series: str, after: int, until: int) -> dict[int, float]:
        """Return how far inputs in after < time <= until are from a model's training data: 1 for an average one."""

    def save(self) -> None:
        """Write what was read to disk, for a training by `config`."""
