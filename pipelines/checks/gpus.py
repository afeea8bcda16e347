"""Checks of GPUs: those that the driver sees against those that torch sees."""

import os
import warnings
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import torch

from common.gpu import GIB, driver_fault, read_driver
from pipelines.checks import Finding, dotted, first_line, ok, problem, warning
from pipelines.checks.installation import pip
from pipelines.checks.pytorch import cuda_build, has_kernels, install_torch, installed_build

UPDATE_DRIVER = "sudo ubuntu-drivers install && sudo reboot   # other systems: https://www.nvidia.com/drivers"


def check_gpus() -> Iterator[Finding]:
    """Compare the driver's GPUs with torch's. The worst mismatch trains without an error, fifty times slower."""
    with warnings.catch_warnings():  # torch warns why there is no CUDA; _why_no_cuda puts that into the finding
        warnings.simplefilter("ignore")
        available = torch.cuda.is_available()
    if available:
        yield from _visible_gpus()
        return
    driver = read_driver()
    if driver is None or not driver.names:
        yield _no_gpu(driver_fault())
        return
    names = ", ".join(name or "an unnamed GPU" for name in driver.names)
    cuda = "CUDA version unknown" if driver.cuda_version is None else f"up to CUDA {dotted(driver.cuda_version)}"
    seen = f"the driver (version {driver.version}, {cuda}) sees {names}"
    build = cuda_build(driver.cuda_version, driver.capabilities)
    hidden = os.environ.get("CUDA_VISIBLE_DEVICES")
    if not torch.version.cuda:
        kind = "a ROCm build" if torch.version.hip else "a CPU-only build"
        message = f"{seen}, but torch {torch.__version__} is {kind}: training would ignore the GPU"
        if build is None:
            yield problem(f"{message}; no CUDA build runs on this driver, which must be updated first", UPDATE_DRIVER)
        else:
            yield problem(message, install_torch(build))
    elif hidden is not None and hides_all(hidden, len(driver.names)):
        yield warning(
            f"{seen}, but CUDA_VISIBLE_DEVICES={hidden!r} hides every GPU from torch: training runs on the CPU",
            "unset CUDA_VISIBLE_DEVICES",
        )
    elif driver.cuda_version is not None and driver.cuda_version[0] < int(torch.version.cuda.split(".")[0]):
        yield problem(
            f"{seen}, but is too old for torch {torch.__version__}, built for CUDA {torch.version.cuda}",
            UPDATE_DRIVER if build is None else install_torch(build),
        )
    else:
        yield problem(f"{seen}, but torch cannot use it: {_why_no_cuda()}", install_torch(build or installed_build()))


def hides_all(visible: str, num_gpus: int) -> bool:
    """Return whether CUDA_VISIBLE_DEVICES leaves no GPU; CUDA stops reading at the first entry that names none."""
    first = visible.partition(",")[0].strip()
    return not first.startswith(("GPU-", "MIG-")) and not (first.isdigit() and int(first) < num_gpus)


def _visible_gpus() -> Iterator[Finding]:
    count, driver = torch.cuda.device_count(), read_driver()
    if driver and count < len(driver.names):
        shown = os.environ.get("CUDA_VISIBLE_DEVICES")
        yield ok(f"torch sees {count} of the driver's {len(driver.names)} GPUs (CUDA_VISIBLE_DEVICES={shown})")
    kernels = torch.cuda.get_arch_list()
    for index in range(count):
        properties = torch.cuda.get_device_properties(index)
        capability = (properties.major, properties.minor)
        memory = f"{properties.total_memory / GIB:.1f} GiB"
        message = f"cuda:{index}: {properties.name}, compute capability {dotted(capability)}, {memory}"
        if torch.version.hip or has_kernels(capability, kernels):
            yield ok(message)
            continue
        build = cuda_build(driver.cuda_version if driver else None, [capability])
        remedy = UPDATE_DRIVER if build is None else install_torch(build)
        if build == installed_build():
            others = ",".join(str(other) for other in range(count) if other != index)
            remedy = f"export CUDA_VISIBLE_DEVICES={others}   # no build has kernels for this GPU: train without it"
        message += f": torch {torch.__version__} has no kernels for it, only for {' '.join(kernels)}"
        yield problem(message, remedy)


def _no_gpu(fault: str | None) -> Finding:
    if torch.backends.mps.is_available():
        return ok("mps: the GPU of this Mac")
    if fault == "no package":
        message = "nvidia-ml-py is missing, so the driver could not be asked for its GPUs"
        return warning(message, f"{pip()} install nvidia-ml-py")
    if fault not in (None, "no driver"):
        updated = "mismatch" in fault
        how = "was updated while it was loaded" if updated else "does not answer"
        return problem(f"the NVIDIA driver {how}: {fault}", "sudo reboot" if updated else UPDATE_DRIVER)
    if nvidia_card():
        message = "an NVIDIA card is plugged in, but no driver answers (was this container started without --gpus all?)"
        return warning(f"{message}; training runs on the CPU", UPDATE_DRIVER)
    if torch.version.cuda is None:
        return ok("no NVIDIA GPU: training runs on the CPU")
    message = f"no NVIDIA driver: torch {torch.__version__}, built for CUDA {torch.version.cuda}, trains on the CPU"
    return warning(f"{message}, as it should on a machine without a GPU")


def nvidia_card() -> bool:
    """Return whether an NVIDIA display device is on the PCI bus, with a driver or without (Linux only)."""
    for device in Path("/sys/bus/pci/devices").glob("*"):
        with suppress(OSError):
            if (device / "vendor").read_text() == "0x10de\n" and (device / "class").read_text().startswith("0x03"):
                return True
    return False


def _why_no_cuda() -> str:
    try:
        torch.cuda.init()
    except RuntimeError as error:
        return first_line(error)
    return "torch gives no reason"
