"""Runs of one workload side by side: figures of their evaluations, settings that differ, curves as a picture."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from common.config import leaves
from common.disk.files import explained
from common.errors import UserError, as_user_error
from common.foreign_text import printable
from common.statistics import mean_and_half_width
from pipelines.inventory.found import Found, aligned
from pipelines.report.markup import shown
from pipelines.report.page import kept

MISSING = "-"


def compared(runs: Sequence[Found], picture: Path) -> str:
    """Return the comparison as text and draw curves into `picture`; UserError for runs that have none."""
    if len(runs) < 2:
        raise UserError("compare takes two runs or more, as in: compare cvrp/default cvrp/dgt-50")
    if len(kinds := sorted({found.run.workload for found in runs})) > 1:
        raise UserError(f"runs of {' and '.join(kinds)} have no figure in common; compare those of one workload")
    parts = [*_summaries(runs), *_examples(runs), _differing_settings(runs)]
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
        yield aligned(rows) if differing else f"{split}: all figures are the same"


def _examples(runs: Sequence[Found]) -> Iterator[str]:
    """Yield for each file of examples a table of mean paired differences from the first run."""
    first = runs[0]
    for path in sorted(first.run.evaluations.glob("*.csv")):
        others = ((one.run.name, one.run.evaluations / path.name) for one in runs[1:])
        if rows := [[name, *cells] for name, other in others for cells in _differences(path, other)]:
            yield aligned([[f"{path.stem}, by example", "figure", f"less {first.run.name}", "95 % interval"], *rows])


def _differences(path: Path, other: Path) -> Iterator[list[str]]:
    """Yield the name, the mean and the interval of the differences of columns of numbers, where examples are equal."""
    import pandas as pd

    try:
        base, theirs = (pd.read_csv(each, encoding_errors="replace") for each in (path, other))
    except (FileNotFoundError, pd.errors.EmptyDataError):
        return
    if not base.iloc[:, 0].equals(theirs.iloc[:, 0]):
        return
    for name in base.columns[1:].intersection(theirs.columns):
        if base[name].dtype.kind in "if" and theirs[name].dtype.kind in "if" and not base[name].equals(theirs[name]):
            mean, half = mean_and_half_width((theirs[name] - base[name]).to_numpy(float))
            yield [name, f"{mean:+.4g}", "" if half is None else f"[{mean - half:+.3g}, {mean + half:+.3g}]"]


def _differing_settings(runs: Sequence[Found]) -> str:
    keys = dict.fromkeys(key for found in runs for key in found.config)
    if not (changed := [key for key in keys if len({str(found.config.get(key, MISSING)) for found in runs}) > 1]):
        return "their settings are the same"
    lines = [f"  {key}: {', '.join(str(found.config.get(key, MISSING)) for found in runs)}" for key in changed]
    return "\n".join([f"settings that differ ({', '.join(found.name for found in runs)}):", *map(printable, lines)])


def drawn(runs: Sequence[Found], picture: Path) -> bool:
    """Draw val/<metric> and train/loss over steps; return whether any of the runs has curves."""
    from matplotlib.figure import Figure

    metric = runs[0].metric
    names = ["train/loss", metric.name if metric else "val/loss"]
    if not (names := [name for name in names if any(_curve(found, name) for found in runs)]):
        return False
    figure = Figure(figsize=(5 * len(names), 3.5), layout="constrained")
    for axis, name in zip(figure.subplots(1, len(names), squeeze=False)[0], names, strict=True):
        for found in runs:
            if points := _curve(found, name):
                axis.plot(*zip(*points, strict=True), label=found.name, linewidth=1)
        axis.set(xlabel="step (updates of the model)", ylabel=name)
        axis.legend(fontsize=8)
        axis.grid(alpha=0.4)
    with explained(picture), as_user_error(f"--picture {picture}: "):
        picture.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(picture, format=picture.suffix[1:] or "svg")
    return True


def _curve(found: Found, name: str) -> list[tuple[float, float]]:
    return [(entry["step"], entry[name]) for entry in found.records if name in entry]
