"""Processes of members, forked from a server that imports for all, beside the caller, whose torch is imported late."""

from __future__ import annotations

import functools
import multiprocessing
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from copy import deepcopy
from multiprocessing import forkserver
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from common.machine import cores
from common.stopping import end_with_parent
from common.workers import clock
from pipelines.distributed import ranks
from pipelines.engine.workload import MapItems

if TYPE_CHECKING:
    import torch

T = TypeVar("T")
R = TypeVar("R")

ROOT = Path(__file__).resolve().parents[2]
TRAINING = ("pipelines.engine.training", "pipelines.engine.loop", "datasets", "torch._dynamo")  # late otherwise
# What a launcher tells its processes about each other; a member's process is on its own.
LAUNCHER = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "GROUP_RANK")

pool: ProcessPoolExecutor | None = None  # open from the first examination to the end of this process
FEWEST = 3  # members that are examined in several processes, whose start takes as long as one of them
EXAMINED_BYTES = 2**31  # of a GPU, for a process that examines one trained member after the other


def start_server(modules: Sequence[str] = TRAINING) -> ForkServerContext:
    """Start the server that members are forked from, which imports `modules` beside the caller."""
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


def map_members(
    function: Callable[[T, torch.device, MapItems], R], jobs: Mapping[str, T], device: torch.device, map_items: MapItems
) -> dict[str, R]:
    """Return {name: function(job, device, map_items)} on all ranks, by processes of one thread; all can be pickled."""
    if len(jobs) < FEWEST or max(ranks.gather(cores())) == 1:
        return {name: function(job, device, map_items) for name, job in jobs.items()}
    mine = list(jobs)[ranks.rank() :: ranks.world()]
    found: dict[str, R] = {}
    for part in ranks.gather(ranks.agree(lambda: _examined(function, {name: jobs[name] for name in mine}, device))):
        found |= part
    return {name: found[name] for name in jobs}


def map_parts(function: Callable[[T], R], jobs: Mapping[str, T]) -> dict[str, R]:
    """Return {name: function(job)}, computed on this rank alone by the processes of `map_members`, if any."""
    global pool
    if pool is not None and len(jobs) >= FEWEST:
        try:
            with _submitted(pool, function, jobs) as futures:
                return {name: future.result() for name, future in futures.items()}
        except BrokenProcessPool:  # one was killed, perhaps as memory ran out
            pool = None
            say("a process that examined members was killed; going on in this one")
    return {name: function(job) for name, job in jobs.items()}


def _examined(
    function: Callable[[T, torch.device, MapItems], R], jobs: Mapping[str, T], device: torch.device
) -> dict[str, R]:
    global pool
    at_once = cores()
    if device.type == "cuda":
        import torch

        at_once = max(1, min(at_once, torch.cuda.mem_get_info(device)[0] // EXAMINED_BYTES))
    say(f"examining {len(jobs)} members, {min(at_once, len(jobs))} at a time")
    found, began = {}, time.perf_counter()
    pool = pool or ProcessPoolExecutor(
        at_once, mp_context=start_server(), initializer=stand_alone, initargs=(str(device),)
    )
    with _submitted(pool, functools.partial(_examine, function), jobs) as futures:
        names = {future: name for name, future in futures.items()}
        for future in as_completed(names):
            found[names[future]] = future.result()
            left = (time.perf_counter() - began) / len(found) * (len(jobs) - len(found))
            say(f"{len(found)}/{len(jobs)} {names[future]}  left {clock(left)}")
    return found


@contextmanager
def _submitted(
    pool: ProcessPoolExecutor, function: Callable[[T], R], jobs: Mapping[str, T]
) -> Iterator[dict[str, Future[R]]]:
    # Tensors are sent as open files, too many for hundreds of models. Copies close theirs once examined; the pool
    # sends one more than it has processes.
    futures = {name: pool.submit(function, deepcopy(job)) for name, job in jobs.items()}
    try:
        yield futures
    finally:
        for future in futures.values():
            future.cancel()


def _examine(function: Callable[[T, torch.device, MapItems], R], job: T) -> R:
    import torch
    from accelerate import Accelerator

    from pipelines.engine.batches import mapper

    torch.set_num_threads(1)
    accelerator = Accelerator()
    return function(job, accelerator.device, mapper(accelerator))
