"""What is to be found out about trained members, by as many processes as there are cores."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from copy import deepcopy
from typing import TYPE_CHECKING, Any, TypeVar

from common.durations import clock
from common.machine import cores
from pipelines.distributed import ranks
from pipelines.engine.workload import MapItems
from pipelines.members import processes

if TYPE_CHECKING:
    import torch

T = TypeVar("T")
R = TypeVar("R")

FEWEST = 3  # members that are examined in several processes, whose start takes as long as one of them
EXAMINED_BYTES = 2**31  # of a GPU, for a process that examines one trained member after the other


def map_members(
    function: Callable[[T, torch.device, MapItems], R],
    jobs: Mapping[str, T],
    device: torch.device,
    map_items: MapItems,
) -> dict[str, R]:
    """Return {name: function(job, device, map_items)} on all ranks, worked out by as many processes as there are cores.

    Each has one thread, so that nothing depends on how many there are; with one core, or few jobs, it is this process
    and its `map_items`. `function` is importable by name, or a functools.partial of such; like the jobs and what comes
    of them it can be pickled. An error in any of them is raised here.
    """
    if len(jobs) < FEWEST or max(ranks.gather(cores())) == 1:
        return {name: function(job, device, map_items) for name, job in jobs.items()}
    mine = list(jobs)[ranks.rank() :: ranks.world()]
    found: dict[str, R] = {}
    for part in ranks.gather(ranks.agree(lambda: _examined(function, {name: jobs[name] for name in mine}, device))):
        found |= part
    return {name: found[name] for name in jobs}


def _examined(function: Callable[[T, Any, Any], R], jobs: Mapping[str, T], device: torch.device) -> dict[str, R]:
    at_once = max(1, min(cores(), len(jobs)))
    if device.type == "cuda":
        import torch

        at_once = max(1, min(at_once, torch.cuda.mem_get_info(device)[0] // EXAMINED_BYTES))
    processes.say(f"examining {len(jobs)} members, {at_once} at a time")
    found, began = {}, time.perf_counter()
    pool = ProcessPoolExecutor(
        at_once, mp_context=processes.start_server(), initializer=processes.stand_alone, initargs=(str(device),)
    )
    try:
        # Tensors are sent as open files of shared memory, of which hundreds of models have too many. Copies close
        # theirs when they have been examined; the pool sends one more than it has processes.
        names: dict[Future[R], str] = {
            pool.submit(_examine, function, deepcopy(job)): name for name, job in jobs.items()
        }
        for future in as_completed(names):
            found[names[future]] = future.result()
            left = (time.perf_counter() - began) / len(found) * (len(jobs) - len(found))
            processes.say(f"{len(found)}/{len(jobs)} {names[future]}  left {clock(left)}")
    finally:
        pool.shutdown(cancel_futures=True)
    return found


def _examine(function: Callable[[T, Any, Any], R], job: T) -> R:
    """Call `function` in a process of the pool."""
    import torch
    from accelerate import Accelerator

    from pipelines.engine.batches import mapper

    torch.set_num_threads(1)
    accelerator = Accelerator()
    return function(job, accelerator.device, mapper(accelerator))
