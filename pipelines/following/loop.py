"""The loop that follows a feed: look, answer what is new, write it down, and take over models that pass.

The log is the truth and the state a shortcut to it: whenever the process dies, the lines beyond those in the state are
taken into it at the next start, and no moment is answered twice.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from common.config import Section, checked
from common.disk.files import write_json
from common.errors import UserError
from common.plain import Plain
from pipelines.engine.feed import Feed, Moment
from pipelines.following.drift import Answered, Drift, advanced, begun
from pipelines.following.log import Log

if TYPE_CHECKING:
    from pipelines.answers.trained import Trained

AT_ONCE = 64  # answers computed together
LONGEST_WAIT = 256  # looks that a failing series is left alone at most
REFERENCE = 20_000  # moments before the first answer with which later ones are compared
KEPT = 3  # models: the one that answers, and those to fall back to


class Refit(Section):
    """A training under way."""

    name: str  # of its run
    attempts: int = 0  # that were killed


class State(Section):
    """What is known of the past, for the next start."""

    models: tuple[str, ...]  # runs, the one that answers first, then those to fall back to
    logged: int = 0  # bytes of the log that are in here
    answered: dict[str, int]  # series -> its newest moment
    drift: dict[str, Drift]
    refit: Refit | None = None
    tried: int = 0  # when the last training began, ms since 1970


def say(text: str) -> None:
    """Print a line on stderr, with the time."""
    print(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {text}", file=sys.stderr, flush=True)


def clock() -> int:
    """Return the time in ms since 1970."""
    return time.time_ns() // 1_000_000


class Follower:
    """Answers the moments of a feed by the models of a run, or those trained after it."""

    def __init__(
        self, name: str, folder: Path, feed: Feed, load: Callable[[str], Trained], clock: Callable[[], int] = clock
    ):
        self.feed, self.load, self.clock = feed, load, clock
        self.log, self.state_file = Log(folder / "answers.jsonl"), folder / "state.json"
        self.failing: dict[str, tuple[int, float]] = {}  # series -> looks in vain, and when to look again
        self.state = self._recovered(name)
        self.model = self._sound()

    def look(self) -> int:
        """Answer what is new; return how many answers that were."""
        now, found = self.clock(), list[tuple[str, Moment]]()
        for series in self.feed.series:
            looks, again = self.failing.get(series, (0, 0.0))
            if time.monotonic() < again:
                continue
            try:
                found += [(series, each) for each in self.feed.new(series, self.state.answered.get(series), now)]
            except Exception as error:  # whatever a file or an exchange does, the others are answered
                wait = self.feed.every * min(2**looks, LONGEST_WAIT)
                self.failing[series] = looks + 1, time.monotonic() + wait
                if not looks:
                    say(f"{series}: trying again, ever more seldom: {error or type(error).__name__}")
                continue
            if self.failing.pop(series, None):
                say(f"{series}: read again after {looks} looks in vain")
        found.sort(key=lambda each: each[1].time)
        for start in range(0, len(found), AT_ONCE):
            self._answer(found[start : start + AT_ONCE])
        if found:
            self.save()
        return len(found)

    def save(self, **changes: object) -> None:
        """Write the state, with changes."""
        self.state = self.state.model_copy(update={"logged": self.log.size, **changes})
        write_json(self.state_file, self.state.model_dump(mode="json"))

    def take_over(self, name: str, model: Trained) -> list[str]:
        """Let the models of the run `name` answer from now on; return the runs that are no longer needed."""
        before = self.state.models
        self.model = model
        self.save(models=(name, *before)[:KEPT], drift={}, refit=None)
        return list(before[KEPT - 1 :])

    def _recovered(self, name: str) -> State:
        """Return the state on disk with the lines of the log beyond it, or that of the log alone."""
        try:
            state = checked(State, json.loads(self.state_file.read_bytes()), "state")
        except (OSError, ValueError, RecursionError) as error:
            if not isinstance(error, FileNotFoundError):
                say(f"{self.state_file} is damaged, going on by the log, with new tests for drift: {error}")
            state = State(models=(name,), answered={}, drift={})
        self.state = state
        for entry in self.log.read(state.logged if state.logged <= self.log.size else 0):
            with suppress(ValueError):  # of a line that was changed
                self._take_in(entry)
                if not state.logged:
                    name = str(entry.get("model", name))
        return (
            state if state.logged else state.model_copy(update={"models": tuple(dict.fromkeys([name, *state.models]))})
        )

    def _sound(self) -> Trained:
        """Return the newest model that can be loaded. Raises UserError if none can."""
        while True:
            name = self.state.models[0]
            try:
                return self.load(name)
            except (UserError, OSError) as error:
                if len(self.state.models) == 1:
                    raise
                say(f"{name} cannot be loaded, {self.state.models[1]} answers: {error}")
                self.save(models=self.state.models[1:], drift={})

    def _answer(self, found: list[tuple[str, Moment]]) -> None:
        asked = [self.model.read(moment.input) for _, moment in found]
        answers = self.model.together(asked, self.feed.settings)
        entries = []
        for (series, moment), given, answer in zip(found, asked, answers, strict=True):
            entry: dict[str, Plain] = {"source": series, "time": moment.time, **answer, "model": self.state.models[0]}
            entry["answered"] = self.clock()
            if moment.outcome:
                entry["outcome"] = list(moment.outcome)
            with suppress(UserError):  # no model takes this series, as its answer says
                model = self.model.models[self.model.member_for(given)]
                if series not in self.state.drift:
                    first = moment.time - REFERENCE * self.feed.step
                    before = self.feed.strangeness(model, series, first, moment.time - 1)
                    self.state.drift[series] = begun(list(before.values()))
                strange = self.feed.strangeness(model, series, moment.time - 1, moment.time)
                entry["strangeness"] = strange.get(moment.time)
            if alarms := self._take_in(entry):
                entry["alarms"] = alarms
                say(f"alarm: {series} at {moment.time} ms: {', '.join(alarms)} changed")
            entries.append(entry)
        self.log.add(entries)

    def _take_in(self, entry: Mapping[str, object]) -> list[str]:
        """Let the state know an answer, unless it does; return the tests for drift that alarm."""
        known = checked(Answered, {key: entry[key] for key in Answered.model_fields if key in entry}, "answer")
        if known.time <= self.state.answered.get(known.source, -1):
            return []
        self.state.answered[known.source] = known.time
        if known.source not in self.state.drift:
            return []
        self.state.drift[known.source], alarms = advanced(self.state.drift[known.source], known, self.feed.step)
        return alarms
