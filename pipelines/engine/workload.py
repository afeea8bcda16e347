"""The contract between the stages and a workload.

A workload is a frozen dataclass of callables, a task one object with a model and a few methods. The loop knows neither
what a batch is nor what is learned.
"""

import importlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Protocol

from torch import Tensor, nn

from common.errors import UserError
from pipelines.engine.config import BaseConfig

WORKLOADS = ("cvrp", "tinystories", "lmol", "crypto", "bep")


class Source(Protocol):
    """Where batches come from. A batch is a pure function of item numbers, so order and resumption are the engine's."""

    size: int | None  # number of items; None: endless, every item number is valid and used once
    workers: int  # processes that load ahead; 0 where batches are made on the device

    def batch(self, items: Tensor) -> Any:
        """The batch of `items` (b,) int64, on the device unless there are workers."""


@dataclass(frozen=True)
class Loss:
    """Sums over the examples (or tokens) of one micro-batch; the engine divides once, by the count of all ranks."""

    value: Tensor  # () differentiable sum
    count: Tensor | int  # how many examples or tokens the sums cover
    metrics: Mapping[str, Tensor] = field(default_factory=dict)  # () sums, logged as train/<name>


Scores = dict[str, Tensor]


class MapItems(Protocol):
    """Scores every item of a source, spread over the processes; every process gets all of them."""

    def __call__(
        self, source: Source, score: Callable[[Any], Mapping[str, Tensor]], batch_size: int | None = None
    ) -> Scores:
        """{name: (N, ...)} on the CPU; `score` maps a batch of at most `batch_size` items to {name: (b, ...)}."""


class Task(Protocol):
    """A model, its data and what is to be minimised."""

    model: nn.Module
    train: Source
    validation: Source
    notes: Sequence[str]  # what a user should read before training starts, a line each

    def loss(self, model: nn.Module, batch: Any) -> Loss:
        """All differentiable work goes through `model(...)`: that call synchronises gradients between processes."""

    def score(self, model: nn.Module, batch: Any) -> Mapping[str, Tensor]:
        """One number per example, {name: (b,)}; means are logged as val/<name>.

        Where examples weigh differently, `count` (b,) says over how many tokens, say, the other numbers are sums.
        """

    def after_validation(self, map_items: MapItems) -> Mapping[str, float]:
        """Called on all ranks after each validation; what it returns is logged."""

    def state_dict(self) -> dict[str, Any]:
        """Tensors and plain values beyond the model that resuming needs."""

    def load_state_dict(self, state: Mapping[str, Any]) -> None: ...


@dataclass(frozen=True)
class Evaluation:
    """What a workload found out about a model on one split."""

    split: str
    summary: Mapping[str, Any]  # numbers with their n, interval and seconds; written to evaluations/<split>.json
    table: Sequence[Mapping[str, Any]] = ()  # rows beside baselines, shown and kept in the summary
    examples: Mapping[str, Sequence[Any]] = field(default_factory=dict)  # columns of the per-example file
    files: Mapping[str, str] = field(default_factory=dict)  # name -> text, written beside it


@dataclass(frozen=True)
class Workload:
    """One workload: what its data, model, loss and report are."""

    config: type[BaseConfig]
    prepare: Callable[[Any, Path], Mapping[str, Any]]  # (config, folder) -> facts for the manifest
    task: Callable[..., Task]  # (config, data folder, device), and the member's name where there are members
    evaluate: Callable[..., Sequence[Evaluation]]  # (config, model, data folder, device, evaluate)
    report: Callable[..., Sequence[tuple[str, str]]]  # (config, model, run) -> (heading, HTML) sections
    # Names of the models of a run that has many, (config, data folder); `model` above is then {name: model}.
    members: Callable[[Any, Path], Iterable[str]] = lambda config, folder: ()
    settled: tuple[str, ...] = ("model.", "training.", "seed")  # keys that no later stage may change
    inputs: Callable[[Any], Sequence[Path]] = lambda config: ()  # the user's files that `prepare` reads
    layout: int = 1  # to be raised when what `prepare` writes changes, so that older data are not read
    untrained: Callable[[Any], bool] = lambda config: False  # whether the config names a model without weights
    compared: tuple[str, ...] = ()  # key.path=value words under each of which the benchmark counts targets/s
    select: str = "val/loss"  # the metric that picks model/best and counts for patience
    maximise: bool = False


def lazily(path: str) -> Callable[..., Any]:
    """The function or class `package.module:name`, whose module is imported when it is called.

    So the config of a workload is read, and refused, without waiting for the libraries that its stages need.
    """
    module, _, name = path.partition(":")

    def call(*args: Any, **kwargs: Any) -> Any:
        return getattr(importlib.import_module(module), name)(*args, **kwargs)

    return call


def find(name: str) -> Workload:
    """Import the workload called `name`."""
    if name not in WORKLOADS:
        near = get_close_matches(name, WORKLOADS, 1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise UserError(f"unknown workload {name!r}{hint} (known: {', '.join(WORKLOADS)})")
    return importlib.import_module(f"pipelines.workloads.{name}").WORKLOAD
