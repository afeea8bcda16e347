"""The loop that follows a feed: look, answer new moments, log the answers.

The log is authoritative and the state caches it: whenever the process dies, the next start adds the lines that the
state lacks, and no moment is answered twice.
"""

import itertools
import json
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from common.config import Section, checked
from common.disk.files import explained, read_json_lines, sync, write_json
from common.errors import UserError
from common.plain import Plain
from pipelines.answers.trained import Trained
from pipelines.engine.workload import Feed, Moment
from pipelines.following.drift import Answered, Drift, advanced, begun

AT_ONCE = 16  # moments of a series in a look
LONGEST_WAIT = 256  # most looks for which a failing series is skipped
REFERENCE = 20_000  # moments before the first answer with which later ones are compared


class State(Section):
    """The state on disk, for the next start."""

    models: tuple[str, ...]  # runs, the one that answers first, then those to fall back to
    logged: int = 0  # bytes of the log included here
    answered: dict[str, int]  # series -> its newest moment
    drift: dict[str, Drift]
    refit: str | None = None  # run of the training under way
    tried: int = 0  # when the last training began, ms since 1970


def say(text: str) -> None:
    """Print a line on stderr, with the time."""
    print(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {text}", file=sys.stderr, flush=True)


def mended(path: Path) -> Path:
    """Create a log if it is missing, cut off a line torn by a crash, and return the path."""
    with explained(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab+") as file:
            file.seek(0)
            file.truncate(sum(len(line) for line in file if line.endswith(b"\n")))
        sync(path.parent)
    return path


def add(path: Path, entries: Sequence[Mapping[str, Plain]]) -> None:
    """Append a line for each entry to a log; they are on disk when this returns."""
    with explained(path), path.open("ab") as file:
        file.write("".join(json.dumps(each, ensure_ascii=False, allow_nan=False) + "\n" for each in entries).encode())
        file.flush()
        os.fsync(file.fileno())


class Follower:
    """Answers the moments of a feed by the models of a run, or those trained after it."""

    def __init__(self, name: str, folder: Path, feed: Feed, load: Callable[[str], Trained]):
        self.feed, self.load = feed, load
        self.clock: Callable[[], int] = lambda: time.time_ns() // 1_000_000  # ms since 1970
        self.log, self.state_file = mended(folder / "answers.jsonl"), folder / "state.json"
        self.failing: dict[str, tuple[int, float]] = {}  # series -> failed looks, and when to look again
        self.state = self._recovered(name)
        self.model = self._newest_loadable()

    def look(self) -> int:
        """Answer new moments, the oldest first; return their number."""
        now, found = self.clock(), list[tuple[str, Moment]]()
        self.feed.fit(self.model.models)  # a comparison may have fitted another model
        for series in self.feed.series:
            looks, again = self.failing.get(series, (0, 0.0))
            if time.monotonic() < again:
                continue
            try:
                new = [*itertools.islice(self.feed.new(series, self.state.answered.get(series), now), AT_ONCE + 1)]
            except Exception as error:  # whatever a file or an exchange does: answer the others
                self.failing[series] = looks + 1, time.monotonic() + self.feed.every * min(2**looks, LONGEST_WAIT)
                if not looks:
                    say(f"{series}: retrying, less and less often: {error or type(error).__name__}")
                continue
            if self.failing.pop(series, None):
                say(f"{series}: read again after {looks} failed looks")
            found += [(series, moment) for moment in new[:AT_ONCE]]
            if new and len(new) <= AT_ONCE and (late := now - new[-1].time - self.feed.step) >= self.feed.step:
                newest = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(new[-1].time / 1000))
                say(f"{series}: {newest} is the newest candle, answered {late / 3.6e6:,.1f} hours after its end")
        if found:
            self._answer(sorted(found, key=lambda each: each[1].time))
        return len(found)

    def save(self, **changes: object) -> None:
        """Write the state, with changes."""
        self.state = self.state.model_copy(update={"logged": self.log.stat().st_size, **changes})
        write_json(self.state_file, self.state.model_dump(mode="json"))

    def _recovered(self, name: str) -> State:
        """Return the state on disk plus later lines of the log, or the state from the log alone."""
        self.state, newest = State(models=(), answered={}, drift={}), name
        try:
            self.state = checked(State, json.loads(self.state_file.read_bytes()), "state")
        except FileNotFoundError:
            pass
        except (OSError, ValueError, RecursionError) as error:
            say(f"{self.state_file} is damaged, continuing from the log with new drift tests: {error}")
        start = self.state.logged if self.state.logged <= self.log.stat().st_size else 0
        for entry in read_json_lines(self.log, start):
            with suppress(ValueError):  # an edited line
                self._take_in(entry)
                newest = str(entry.get("model", newest))
        return self.state.model_copy(update={"models": self.state.models or tuple(dict.fromkeys([newest, name]))})

    def _newest_loadable(self) -> Trained:
        while True:
            name, *others = self.state.models
            try:
                return self.load(name)
            except (UserError, OSError) as error:
                if not others:
                    raise
                say(f"{name} cannot be loaded, {others[0]} answers: {error}")
                self.save(models=tuple(others), drift={})

    def _answer(self, found: Sequence[tuple[str, Moment]]) -> None:
        asked = [self.model.read(moment.input) for _, moment in found]
        for (series, moment), given in zip(found, asked, strict=True):
            if series not in self.state.drift:
                before = self._strangeness(series, moment.time - REFERENCE * self.feed.step, moment.time - 1, given)
                self.state.drift[series] = begun(list(before.values()))
                self.save()  # before any line of the series is logged
        answers = self.model.together(asked, self.feed.settings)
        entries = []
        for (series, moment), given, answer in zip(found, asked, answers, strict=True):
            entry: dict[str, Plain] = {"source": series, "time": moment.time, **answer}
            entry |= {"model": self.state.models[0], "answered": self.clock(), "outcome": moment.outcome}
            entry["strangeness"] = self._strangeness(series, moment.time - 1, moment.time, given).get(moment.time)
            if alarms := self._take_in(entry):
                entry["alarms"] = alarms
                say(f"alarm: {series} at {moment.time} ms: {', '.join(alarms)} changed")
            entries.append(entry)
        add(self.log, entries)
        self.save()

    def _strangeness(self, series: str, after: int, until: int, asked: object) -> dict[int, float]:
        """Return how strange the moments in after < time <= until are; {} without a model or features of the series."""
        with suppress(ValueError):
            return self.feed.strangeness(self.model.models[self.model.member_for(asked)], series, after, until)
        return {}

    def _take_in(self, entry: Mapping[str, object]) -> list[str]:
        """Add an answer to the state, unless it is there; return the drift tests that alarm."""
        known = checked(Answered, {key: entry[key] for key in Answered.model_fields if key in entry}, "answer")
        if known.time <= self.state.answered.get(known.source, -1):
            return []
        self.state.answered[known.source] = known.time
        if known.source not in self.state.drift:
            return []
        self.state.drift[known.source], alarms = advanced(self.state.drift[known.source], known, self.feed.step)
        return alarms
