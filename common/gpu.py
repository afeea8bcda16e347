"""Readings of NVIDIA GPUs and their driver through NVML (package nvidia-ml-py, imported as pynvml).

NVML is opened once per process and stays open, so that a reading every few steps costs no more than the driver's own
answers. A machine without a driver or the library is an ordinary case: nothing is raised, and the lists are empty.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, TypeVar

try:
    import pynvml
except ImportError:
    pynvml = None

if TYPE_CHECKING:  # torch takes seconds to import, and `doctor` reads the driver on machines where torch is broken
    import torch

GIB = 2**30

T = TypeVar("T")


@dataclass(frozen=True)
class GPU:
    """One reading of one GPU. A field is None where the driver does not support it."""

    name: str | None
    utilisation_percent: float | None  # share of the last sampling period (up to 1 s) in which a kernel ran
    memory_used_bytes: int | None  # by every process on the GPU, not by this one alone
    memory_total_bytes: int | None
    temperature_c: float | None
    power_w: float | None


@dataclass(frozen=True)
class Driver:
    """The driver, and the compute capability (major, minor) of each of its GPUs, whether CUDA sees it or not."""

    version: str | None
    cuda_version: tuple[int, int] | None  # the newest CUDA it runs
    capabilities: tuple[tuple[int, int] | None, ...]


def read_gpus() -> list[GPU]:
    """Read every GPU in the driver's order, whatever CUDA_VISIBLE_DEVICES says; [] without a driver or the library."""
    return [_read(handle) for handle in _handles()]


def read_gpu(device: torch.device) -> GPU | None:
    """Read the GPU behind `device`; None for a device that is not an NVIDIA GPU."""
    if device.type != "cuda":
        return None
    import torch

    handle = _handle(torch.cuda.current_device() if device.index is None else device.index)
    return None if handle is None else _read(handle)


def figures(gpu: GPU) -> dict[str, float]:
    """Return a reading as metrics, without the fields that the driver does not support."""
    values = {
        "gpu/utilisation_percent": gpu.utilisation_percent,
        "gpu/memory_gib": None if gpu.memory_used_bytes is None else gpu.memory_used_bytes / GIB,
        "gpu/temperature_c": gpu.temperature_c,
        "gpu/power_w": gpu.power_w,
    }
    return {key: float(value) for key, value in values.items() if value is not None}


def read_driver() -> Driver | None:
    """Read the driver; None if there is none or no library for it, and `driver_fault` says why."""
    if driver_fault() is not None:
        return None
    cuda = _supported(pynvml.nvmlSystemGetCudaDriverVersion_v2)
    return Driver(
        version=_supported(pynvml.nvmlSystemGetDriverVersion),
        cuda_version=None if cuda is None else (cuda // 1000, cuda % 1000 // 10),  # 12040 is CUDA 12.4
        capabilities=tuple(_supported(pynvml.nvmlDeviceGetCudaComputeCapability, handle) for handle in _handles()),
    )


@cache
def driver_fault() -> str | None:
    """Return why NVML cannot be used: "no package", "no driver" or the driver's own words; None if it can be used."""
    if pynvml is None:
        return "no package"
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError_LibraryNotFound:
        return "no driver"
    except pynvml.NVMLError as error:
        return str(error)
    return None


@cache
def _handles() -> tuple[object, ...]:
    if driver_fault() is not None:
        return ()
    count = _supported(pynvml.nvmlDeviceGetCount) or 0
    handles = (_supported(pynvml.nvmlDeviceGetHandleByIndex, index) for index in range(count))
    return tuple(handle for handle in handles if handle is not None)


@cache
def _handle(index: int) -> object | None:
    """Return NVML's handle of torch's device by its UUID: CUDA numbers visible GPUs, fastest first, NVML all by bus."""
    if driver_fault() is not None:
        return None
    import torch

    uuid = torch.cuda.get_device_properties(index).uuid
    for kind in ("GPU", "MIG"):  # a slice of a GPU has a UUID of its own
        handle: object = _supported(pynvml.nvmlDeviceGetHandleByUUID, f"{kind}-{uuid}")
        if handle is not None:
            return handle
    return None


def _read(handle: object) -> GPU:
    utilisation = _supported(pynvml.nvmlDeviceGetUtilizationRates, handle)
    memory = _supported(pynvml.nvmlDeviceGetMemoryInfo, handle)
    milliwatts = _supported(pynvml.nvmlDeviceGetPowerUsage, handle)
    return GPU(
        name=_supported(pynvml.nvmlDeviceGetName, handle),
        utilisation_percent=None if utilisation is None else utilisation.gpu,
        memory_used_bytes=None if memory is None else memory.used,
        memory_total_bytes=None if memory is None else memory.total,
        temperature_c=_supported(pynvml.nvmlDeviceGetTemperature, handle, pynvml.NVML_TEMPERATURE_GPU),
        power_w=None if milliwatts is None else milliwatts / 1000,
    )


def _supported(function: Callable[..., T], *arguments: object) -> T | None:
    """Return the driver's answer, or None if it does not support the question."""
    try:
        return function(*arguments)
    except pynvml.NVMLError:
        return None
