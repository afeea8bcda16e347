"""Readings of NVIDIA GPUs and their driver through NVML, which is opened once and may be absent."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import TypeVar

import torch

try:
    import pynvml
except ImportError:
    pynvml = None

GIB = 2**30
FIGURES: dict[str, Callable[[object], float]] = {
    # The share of the last sampling period, up to 1 s, in which a kernel ran.
    "gpu/utilisation_percent": lambda handle: pynvml.nvmlDeviceGetUtilizationRates(handle).gpu,
    "gpu/memory_gib": lambda handle: pynvml.nvmlDeviceGetMemoryInfo(handle).used / GIB,  # by every process
    "gpu/temperature_c": lambda handle: pynvml.nvmlDeviceGetTemperature(handle, pynvml.NVML_TEMPERATURE_GPU),
    "gpu/power_w": lambda handle: pynvml.nvmlDeviceGetPowerUsage(handle) / 1000,
}

T = TypeVar("T")


@dataclass(frozen=True)
class Driver:
    """The driver and its GPUs in NVML's order, visible to CUDA or not; None: not reported."""

    version: str | None
    cuda_version: tuple[int, int] | None  # the newest CUDA it runs
    names: tuple[str | None, ...]
    capabilities: tuple[tuple[int, int] | None, ...]  # CUDA compute capability (major, minor)


def read_gpu(device: torch.device) -> dict[str, float]:
    """Return the FIGURES of the GPU behind `device` that its driver supports; {} if it is not an NVIDIA GPU."""
    if device.type != "cuda":
        return {}
    handle = _handle(torch.cuda.current_device() if device.index is None else device.index)
    read = {name: None if handle is None else _supported(figure, handle) for name, figure in FIGURES.items()}
    return {name: float(value) for name, value in read.items() if value is not None}


@cache
def read_driver() -> Driver | None:
    """Read the driver; None if there is none or no library for it, and `driver_fault` says why."""
    if driver_fault() is not None:
        return None
    cuda = _supported(pynvml.nvmlSystemGetCudaDriverVersion_v2)
    count = _supported(pynvml.nvmlDeviceGetCount) or 0
    found = (_supported(pynvml.nvmlDeviceGetHandleByIndex, index) for index in range(count))
    handles = [handle for handle in found if handle is not None]
    return Driver(
        version=_supported(pynvml.nvmlSystemGetDriverVersion),
        cuda_version=None if cuda is None else (cuda // 1000, cuda % 1000 // 10),  # 12040 is CUDA 12.4
        names=tuple(_supported(pynvml.nvmlDeviceGetName, handle) for handle in handles),
        capabilities=tuple(_supported(pynvml.nvmlDeviceGetCudaComputeCapability, handle) for handle in handles),
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
def _handle(index: int) -> object | None:
    """Return NVML's handle of torch's device by its UUID: CUDA numbers visible GPUs, fastest first, NVML all by bus."""
    if driver_fault() is not None:
        return None
    uuid = torch.cuda.get_device_properties(index).uuid
    found = (_supported(pynvml.nvmlDeviceGetHandleByUUID, f"{kind}-{uuid}") for kind in ("GPU", "MIG"))  # or a slice
    return next((handle for handle in found if handle is not None), None)


def _supported(function: Callable[..., T], *arguments: object) -> T | None:
    """Return the driver's answer, or None if it does not support the question."""
    try:
        return function(*arguments)
    except pynvml.NVMLError:
        return None
