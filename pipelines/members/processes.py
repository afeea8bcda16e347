"""Members' processes, forked from a server that imports for all, beside the caller, whose torch is imported late."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import TYPE_CHECKING, TypeVar

from common import workers
from common.machine import cores
from common.stopping import attend
from pipelines.distributed import ranks
from pipelines.engine.workload import MapItems

if TYPE_CHECKING:
    import torch

T = TypeVar("T")
R = TypeVar("R")

TRAINING = ("pipelines.engine.training", "pipelines.engine.loop", "datasets", "torch._dynamo")  # else imported late
# A launcher's variables about its group, to which members' processes do not belong.
LAUNCHER = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "GROUP_RANK")
FEWEST = 3  # members from which several processes pay, as their start takes as long as examining one
EXAMINED_BYTES = 2**31  # of a GPU, for a process that examines one trained member after the other


def stand_alone(device: str) -> None:
    """Detach this process from the launcher's settings, on a device; it ends with its parent."""
    attend()
    for name in LAUNCHER:
        os.environ.pop(name, None)
    if device.startswith("cuda"):
        os.environ["ACCELERATE_TORCH_DEVICE"] = device


def free_on_gpu(device: torch.device) -> int | None:
    """Return the bytes that a GPU has for other processes; None on a CPU."""
    if device.type != "cuda":
        return None
    import torch

    return int(torch.cuda.mem_get_info(device)[0])


def map_members(
    function: Callable[[T, torch.device, MapItems], R], jobs: Mapping[str, T], device: torch.device, map_items: MapItems
) -> dict[str, R]:
    """Return {name: function(job, device, map_items)} on all ranks, by processes of one thread; all can be pickled."""
    if len(jobs) < FEWEST or max(ranks.gather(cores())) == 1:
        return {name: function(job, device, map_items) for name, job in jobs.items()}
    mine = list(jobs)[ranks.rank() :: ranks.world()]

    def examined() -> dict[str, R]:
        free = free_on_gpu(device)
        at_once = cores() if free is None else max(1, min(cores(), free // EXAMINED_BYTES))
        workers.start_server(TRAINING)
        # Tensors are sent as open files, too many for hundreds of models. Copies close theirs once examined.
        copies = (deepcopy(jobs[name]) for name in mine)
        begin = functools.partial(stand_alone, str(device))
        found = workers.pooled(functools.partial(_examine, function), copies, at_once, begin)
        return dict(zip(mine, workers.progress(found, len(mine), "examining members"), strict=True))

    found = {name: each for part in ranks.gather(ranks.agree(examined)) for name, each in part.items()}
    return {name: found[name] for name in jobs}


def _examine(function: Callable[[T, torch.device, MapItems], R], job: T) -> R:
    import torch
    from accelerate import Accelerator

    from pipelines.engine.batches import mapper

    torch.set_num_threads(1)
    accelerator = Accelerator()
    return function(job, accelerator.device, mapper(accelerator))
