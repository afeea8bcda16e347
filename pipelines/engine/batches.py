"""Order and loading of examples: batch k is a function of (seed, k), and each rank takes a slice."""

import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from accelerate import Accelerator, DistributedType
from accelerate.utils import send_to_device
from accelerate.utils.memory import should_reduce_batch_size
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from common.errors import UserError
from common.machine import return_freed_memory
from common.random import derive_key
from common.workers import progress
from pipelines.distributed import ranks
from pipelines.engine.workload import MapItems, Source


class Order:
    """Endless stream of item numbers: for a finite source a permutation per epoch, also where batches span two."""

    def __init__(self, size: int | None, batch_size: int, seed: int):
        self.size, self.batch_size, self.seed = size, batch_size, seed
        self._epoch, self._permutation = -1, torch.empty(0, dtype=torch.long)

    def items(self, step: int, rank: int = 0, world: int = 1) -> Tensor:
        """Return the slice (b,) of item numbers that `rank` of `world` processes handles in update `step`, from 0."""
        size = self.batch_size // world
        start = step * self.batch_size + rank * size
        if self.size is None:
            return torch.arange(start, start + size)
        epochs = range(start // self.size, (start + size - 1) // self.size + 1)
        begins = {epoch: start - epoch * self.size for epoch in epochs}  # of the slice in each epoch's permutation
        return torch.cat([self._permute(epoch)[max(0, begin) : begin + size] for epoch, begin in begins.items()])

    def _permute(self, epoch: int) -> Tensor:
        if epoch != self._epoch:
            assert self.size is not None, "an endless source has no epochs"
            generator = torch.Generator().manual_seed(derive_key(self.seed, "order", epoch))
            self._epoch, self._permutation = epoch, torch.randperm(self.size, generator=generator)
        return self._permutation


def check_divides(batch_size: int, world: int, micro_batch_size: int | str) -> None:
    """Raise UserError for a batch size that the processes or the micro-batch size do not divide."""
    if batch_size % world:
        lower = batch_size - batch_size % world
        advice = f"try training.batch_size={' or '.join(map(str, (lower, lower + world)[not lower :]))}"
        raise UserError(f"training.batch_size={batch_size} does not divide over {world} processes; {advice}")
    local = batch_size // world
    if isinstance(micro_batch_size, int) and local % micro_batch_size:
        divisors = ", ".join(str(d) for d in range(1, local + 1) if local % d == 0)
        each = f"(training.batch_size={batch_size} over {world} process{'es' * (world > 1)})"
        wrong = f"training.micro_batch_size={micro_batch_size} does not divide the {local} examples of each process"
        raise UserError(f"{wrong} {each}; try one of {divisors}")


def smaller(micro_batch_size: int, local_batch_size: int) -> int | None:
    """Return the largest divisor of the process's batch that is at most half the micro-batch; None below 1."""
    return next((size for size in range(micro_batch_size // 2, 0, -1) if local_batch_size % size == 0), None)


class Resident:
    """A finite source whose tensors live on the device; a batch is one `index_select` each."""

    workers = 0

    def __init__(self, tensors: Mapping[str, Tensor], device: torch.device):
        self.tensors = {name: tensor.to(device) for name, tensor in tensors.items()}
        self.device = device
        self.size = len(next(iter(tensors.values())))

    def batch(self, items: Tensor) -> dict[str, Tensor]:
        """Return {name: (b, ...)} for `items` (b,)."""
        items = items.to(self.device, non_blocking=True)  # any other copy waits for the device
        return {name: tensor.index_select(0, items) for name, tensor in self.tensors.items()}


def stream(source: Source, plan: Iterator[Tensor], device: torch.device) -> Iterator[tuple[Tensor, object]]:
    """Yield (items, batch) for each entry of `plan`, loaded ahead by worker processes if the source asks for them."""
    if not source.workers:
        for items in plan:
            yield items, source.batch(items)
            return_freed_memory()  # of the computations on the batch
        return
    loader = DataLoader(
        _Indexed(source),
        batch_size=None,
        sampler=plan,
        num_workers=source.workers,
        pin_memory=device.type == "cuda",
        prefetch_factor=2,
    )
    for items, batch in loader:
        yield items, send_to_device(batch, device, non_blocking=True)
        return_freed_memory()


class _Indexed(Dataset[tuple[Tensor, object]]):
    """A source as a torch dataset that is indexed by a whole micro-batch of item numbers."""

    def __init__(self, source: Source):
        self.source = source

    def __getitem__(self, items: Tensor) -> tuple[Tensor, object]:
        return items, self.source.batch(items)


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether the device's or the host's memory ran out."""
    known = isinstance(error, torch.OutOfMemoryError | MemoryError)
    return known or (isinstance(error, Exception) and should_reduce_batch_size(error))


@contextmanager
def lack_as(make: Callable[[], Exception]) -> Iterator[None]:
    """Raise `make()` if memory runs out within the block."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        raise make() from error


def mapper(accelerator: Accelerator, default_batch_size: int = 64, what: str | None = None) -> MapItems:
    """Return a function that maps over a source on all processes, halving batches if memory runs out."""
    sharded, part = accelerator.distributed_type == DistributedType.FSDP, itertools.count(1)

    @torch.no_grad()
    def map_items(
        source: Source, function: Callable[[Any], Mapping[str, Tensor]], batch_size: int | None = None
    ) -> dict[str, Tensor]:
        assert source.size is not None, "an endless source has no last item"
        world = accelerator.num_processes
        local = min(batch_size or default_batch_size, math.ceil(source.size / world))
        starts = range(0, source.size, local * world)
        # Every rank gets equally many items, so the last round is filled up with item 0 and cut after gathering.
        mine = torch.arange(local) + local * accelerator.process_index
        plan = ((start + mine).masked_fill(start + mine >= source.size, 0) for start in starts)
        chunks: dict[str, list[Tensor]] = {}
        fits = local

        def results(items: Tensor, batch: object) -> Mapping[str, Tensor]:
            nonlocal fits
            if len(items) <= fits:
                try:
                    with accelerator.autocast():
                        return function(batch)
                except (RuntimeError, MemoryError) as error:
                    if sharded or len(items) == 1 or not is_out_of_memory(error):
                        raise
                fits = math.ceil(len(items) / 2)  # outside the handler, which keeps tensors alive
            device = accelerator.device
            found = [results(part, send_to_device(source.batch(part), device)) for part in torch.split(items, fits)]
            return {name: torch.cat([part[name] for part in found]) for name in found[0]}

        shown = f"{what} of part {next(part)}" if what and accelerator.is_main_process else None
        for items, batch in progress(stream(source, plan, accelerator.device), len(starts), shown):
            ranks.stop_if_asked()
            for name, values in results(items, batch).items():
                with ranks.waiting():
                    chunks.setdefault(name, []).append(accelerator.gather(values.to(accelerator.device)).cpu())
        return {name: torch.cat(values)[: source.size] for name, values in chunks.items()}

    return map_items
