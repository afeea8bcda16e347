"""Runs of one workload side by side: figures of their evaluations, settings that differ, curves as a picture."""

import contextlib
import io
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from common.config import leaves
from common.disk.files import write_text
from common.errors import UserError
from common.foreign_text import from_csv, printable
from common.statistics import mean_and_half_width
from pipelines.inventory.found import Found
from pipelines.report.markup import shown
from pipelines.report.page import kept

MISSING = "-"


def compared(runs: Sequence[Found], picture: Path) -> str:
    """Return the comparison as text and draw curves into `picture`; UserError for runs that have none."""
    if len(runs) < 2:
        raise UserError("compare takes two runs or more, as in: compare cvrp/default cvrp/dgt-50")
    kinds = sorted({found.run.workload for found in runs})
    if len(kinds) > 1:
        raise UserError(f"runs of {' and '.join(kinds)} have no figure in common; compare those of one workload")
    parts = [*_summaries(runs), *_examples(runs), _settings(runs)]
    if drawn(runs, picture):
        parts.append(f"curves: {picture}")
    return "\n\n".join(parts)


def _summaries(runs: Sequence[Found]) -> Iterator[str]:
    """Yield for each split a table of the figures of its evaluations that differ, a column per run."""
    found = [{each.split: dict(leaves(each.summary)) for each in kept(one.run.evaluations)} for one in runs]
    for split in dict.fromkeys(split for each in found for split in each):
        summaries = [each.get(split, {}) for each in found]
        if sum(map(bool, summaries)) < 2:
            continue
        names = dict.fromkeys(name for each in summaries for name, value in each.items() if type(value) in (int, float))
        differing = [name for name in names if len({shown(each.get(name)) for each in summaries}) > 1]
        rows = [[f"{split}, all examples", *(one.run.name for one in runs)]]
        rows += [[name, *(shown(each.get(name)) for each in summaries)] for name in differing]
        yield _aligned(rows) if differing else f"{split}: all figures are the same"


def _examples(runs: Sequence[Found]) -> Iterator[str]:
    """Yield for each file of examples a table of mean paired differences from the first run."""
    first = runs[0]
    for path in sorted(first.run.evaluations.glob("*.csv")):
        base = _columns(path)
        rows = []
        for found in runs[1:]:
            theirs = _columns(found.run.evaluations / path.name)
            if not theirs or next(iter(theirs.values())) != next(iter(base.values()), None):
                continue  # other examples
            for name in [name for name in list(base)[1:] if name in theirs]:
                own, other = _numbers(base[name]), _numbers(theirs[name])
                if own is None or other is None or (own == other).all():
                    continue
                mean, half = mean_and_half_width(other - own)
                interval = "" if half is None else f"[{mean - half:+.3g}, {mean + half:+.3g}]"
                rows.append([found.run.name, name, f"{mean:+.4g}", interval])
        if rows:
            head = [f"{path.stem}, by example", "figure", f"less {first.run.name}", "95 % interval"]
            yield _aligned([head, *rows])


def _aligned(rows: Sequence[Sequence[str]]) -> str:
    """Return rows with columns aligned, the first to the left."""
    first, *others = zip(*rows, strict=True)
    columns = [[cell.ljust(max(map(len, first))) for cell in first]]
    columns += [[cell.rjust(max(map(len, column))) for cell in column] for column in others]
    return "\n".join(printable("  ".join(line)).rstrip() for line in zip(*columns, strict=True))


def _columns(path: Path) -> dict[str, Sequence[str]]:
    """Return the columns of a file of examples; {} if it is not there, or empty."""
    text = path.read_text(errors="replace") if path.is_file() else ""
    rows = from_csv(text) if text else []
    return {name: [row[name] for row in rows] for name in rows[0]} if rows else {}


def _numbers(texts: Sequence[str]) -> np.ndarray | None:
    """Return a column of numbers; None for any other."""
    with contextlib.suppress(ValueError):
        return np.array(texts, float)
    return None


def _settings(runs: Sequence[Found]) -> str:
    """Return the settings that differ, a line per key."""
    keys = dict.fromkeys(key for found in runs for key in found.config)
    changed = [key for key in keys if len({str(found.config.get(key, MISSING)) for found in runs}) > 1]
    if not changed:
        return "their settings are the same"
    lines = [f"  {key}: {', '.join(str(found.config.get(key, MISSING)) for found in runs)}" for key in changed]
    return "\n".join([f"settings that differ ({', '.join(found.name for found in runs)}):", *map(printable, lines)])


def drawn(runs: Sequence[Found], picture: Path) -> bool:
    """Draw val/<metric> and train/loss over steps; return whether any of the runs has curves."""
    from matplotlib.figure import Figure

    metric = runs[0].metric
    names = ["train/loss", metric.name if metric else "val/loss"]
    names = [name for name in names if any(_curve(found, name) for found in runs)]
    if not names:
        return False
    figure = Figure(figsize=(5 * len(names), 3.5), layout="constrained")
    for axis, name in zip(figure.subplots(1, len(names), squeeze=False)[0], names, strict=True):
        for found in runs:
            if points := _curve(found, name):
                axis.plot(*zip(*points, strict=True), label=found.name, linewidth=1)
        axis.set(xlabel="step (updates of the model)", ylabel=name)
        axis.legend(fontsize=8)
        axis.grid(alpha=0.4)
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg")
    write_text(picture, buffer.getvalue())
    return True


def _curve(found: Found, name: str) -> list[tuple[float, float]]:
    return [(entry["step"], entry[name]) for entry in found.records if name in entry]
