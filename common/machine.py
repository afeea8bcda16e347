"""Facts about this machine: cores, processor, memory. psutil is imported late: the doctor answers without packages."""

import ctypes
import math
import os
import platform
import re
import resource
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_MMAP_MAX = -1, -3, -4  # of malloc.h
LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None
PAGE = os.sysconf("SC_PAGE_SIZE")  # bytes
GROUPS, MEMBERSHIP = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")  # of Linux: limits, and this process's groups
_needed = 0  # largest resident bytes after a batch that began with all freed memory returned
_returned = True  # whether the present batch did


def cores() -> int:
    """Return this process's share, at least 1, of the cores (hardware threads) for the processes launched here."""
    # On macOS every core of the machine.
    available = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min([available, *_quotas()]) // int(os.environ.get("LOCAL_WORLD_SIZE", 1)))


def _quotas() -> Iterator[int]:
    """Yield the limits on the CPU time of this process's control groups, in cores, rounded up.

    A container sees its own group as the root; systemd and Slurm limit groups below that.
    """
    lines = MEMBERSHIP.read_text().splitlines() if MEMBERSHIP.exists() else []
    own = [line.split(":", 2)[1:] for line in lines]  # kinds of limits, and the group's path
    for root, names in (("", ("cpu.max",)), ("cpu", ("cpu.cfs_quota_us", "cpu.cfs_period_us"))):  # of two versions
        group = next((GROUPS / root / path[1:] for kinds, path in own if root in kinds.split(",")), GROUPS / root)
        for folder in (group, *group.parents):
            with suppress(OSError, ValueError):  # "max" is no limit, nor is -1
                quota, period = (int(word) for name in names for word in (folder / name).read_text().split())
                if quota > 0 and period > 0:
                    yield math.ceil(quota / period)


def launched_on_one_thread() -> bool:
    """Return whether `accelerate launch` set OMP_NUM_THREADS=1, its default without a GPU, rather than the user."""
    if "ACCELERATE_MIXED_PRECISION" not in os.environ or os.environ.get("OMP_NUM_THREADS") != "1":
        return False
    import psutil

    # What was typed is in the launcher's own environment, that of the nearest ancestor without Accelerate's variables.
    with suppress(psutil.Error):
        for ancestor in psutil.Process().parents():
            if "ACCELERATE_MIXED_PRECISION" not in (typed := ancestor.environ()):
                flag = any(word.startswith("--num_cpu_threads") for word in ancestor.cmdline())
                return "OMP_NUM_THREADS" not in typed and not flag
    return True


def yield_while_waiting() -> None:
    """Let waiting OpenMP threads sleep soon, as spinning ones keep the core from others; call it before torch loads."""
    if min(_quotas(), default=math.inf) < (os.cpu_count() or 1):
        os.environ.setdefault("OMP_NUM_THREADS", str(cores()))  # torch takes a thread for each core that it sees
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", "1000")


def keep_freed_memory() -> None:
    """Reuse freed memory, as clearing new pages takes half of a step; `return_freed_memory` then bounds it."""
    if mallopt := getattr(LIBC, "mallopt", None):
        mallopt(M_MMAP_MAX, 0)
        mallopt(M_TRIM_THRESHOLD, -1)  # any other value means that more than 2 GiB go back each time


def return_large_tensors() -> None:
    """Let this process return large tensors to the system when they are freed, after `keep_freed_memory`."""
    if mallopt := getattr(LIBC, "mallopt", None):
        mallopt(M_MMAP_MAX, 2**16)
        mallopt(M_MMAP_THRESHOLD, 2**20)
        mallopt(M_TRIM_THRESHOLD, 2**22)
    if trim := getattr(LIBC, "malloc_trim", None):
        trim(0)


def return_freed_memory(most: int = 4 * 2**30) -> None:
    """Return kept memory above `most` bytes plus 1.5 times the need, measured after a batch with nothing kept."""
    global _needed, _returned
    if not (trim := getattr(LIBC, "malloc_trim", None)):
        return
    resident = resident_bytes()
    if _returned:
        _needed, _returned = max(_needed, resident), False
    elif resident > 1.5 * _needed + most:
        trim(0)
        _returned = True


def resident_bytes() -> int:
    """Return the memory of this process that is not swapped out (Linux)."""
    with open("/proc/self/statm", "rb", buffering=0) as file:  # a third of the time that a Path takes
        return int(file.read().split()[1]) * PAGE


def mkl_is_slow() -> bool:
    """Return whether this CPU has AVX-512 that MKL leaves unused, as on AMD's processors, and no AMX."""
    facts = cpus().split("\n\n", 1)[0]
    return "AuthenticAMD" in facts and " avx512bw" in facts and " amx_tile" not in facts


def processor() -> str:
    """Return the CPU's name, on Linux with its number of cores."""
    names = re.findall(r"^model name\s*:\s*(.*)", cpus(), re.MULTILINE)
    return f"{names[0]} ({len(names)} cores)" if names else platform.processor() or platform.machine()


def cpus() -> str:
    """Return Linux's /proc/cpuinfo; "" elsewhere."""
    with suppress(OSError):
        return Path("/proc/cpuinfo").read_text()
    return ""


def peak_memory_bytes() -> int:
    """Return the peak resident memory of this process."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024  # bytes on macOS, KiB on Linux


def free_memory_bytes(device: "torch.device") -> int:
    """Return the memory free for tensors on a device, on a GPU with what torch holds unused."""
    if device.type == "cuda":
        import torch

        unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return torch.cuda.mem_get_info(device)[0] + unused
    import psutil

    return psutil.virtual_memory().available
