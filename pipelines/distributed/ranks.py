"""Agreement between the processes of a command, over a patient gloo group; the main one accesses the disk for all."""

from __future__ import annotations

import functools
import os
import socket
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from common.errors import Stopped, UserError
from common.stopping import asked

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

# Variables in which launchers, also MPI's, state the number of processes.
SIZES = ("WORLD_SIZE", "PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE")
PATIENCE = timedelta(days=30)
CHUNK = 2**26  # bytes sent at once

T = TypeVar("T")

_waiting = 0  # how many `waiting` blocks the main thread is in


@contextmanager
def waiting() -> Iterator[None]:
    """Mark this rank as waiting for the others within the block."""
    global _waiting
    counts = not _beside()
    _waiting += counts
    try:
        yield
    finally:
        _waiting -= counts


def waits() -> bool:
    """Return whether this rank's main thread is waiting for the others."""
    return _waiting > 0


def join() -> int:
    """Form the group of the launched processes, if several; return how many Accelerate sees."""
    if max(int(os.environ.get(name, 1)) for name in SIZES) == 1:
        return 1
    from accelerate import PartialState
    from accelerate.utils import parse_flag_from_env

    return int(PartialState(cpu=parse_flag_from_env("ACCELERATE_USE_CPU")).num_processes)


def part() -> None:
    """Destroy the group, if one was formed: its threads might abort the process at exit."""
    if world() > 1:
        sys.modules["torch.distributed"].destroy_process_group()


def world() -> int:
    """Return the number of processes in the group, 1 where none was formed."""
    distributed = sys.modules.get("torch.distributed")
    return distributed.get_world_size() if distributed and distributed.is_initialized() else 1


def rank() -> int:
    """Return the number of this process in the group, from 0."""
    return 0 if world() == 1 else int(sys.modules["torch.distributed"].get_rank())


def is_main() -> bool:
    """Return whether this is the process that reads and writes the disk."""
    return rank() == 0


def agree(function: Callable[[], T]) -> T:
    """Call `function` on all ranks and return its result; an error on any is raised on all."""
    if world() == 1:
        return function()
    answer, shared, error = _attempt(function)
    _raise(error, gather(shared))
    return answer  # type: ignore[return-value]


def _attempt(function: Callable[[], T]) -> tuple[T | None, UserError | Stopped | str | None, Exception | None]:
    """Return (result, error as shared with the other ranks, error)."""
    try:
        return function(), None, None
    except Exception as caught:
        shared = caught if isinstance(caught, UserError | Stopped) else str(caught) or type(caught).__name__
        return None, shared, caught


def _raise(error: Exception | None, others: Sequence[UserError | Stopped | str | None]) -> None:
    if error is not None:
        raise error
    for rank, other in enumerate(others):
        if isinstance(other, Exception):
            raise other
        if other is not None:
            raise RuntimeError(f"process {rank} failed: {other}")


def stop_if_asked() -> None:
    """Raise Stopped on all ranks if one of them has received a signal."""
    number = asked() or 0
    if world() > 1:
        import torch

        numbers = torch.tensor(number)
        with waiting():
            torch.distributed.all_reduce(numbers, torch.distributed.ReduceOp.MAX, group())
        number = int(numbers)
    if number:
        raise Stopped(number)


def gather(value: T) -> list[T]:
    """Return the `value` of every rank, in their order."""
    if world() == 1:
        return [value]
    from torch import distributed

    values = [value] * world()
    with waiting():
        distributed.all_gather_object(values, value, group=group())
    return values


def evenly(parts: Sequence[T]) -> Iterator[T]:
    """Yield the parts, repeating the last until all ranks have yielded equally many, as sharded models require."""
    for number in range(max(gather(len(parts)))):
        yield parts[min(number, len(parts) - 1)]


def gather_on_main(value: T) -> list[T]:
    """Return the `value` of every rank on the main process, on the others only their own."""
    if world() == 1:
        return [value]
    from torch import distributed

    values = [value] * world() if is_main() else None
    distributed.gather_object(value, values, 0, group())
    return values or [value]


def on_main(function: Callable[[], T]) -> T:
    """Call `function` on the main process alone; return its result or raise its error on all ranks."""
    if world() == 1:
        return function()
    from torch import distributed

    value, shared, error = _attempt(function) if is_main() else (None, None, None)
    outcome = [value, shared]
    with waiting():
        distributed.broadcast_object_list(outcome, 0, group=group())
    _raise(error, outcome[1:])  # type: ignore[arg-type]
    return outcome[0]  # type: ignore[return-value]


def read(path: Path) -> bytes:
    """Return the bytes of the main process's file `path` on all ranks."""
    return path.read_bytes() if world() == 1 else b"".join(_chunks(path))


def _chunks(path: Path) -> Iterator[bytes]:
    def part(begin: int) -> bytes:
        with path.open("rb") as file:
            return os.pread(file.fileno(), CHUNK, begin)

    for begin in range(0, on_main(lambda: path.stat().st_size), CHUNK):
        yield on_main(functools.partial(part, begin))


def check_seen(path: Path, otherwise: str) -> None:
    """Raise UserError, which ends with what to do `otherwise`, unless all ranks see the main process's file `path`."""
    if world() == 1:
        return
    content = on_main(path.read_bytes)

    def check() -> None:
        if not path.is_file() or path.read_bytes() != content:
            shared = "start on all machines from one folder on a shared disk"
            unseen = f"{socket.gethostname()} does not see {path.parent} of the first machine"
            raise UserError(f"{unseen}: {shared}, or {otherwise}")

    agree(check)


@contextmanager
def copy_of(folder: Path) -> Iterator[Path]:
    """Yield the main process's `folder`, if all ranks see it, or on the others a temporary copy of its files."""
    if len(set(gather(folder.is_dir() and (folder.stat().st_ino, folder.stat().st_mtime_ns)))) == 1:
        yield folder
        return
    names = on_main(lambda: sorted(path.name for path in folder.iterdir() if path.is_file()) if folder.is_dir() else [])
    with tempfile.TemporaryDirectory() as temporary:
        for name in names:
            with open(os.devnull if is_main() else Path(temporary) / name, "wb") as file:
                file.writelines(_chunks(folder / name))
        yield folder if is_main() else Path(temporary)


def _beside() -> bool:
    return threading.current_thread() is not threading.main_thread()


def group() -> ProcessGroup:
    """Return the gloo group of all processes; outside the main thread a second one, as the first may be in use."""
    return hosts(int(_beside()))


@functools.cache
def hosts(number: int) -> ProcessGroup:
    """Return gloo group `number` of all processes; the first call creates it, in the main threads of all."""
    from torch import distributed

    made: ProcessGroup = distributed.new_group(backend="gloo", timeout=PATIENCE)
    return made
