"""Runs on disk as a table: the state, progress and size of each."""

import math
import os
import re
import textwrap
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from common.config import leaves, plain_yaml
from common.config.mistakes import nearest
from common.disk.lock import is_held
from common.errors import UserError
from common.foreign_text import printable
from pipelines import workloads
from pipelines.engine.workload import Metric
from pipelines.run.folder import NAME, Run

ROOT = Path("runs")
COLUMNS = ("run", "state", "step", "best", "when", "size")


@dataclass(frozen=True)
class Found:
    """A run, its members included."""

    run: Run
    config: dict[str, object]  # {dotted key: value}
    metric: Metric | None  # None where the workload is not found
    records: list[dict[str, float]]
    bytes: int

    @property
    def name(self) -> str:
        """WORKLOAD/NAME."""
        return f"{self.run.workload}/{self.run.name}"

    @property
    def step(self) -> int | None:
        """The last recorded step; None before the first."""
        return max((int(entry["step"]) for entry in self.records), default=None)

    @property
    def best(self) -> float | None:
        """The best value of the validation metric."""
        if not self.metric:
            return None
        values = [entry.get(self.metric.name, math.nan) for entry in self.records]
        return (max if self.metric.maximise else min)((each for each in values if not math.isnan(each)), default=None)

    @property
    def state(self) -> str:
        """One of: training, done, stopped, failed, begun, "no model" (a method without weights), and `2 of 8 done`."""
        if is_held(self.run.lock_file):
            return "training"
        if members := self.run.members():
            return f"{sum(member.outcome().get('state') == 'done' for member in members)} of {len(members)}"
        if outcome := self.run.outcome():
            return str(outcome["state"])
        if self.step is not None:
            return "stopped"
        return "done" if self.run.best.is_dir() else "no model" if self.run.evaluations.is_dir() else "begun"

    @property
    def when(self) -> float:
        """When its newest own file was modified, in seconds since 1970."""
        files = [status for path in self.run.folder.iterdir() if path.is_file() and (status := _status(path))]
        return max((status.st_mtime for status in files), default=self.run.folder.stat().st_mtime)


def find(names: Sequence[str] = ()) -> list[Found]:
    """Return the runs of these names, WORKLOAD/NAME or their folders, or all; UserError with the nearest for others."""
    # Other folders may be there, such as an editor's.
    known = [Run(path.parent.name, path.name) for path in sorted(ROOT.glob("*/*/")) if re.fullmatch(NAME, path.name)]
    if not names:
        return [_found(run) for run in known]
    by_name = {f"{run.workload}/{run.name}": run for own in known for run in (own, *own.members())}
    chosen = []
    for name in (name.strip("/").removeprefix(f"{ROOT}/").replace("/members/", "/") for name in names):
        if name not in by_name:
            near = nearest(name, by_name, 3)
            hint = f"did you mean {' or '.join(near)}?" if near else f"known: {', '.join([*by_name][:6]) or 'none'}"
            raise UserError(f"there is no run {name}; {hint}")
        chosen.append(_found(by_name[name]))
    return chosen


def _found(run: Run) -> Found:
    config, metric = dict[str, object](), None  # None if the workload's package is gone or fails
    with suppress(OSError, ValueError, AttributeError):  # it is missing, or damaged
        config = dict(leaves(plain_yaml.parse(run.config_file.read_bytes())))
    with suppress(Exception):  # whatever that code raises: the other runs are listed all the same
        metric = workloads.find(run.workload).metric
    return Found(run, config, metric, run.metrics(), size(run.folder))


def size(path: Path) -> int:
    """Return the bytes of a file, or of all files below a folder."""
    files = [Path(folder, name) for folder, _, names in os.walk(path) for name in names] if path.is_dir() else [path]
    return sum(status.st_size for status in map(_status, files) if status)


def _status(path: Path) -> os.stat_result | None:
    """Return a file's status; None if it is gone, as training removes and replaces files meanwhile."""
    with suppress(FileNotFoundError):
        return path.lstat()
    return None


def human(num: float) -> str:
    """Return bytes with a unit, in six columns."""
    units = ("B", "kB", "MB", "GB", "TB")
    power = min(int(math.log10(max(num, 1)) // 3), len(units) - 1)
    return f"{num / 1000**power:.0f} {units[power]}"


def table(runs: Sequence[Found], width: int = 10_000) -> str:
    """Return the runs as a table, with the best value of each workload's metric; verdicts wrap at `width`."""
    lines = []
    for workload in dict.fromkeys(found.run.workload for found in runs):
        own = [found for found in runs if found.run.workload == workload]
        metric = own[0].metric
        order = f": best {metric.name}, {'higher' if metric.maximise else 'lower'} is better" if metric else ""
        head, *starts = aligned([COLUMNS, *map(_row, own)]).split("\n")
        lines += ["", workload + order, f"  {head}  verdict"]
        beside, after = f"\n{' ' * (len(head) + 4)}", max(width - len(head) - 4, 20)
        for start, found in zip(starts, own, strict=True):
            lines.append(f"  {start}  {beside.join(textwrap.wrap(found.run.verdict(), after))}".rstrip())
    return "\n".join(lines).lstrip("\n")


def aligned(rows: Sequence[Sequence[str]]) -> str:
    """Return rows with columns aligned, the first to the left."""
    first, *others = zip(*rows, strict=True)
    columns = [[cell.ljust(max(map(len, first))) for cell in first]]
    columns += [[cell.rjust(max(map(len, column))) for cell in column] for column in others]
    return "\n".join(printable("  ".join(line)).rstrip() for line in zip(*columns, strict=True))


def _row(found: Found) -> tuple[str, ...]:
    when = time.strftime("%m-%d %H:%M", time.localtime(found.when))
    best = "" if found.best is None else f"{found.best:.5g}"
    return (found.run.name, found.state, "" if found.step is None else str(found.step), best, when, human(found.bytes))
