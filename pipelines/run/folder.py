"""The run folder: configuration, provenance, metrics, and the paths of everything else."""

import json
import platform
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib import metadata
from pathlib import Path
from typing import Any, TypeVar

from common import config as configs
from common.config import Section, plain_yaml
from common.config.mistakes import nearest
from common.disk import files
from common.disk.lock import held
from common.errors import UserError, as_user_error
from common.machine import processor
from common.packages import RECORD
from common.plain import Plain

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("torch", "accelerate", "datasets", "safetensors", "numpy", "pydantic")  # whose versions are recorded
FACTS = {"command": list, "devices": list, "versions": dict, "data": dict, "earlier": list}  # of a provenance
NAME = r"[A-Za-z0-9][A-Za-z0-9._-]*"

Config = TypeVar("Config", bound=Section)


class Run:
    """Paths and records of a run, which the main process writes; `default/BTCUSDT` is a member of the run `default`."""

    def __init__(self, workload: str, name: str, package: Path | None = None, within: str = ""):
        if not re.fullmatch(f"{NAME}(/{NAME})?", name):
            allowed = "a run's name is letters, digits, '.', '_' and '-', as in dgt-50"
            raise UserError(f"--name {name!r}: {allowed}; a member of a run of many models is RUN/MEMBER")
        self.workload, self.name, self.package = workload, name, package
        self.root = Path("runs") / workload
        self.folder = self.root / name.replace("/", "/members/") / within
        self.config_file = self.folder / "config.yaml"
        self.lock_file = self.folder / ".lock"
        self.provenance_file = self.folder / "provenance.json"
        self.metrics_file = self.folder / "metrics.jsonl"
        self.checkpoints = self.folder / "checkpoints"
        self.best = self.folder / "model" / "best"
        self.last = self.folder / "model" / "last"
        self.judged = self.folder / "model" / "judged"  # the best one on validation, where `best` is fitted again
        self.evaluations = self.folder / "evaluations"
        self.report = self.folder / "report.html"
        self.outcome_file = self.folder / "outcome.json"
        self.verdict_file = self.folder / "verdict.txt"
        self.judged_file = self.folder / "judged.json"  # the models() that the verdict is about

    def member(self, name: str) -> "Run":
        """Return the run of one member of a run of many models."""
        return Run(self.workload, f"{self.name}/{name}", self.package)

    def members(self) -> list["Run"]:
        """Return the runs of all members that were begun, by name; other folders may lie beside them."""
        names = sorted(path.name for path in (self.folder / "members").glob("*/"))
        return [self.member(name) for name in names if re.fullmatch(NAME, name)]

    @property
    def evaluated(self) -> Path:
        """The folder of the model to evaluate: `best` may be fitted again, also on validation data."""
        return self.judged if self.judged.is_dir() else self.best

    def outcome(self) -> dict[str, Plain]:
        """Return how training ended: "state" is done, or of a member failed or stopped; {} if it has not."""
        found = files.read_json(self.outcome_file, dict)
        return found if isinstance(found.get("state"), str) else {}

    def check_goes_on(self) -> None:
        """Raise UserError for a finished run without checkpoints: training would start over and replace its models."""
        if self.outcome().get("state") == "done" and not any(self.checkpoints.glob("step-*")):
            raise UserError(f"{self.folder} is done, and its checkpoints are gone: give another --name to begin again")

    def verdict(self) -> str:
        """Return the report's heading; empty before an evaluation."""
        said = self.verdict_file.read_text(errors="replace").strip() if self.verdict_file.is_file() else ""
        return f"of earlier weights: {said}" if said and self._changed_since_judged() else said

    def models(self) -> list[object]:
        """Return the digests of the models that training of the run and of its members ended with, in order."""
        return [outcome.get("models") for run in (self, *self.members()) if (outcome := run.outcome())]

    def _changed_since_judged(self) -> bool:
        return self.judged_file.is_file() and files.read_json(self.judged_file, list) != self.models()

    def unjudged(self) -> str:
        """Say how long a run has trained, if it has not been evaluated since; empty for others."""
        whole = Run(self.workload, self.name.partition("/")[0])
        if (judged := whole.verdict_file.is_file()) and not whole._changed_since_judged():
            return ""
        step = max((entry["step"] for run in (self, *self.members()) for entry in run.metrics()), default=0)
        evaluate = f"python pipelines/evaluate.py --workload {self.workload} --name {whole.name} shows what it is worth"
        what = "trained on since its evaluation, now" if judged else "never evaluated, trained"
        return f"{what} for {step:,} updates; {evaluate}" if step else ""

    def started(self) -> bool:
        """Return whether this run was begun."""
        return self.config_file.exists()

    def names(self) -> list[str]:
        """Return the names of all runs of the workload, members among them."""
        files = [*self.root.glob("*/config.yaml"), *self.root.glob("*/members/*/config.yaml")]
        return sorted(path.parent.relative_to(self.root).as_posix().replace("/members/", "/") for path in files)

    def unknown(self, others: Sequence[str] = (), before: str = "") -> str:
        """Return an error about a missing run, with the nearest names of runs or `others`, as words or after --name."""
        known = list(dict.fromkeys([*self.names(), *others]))
        near = [f"{before}{name}" for name in nearest(self.name, known, 3) or known[:3]]
        names = f"; did you mean {'' if before else '--name '}{' or '.join(near)}?"
        hint = names if near else f", nor any other of {self.workload}."
        return f"there is no run {self.folder}{hint}"

    def is_blank(self) -> bool:
        """Return whether the run has no results yet."""
        begun = (self.config_file, self.provenance_file, self.lock_file)
        return not self.folder.is_dir() or set(self.folder.iterdir()) <= set(begun)

    def learnt_from(self, content: object) -> bool:
        """Return whether the run began with this content of the prepared data, if recorded."""
        return self.provenance().get("data", {}).get("content") in (None, content)

    def check_inputs(self, manifest: Mapping[str, Plain], folder: Path) -> None:
        """Raise UserError if the files behind the data in `folder`, which determine the split, have changed."""
        now, known = (facts.get("inputs") for facts in (manifest, self.provenance().get("data", {})))
        if not isinstance(now, dict) or not isinstance(known, dict) or known == now:
            return
        changed = min(path for path in known | now if known.get(path) != now.get(path))
        way = f"restore the old files and delete {folder}, or train another --name"
        raise UserError(f"{changed} has changed since {self.folder} was trained; it may have seen the new test: {way}")

    def begin_anew(self) -> None:
        """Remove the results; config, provenance and the process's log stay."""
        kept = (self.config_file, self.provenance_file, self.lock_file, self.folder / "train.log")
        for path in self.folder.iterdir():
            if path not in kept:
                files.remove(path)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Lock the run within the block and remove half-written files; UserError names another process training it."""
        with held(self.lock_file):
            for folder in (self.folder, self.best, self.last, self.checkpoints):
                files.tidy(folder)
            yield

    def adopt(self, folder: Path) -> None:
        """Start the run from a shipped model and config in `folder`, if there are any."""
        if not self.started() and (folder / "run.yaml").is_file() and self.name.startswith(f"{self.workload}-"):
            shutil.copytree(folder, self.best, dirs_exist_ok=True)
            files.write_text(self.config_file, (folder / "run.yaml").read_text())

    def config(self, cls: type[Config], words: Sequence[str] = (), others: Sequence[str] = ()) -> Config:
        """Return the run's config, patched with `words`. Raises UserError for a run not begun (`unknown`)."""
        if not self.started():
            command = f"accelerate launch pipelines/train.py --workload {self.workload}"
            command += f" --name {self.name}" if self.name != "default" else ""
            raise UserError(f"{self.unknown(others)} Train it with: {command}")
        # Training does not depend on `evaluation`: keys of an earlier version are no reason to refuse the run.
        return configs.load(self.config_file, cls, words, outlived="evaluation")

    def provenance(self) -> dict[str, Any]:
        """Return what the last start recorded, {} before one. Raises UserError for a damaged file."""
        if not self.provenance_file.is_file():
            return {}
        remedy = "restore a copy, or delete it and continue with --resume: no result depends on it"
        with as_user_error(f"{self.provenance_file} is damaged (", f"): {remedy}", (ValueError, TypeError)):
            found = json.loads(self.provenance_file.read_bytes())
            return {**found, **{key: kind(found.get(key, kind())) for key, kind in FACTS.items()}}

    def begin(self, config: Section, world_size: int, data: Mapping[str, object], precision: str = "no") -> None:
        """Write the config and the provenance."""
        self.keep_config(config)
        last = self.provenance()  # a resumed run keeps what is known of its earlier starts
        earlier = [*last.pop("earlier"), last] if last else []
        own = {RECORD: str(self.package)} if self.package else {}
        files.write_json(self.provenance_file, {**provenance(world_size, data, precision), **own, "earlier": earlier})

    def keep_config(self, config: Section) -> None:
        """Write the config, which begins the run."""
        text = configs.dump(config)
        with as_user_error("this config would be too large to be read again: "):
            plain_yaml.parse(text.encode())
        files.write_text(self.config_file, text)

    def record(self, entry: Mapping[str, object]) -> None:
        """Append one object to metrics.jsonl."""
        files.append_json_line(self.metrics_file, entry)

    def sync_metrics(self) -> None:
        """Wait until the records are on disk."""
        for path in filter(Path.exists, (self.metrics_file, self.folder)):
            with files.explained(path):
                files.sync(path)

    def metrics(self) -> list[dict[str, float]]:
        """Return the records of metrics.jsonl, without values that were not finite."""
        return [{key: value for key, value in entry.items() if value is not None} for entry in self._records()]

    def _records(self) -> Iterator[dict[str, Any]]:
        entries = files.read_json_lines(self.metrics_file)
        return (entry for entry in entries if isinstance(entry.get("step"), int))  # else it is damaged

    def rewind(self, step: int, validated: int) -> None:
        """Delete records after `step` and validations after `validated`, which will be repeated."""

        def last(entry: Mapping[str, object]) -> int:
            return validated if any(key.startswith("val/") for key in entry) else step

        kept = [entry for entry in self._records() if entry["step"] <= last(entry)]
        files.write_text(self.metrics_file, "".join(json.dumps(entry) + "\n" for entry in kept))


def provenance(world_size: int, data: Mapping[str, object], precision: str = "no") -> dict[str, object]:
    """Return what produced a run: command, code, versions, devices, data."""
    import torch

    return {
        "started": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "command": [Path(sys.argv[0]).name, *sys.argv[1:]],
        "commit": _git("rev-parse", "HEAD"),
        "uncommitted_changes": bool(_git("status", "--porcelain")),
        "python": platform.python_version(),
        "versions": {name: metadata.version(name) for name in PACKAGES},
        "devices": [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())] or [processor()],
        "threads": torch.get_num_threads(),
        "world_size": world_size,
        "mixed_precision": precision,
        "data": dict(data),
    }


def _git(*words: str) -> str | None:
    with suppress(OSError, subprocess.CalledProcessError):
        return subprocess.check_output(["git", "-C", str(ROOT), *words], stderr=subprocess.DEVNULL, text=True).strip()
    return None
