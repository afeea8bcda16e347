"""Processes of members: forked from a server that imports for all of them, once.

torch is not imported here, so that this import and the server's can run side by side.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import threading
from collections.abc import Sequence
from multiprocessing.context import ForkServerContext, SpawnContext
from pathlib import Path

from common.stopping import end_with_parent

ROOT = Path(__file__).resolve().parents[2]
TRAINING = ("pipelines.engine.training", "pipelines.engine.loop", "datasets", "torch._dynamo")  # late otherwise
# What a launcher tells its processes about each other; a member's process is on its own.
LAUNCHER = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "GROUP_RANK")


def start_server(modules: Sequence[str] = TRAINING) -> ForkServerContext | SpawnContext:
    """Start the server that members are forked from, which imports `modules`, unless it runs.

    Call it before the caller's own imports, so that both run side by side. Windows starts new interpreters instead.
    """
    if "forkserver" not in multiprocessing.get_all_start_methods():  # Windows
        return multiprocessing.get_context("spawn")
    from multiprocessing import forkserver

    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(modules))
    # It looks for modules where a new interpreter would, which is not this project.
    places = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if str(ROOT) not in places:
        os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), *filter(None, places)])
    forkserver.ensure_running()
    return context


def stand_alone(device: str) -> None:
    """Detach this process from the launcher's settings, on a device; it ends with its parent."""
    threading.Thread(target=end_with_parent, daemon=True).start()
    for name in LAUNCHER:
        os.environ.pop(name, None)
    if device.startswith("cuda"):
        os.environ["ACCELERATE_TORCH_DEVICE"] = device


def say(line: str) -> None:
    """Print a line of progress."""
    print(line, file=sys.stderr, flush=True)
