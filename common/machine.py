"""Facts about this machine: the CPU cores to use, the processor's name, the memory that this process has used.

psutil is imported inside the functions: the doctor answers on a machine where no package is installed.
"""

import ctypes
import functools
import os
import platform
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4  # of malloc.h
PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 0  # bytes
_needed = 0  # resident bytes after a batch before which all freed memory had been returned
_returned = True  # whether it was, before the present batch


def cores() -> int:
    """Return how many CPU cores this process should use: its share of the cores it may run on, at least 1.

    The processes that a launcher started on this machine (LOCAL_WORLD_SIZE) share the cores equally. Two hardware
    threads of one core count as two.
    """
    return max(1, _available_cores() // int(os.environ.get("LOCAL_WORLD_SIZE", 1)))


def physical_cores() -> int:
    """Return how many CPU cores this process may run on; two hardware threads of one core count once."""
    import psutil

    counted = psutil.cpu_count(logical=False) or psutil.cpu_count() or 1
    return min(counted, _available_cores())


def _available_cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1  # macOS and Windows: every core of the machine


def launched_on_one_thread() -> bool:
    """Return whether `accelerate launch` may have set OMP_NUM_THREADS=1, as it does without a GPU unless it is set.

    All cores but one would idle, so the stages take them all.
    """
    return "ACCELERATE_MIXED_PRECISION" in os.environ and os.environ.get("OMP_NUM_THREADS") == "1"


def yield_while_waiting() -> None:
    """On a machine with more work than cores, let threads that wait for one another sleep. Call it before torch loads.

    OpenMP's threads spin while they wait. On a busy machine each spins through the time that the others need, and a
    step takes many times as long; on an idle one sleeping costs some speed. No result depends on it.
    """
    busy = hasattr(os, "getloadavg") and os.getloadavg()[0] > 1.25 * _available_cores()
    if busy and "GOMP_SPINCOUNT" not in os.environ:
        os.environ.setdefault("OMP_WAIT_POLICY", "passive")


@functools.cache
def _libc() -> ctypes.CDLL | None:
    """Return the C library of this process; None where it is not Linux's."""
    return ctypes.CDLL(None) if sys.platform == "linux" else None


def keep_freed_memory() -> None:
    """Let this process keep the memory that it frees for what it allocates next; without glibc nothing changes.

    The blocks of large tensors otherwise go back to the system at once, which clears every page of the next one: half
    of the time of a training step of a policy for 50 customers. The price is fragmentation, which has no bound where
    sizes vary: call `return_freed_memory` after each batch.
    """
    if mallopt := getattr(_libc(), "mallopt", None):
        mallopt(M_MMAP_MAX, 0)
        mallopt(M_TRIM_THRESHOLD, -1)  # any other value means that more than 2 GiB go back each time


def return_freed_memory(most: int = 4 * 2**30) -> None:
    """Give the memory that this process has freed and kept back to the system, where it is too much.

    That is `most` bytes more than one and a half times what the process needs, which is the largest resident memory
    that a single batch has led to, from one call to the next, with nothing kept from before. A call takes microseconds.
    """
    global _needed, _returned
    if not (trim := getattr(_libc(), "malloc_trim", None)):
        return
    resident = _resident_bytes()
    if _returned:
        _needed, _returned = max(_needed, resident), False
    elif resident > 1.5 * _needed + most:
        trim(0)
        _returned = True


def _resident_bytes() -> int:
    with open("/proc/self/statm", "rb", buffering=0) as file:  # a third of the time that a Path takes
        return int(file.read().split()[1]) * PAGE


def mkl_is_slow() -> bool:
    """Return whether this CPU has AVX-512 and no AMX, and MKL does without it: it does so on AMD's processors."""
    try:
        facts = Path("/proc/cpuinfo").read_text().split("\n\n", 1)[0]
    except OSError:
        return False
    return "AuthenticAMD" in facts and " avx512bw" in facts and " amx_tile" not in facts


def processor() -> str:
    """Return the name of the CPU, with the number of its cores where the system tells it (Linux)."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return f"{names[0]} ({len(names)} cores)" if names else platform.machine()


def peak_memory_bytes() -> int:
    """Return the largest resident memory that this process has had so far."""
    if sys.platform == "win32":  # which has no module `resource`
        import psutil

        return psutil.Process().memory_info().peak_wset
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024  # bytes on macOS, KiB on Linux


def free_memory_bytes(device: "torch.device") -> int:
    """Return how much memory is free for tensors on a device; on a GPU, what torch holds without using it counts."""
    if device.type == "cuda":
        import torch

        return (
            torch.cuda.mem_get_info(device)[0]
            + torch.cuda.memory_reserved(device)
            - torch.cuda.memory_allocated(device)
        )
    import psutil

    return psutil.virtual_memory().available
