"""Provenance of a run: command, code, versions, devices, data."""

import platform
import subprocess
import sys
import time
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path

from common.machine import processor

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("torch", "accelerate", "datasets", "safetensors", "numpy", "pydantic")


def provenance(world_size: int, data: Mapping[str, object], precision: str = "no") -> dict[str, object]:
    """Return what produced a run: command, code, versions, devices, data."""
    import torch

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
        "mixed_precision": precision,
        "data": dict(data),
    }


def _git(*words: str) -> str | None:
    """Return the output of a git command in the project's checkout; None without one, or without git."""
    try:
        done = subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, text=True, check=False)
    except OSError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None
