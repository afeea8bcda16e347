"""Runs on disk as a table: the state, progress and size of each."""

import math
import os
import textwrap
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import yaml

from common.config import leaves
from common.config.arguments import nearest
from common.disk.lock import is_held
from common.errors import UserError
from common.foreign_text import printable
from pipelines import workloads
from pipelines.engine.workload import Metric
from pipelines.run.folder import Run

ROOT = Path("runs")
COLUMNS = ("run", "state", "step", "best", "when", "size")


@dataclass(frozen=True)
class Found:
    """One run, its members included."""

    run: Run
    members: tuple[Run, ...]
    config: dict[str, object]  # {dotted key: value}
    metric: Metric | None  # None where the workload is not found
    records: list[dict[str, float]]
    bytes: int

    @property
    def name(self) -> str:
        """Its name with its workload's."""
        return f"{self.run.workload}/{self.run.name}"

    @property
    def step(self) -> int | None:
        """The last step that was recorded; None before the first."""
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
        if self.members:
            done = sum((member.outcome() or {}).get("state") == "done" for member in self.members)
            return f"{done} of {len(self.members)}"
        if outcome := self.run.outcome():
            return str(outcome["state"])
        if self.step is None:
            return "no model" if self.run.evaluations.is_dir() else "begun"
        steps = self.config.get("training.steps")
        return "done" if isinstance(steps, int) and self.step >= steps else "stopped"

    @property
    def when(self) -> float:
        """Time of the newest file of its own."""
        files = [path for path in self.run.folder.iterdir() if path.is_file()]
        return max((path.stat().st_mtime for path in files), default=self.run.folder.stat().st_mtime)


def find(names: Sequence[str] = ()) -> list[Found]:
    """Return the runs of these names, WORKLOAD/NAME or their folders, or all; UserError with the nearest for others."""
    known = []
    for path in sorted(ROOT.glob("*/*/")):
        with suppress(UserError):  # a folder of another's
            known.append(Run(path.parent.name, path.name))
    if not names:
        return [_found(run) for run in known]
    by_name = {f"{run.workload}/{run.name}": run for own in known for run in (own, *_members(own))}
    chosen = []
    for name in (name.strip("/").removeprefix(f"{ROOT}/").replace("/members/", "/") for name in names):
        if name not in by_name:
            near = nearest(name, by_name, 3)
            hint = f"did you mean {' or '.join(near)}?" if near else f"known: {', '.join([*by_name][:6]) or 'none'}"
            raise UserError(f"there is no run {name}; {hint}")
        chosen.append(_found(by_name[name]))
    return chosen


def _members(run: Run) -> tuple[Run, ...]:
    return tuple(run.member(path.name) for path in sorted((run.folder / "members").glob("*/")))


def _found(run: Run) -> Found:
    config = yaml.safe_load(run.config_file.read_text()) if run.started() else {}
    metric = None  # where the workload's package is gone, or is a user's and cannot be imported
    with suppress(Exception):  # whatever that code raises: the other runs are listed all the same
        metric = workloads.find(run.workload).metric
    return Found(run, _members(run), dict(leaves(config)), metric, run.metrics(), size(run.folder))


def size(path: Path) -> int:
    """Return the bytes of a file, or of all files below a folder."""
    if not path.is_dir():
        return path.lstat().st_size
    return sum(os.lstat(Path(folder) / name).st_size for folder, _, names in os.walk(path) for name in names)


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
