"""What a program that follows a stream asks of a workload: series of moments, each to be answered once."""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

from pipelines.engine.config import BaseConfig


class Moment(NamedTuple):
    """What is to be answered once."""

    time: int  # ms since 1970; a later moment of a series has a greater one
    input: Mapping[str, object]  # as the models take it
    outcome: tuple[int, str] | None  # an earlier moment's time, and its class, which is known by now


class Feed(Protocol):
    """Where moments come from."""

    config: BaseConfig  # by which a training learns from what was saved
    series: Sequence[str]  # names
    step: int  # ms from one moment to the next
    every: float  # seconds between looks
    settings: Mapping[str, object]  # with which the models answer

    def fit(self, models: Mapping[str, object]) -> None:
        """Let inputs suit these models, too; called before `new`."""

    def new(self, series: str, after: int | None, now: int) -> Iterator[Moment]:
        """Yield the moments after a time that are complete at `now` (ms since 1970); None: the newest one.

        Raises an error, a UserError if it can, where the series cannot be read at present.
        """

    def strangeness(self, model: object, series: str, after: int, until: int) -> dict[int, float]:
        """Return how far inputs in after < time <= until are from a model's training data: 1 for an average one."""

    def save(self) -> None:
        """Write what was read to disk, for a training by `config`."""
