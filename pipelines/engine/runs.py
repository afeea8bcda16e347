"""The run folder: configuration, provenance, metrics, and where everything else of a run lies."""

import json
import platform
import re
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from common.errors import UserError
from common.files import explained, write_json, write_text
from pipelines.engine import config as configs
from pipelines.engine.config import BaseConfig

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("torch", "accelerate", "datasets", "safetensors", "numpy", "pydantic")


class Run:
    """Paths and records of one run. Only the main process writes."""

    def __init__(self, workload: str, name: str, folder: Path | None = None):
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name):
            raise UserError(f"--name {name!r}: a run's name is letters, digits, '.', '_' and '-', as in dgt-50")
        self.workload, self.name = workload, name
        self.folder = folder or Path("runs") / workload / name
        self.config_file = self.folder / "config.yaml"
        self.metrics_file = self.folder / "metrics.jsonl"
        self.checkpoints = self.folder / "checkpoints"
        self.best = self.folder / "model" / "best"
        self.last = self.folder / "model" / "last"
        self.evaluations = self.folder / "evaluations"
        self.report = self.folder / "report.html"
        self.outcome_file = self.folder / "outcome.json"

    def member(self, name: str) -> "Run":
        """Paths and records of one of the run's models, where it has many."""
        return Run(self.workload, self.name, self.folder / "members" / name)

    def outcome(self) -> dict[str, Any] | None:
        """How the training of a member ended, with "state" done, failed or stopped; None if it did not."""
        return json.loads(self.outcome_file.read_text()) if self.outcome_file.is_file() else None

    def started(self) -> bool:
        """Whether a run of this name was begun."""
        return self.config_file.exists()

    def config(self, cls: type[BaseConfig], words: Sequence[str] = ()) -> BaseConfig:
        """The run's resolved config, patched with `words`."""
        if not self.started():
            command = f"accelerate launch pipelines/train.py --workload {self.workload}"
            command += f" --name {self.name}" if self.name != "default" else ""
            raise UserError(f"there is no run {self.folder}; train one with: {command}")
        return configs.load(self.config_file, cls, words)

    def begin(self, config: BaseConfig, world_size: int, data: Mapping[str, Any]) -> None:
        """Write what is to be run, and what runs it."""
        with explained(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
        path, earlier = self.folder / "provenance.json", []
        if path.exists():  # a resumed run keeps what is known of its earlier starts
            last = json.loads(path.read_text())
            earlier = [*last.pop("earlier"), last]
        write_json(path, {**provenance(world_size, data), "earlier": earlier})
        write_text(self.config_file, configs.dump(config))

    def record(self, entry: Mapping[str, Any]) -> None:
        """Append one object to metrics.jsonl."""
        with explained(self.metrics_file), self.metrics_file.open("a") as file:
            file.write(json.dumps({key: _finite(value) for key, value in entry.items()}) + "\n")

    def metrics(self) -> list[dict[str, Any]]:
        """The records of metrics.jsonl; a line torn by a crash is left out."""
        if not self.metrics_file.exists():
            return []
        entries = []
        for line in self.metrics_file.read_text().splitlines():
            try:
                entries.append(json.loads(line))
            except json.JSONDecodeError:
                continue
        return entries

    def rewind(self, step: int) -> None:
        """Forget records after `step`: the updates they tell of are about to be done again."""
        kept = [json.dumps(entry) for entry in self.metrics() if entry["step"] <= step]
        write_text(self.metrics_file, "".join(line + "\n" for line in kept))


def provenance(world_size: int, data: Mapping[str, Any]) -> dict[str, Any]:
    """What produced a run: command, code, versions, devices, data."""
    gpus = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    return {
        "started": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "command": [Path(sys.argv[0]).name, *sys.argv[1:]],
        "commit": _git("rev-parse", "HEAD"),
        "uncommitted_changes": bool(_git("status", "--porcelain")),
        "python": platform.python_version(),
        "versions": {name: metadata.version(name) for name in PACKAGES},
        "devices": gpus or [processor()],
        "threads": torch.get_num_threads(),
        "world_size": world_size,
        "data": dict(data),
    }


def processor() -> str:
    """The CPU's name."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return f"{names[0]} ({len(names)} cores)" if names else platform.machine()


def _git(*words: str) -> str | None:
    """Output of a git command on the code's checkout; None outside a checkout or without git."""
    try:
        done = subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, text=True, check=False)
    except OSError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def _finite(value: Any) -> Any:
    """JSON has no NaN or infinity: they are recorded as null."""
    return None if isinstance(value, float) and not -float("inf") < value < float("inf") else value
