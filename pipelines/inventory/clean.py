"""Removing runs, and what no run needs any more: shown first, then done."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from common.disk import prepared
from common.disk.files import remove
from common.disk.lock import is_held
from common.errors import UserError
from pipelines import workloads
from pipelines.inventory.found import ROOT, Found, human, size

DATA = Path("data")


Waste = tuple[Path, str]  # a file or folder that may go, and why


def clean(runs: Sequence[Found], whole: bool, checkpoints: bool, really: bool) -> str:
    """Remove `runs` as a `whole` (UserError in training), else what no run needs; return what goes or would go."""
    busy = [found for found in runs if is_held(found.run.lock_file)]
    if whole and busy:
        raise UserError(f"{busy[0].name} is in training; stop it first")
    if whole:
        waste = [(found.run.folder, "asked for") for found in runs]
    else:
        waste = [*_unneeded([found for found in runs if found not in busy], checkpoints), *_unused_data(runs)]
    if not waste:
        return "there is nothing to remove"
    lines = [f"  {human(size(path)):>7}  {path}  ({reason})" for path, reason in waste]
    total = human(sum(size(path) for path, _ in waste))
    if not really:
        return "\n".join(["would be removed:", *lines, f"{total} in all; add --yes to remove it"])
    for path, _ in waste:
        remove(path)
    return "\n".join(["removed:", *lines, f"{total} in all"])


def _unneeded(runs: Sequence[Found], checkpoints: bool) -> Iterator[Waste]:
    for found in runs:
        if found.run.is_blank() and not found.members:
            yield (found.run.folder, "nothing came of it")
            continue
        for run in (found.run, *found.members):
            if is_held(run.lock_file):
                continue
            for pattern in (".*.tmp", ".*.old"):
                yield from ((path, "half-written") for path in sorted(run.folder.glob(pattern)))
                yield from ((path, "half-written") for path in sorted(run.folder.glob(f"[cm]*/{pattern}")))
            over = (run.outcome() or {}).get("state") == "done" or (run is found.run and found.state == "done")
            if checkpoints and over and run.checkpoints.is_dir():
                yield (run.checkpoints, "its training is done")


def _unused_data(runs: Sequence[Found]) -> Iterator[Waste]:
    """Yield prepared data of no run; a workload with unreadable runs keeps all."""
    for folder in sorted(DATA.glob("*/")):
        if folder.name not in workloads.names() or is_held(folder / ".lock"):
            continue
        config = workloads.find(folder.name).config
        used = set()
        try:
            for found in runs:
                if found.run.workload == folder.name:
                    for run in (found.run, *found.members):
                        data = run.config(config).data
                        used.add(prepared.folder_for(folder.name, data, data.layout))
        except UserError:
            continue
        for path in sorted(folder.glob("*/")):
            if path not in used:
                yield (path, f"prepared data of no run below {ROOT}/")
