"""Checks of torch: its build, GPUs that the driver sees against those that torch sees, and one real training step."""

import os
import warnings
from collections.abc import Iterator, Sequence

import torch
from torch import nn

from common.gpu import GIB, driver_fault, read_driver
from pipelines.checks import Finding, dotted, first_line, ok, problem, warning
from pipelines.checks.installation import pip

UPDATE_DRIVER = "sudo ubuntu-drivers install && sudo reboot   # other systems: https://www.nvidia.com/drivers"


def check_torch_build() -> Iterator[Finding]:
    """Say which build of torch this is."""
    cuda, rocm = torch.version.cuda, torch.version.hip
    kind = f"built for CUDA {cuda}" if cuda else f"built for ROCm {rocm}" if rocm else "a build without CUDA"
    yield ok(f"torch {torch.__version__}, {kind}")


def check_gpus() -> Iterator[Finding]:
    """Compare the driver's GPUs with torch's. The worst mismatch trains without an error, fifty times slower."""
    with warnings.catch_warnings():  # torch warns why there is no CUDA; _why_no_cuda puts that into the finding
        warnings.simplefilter("ignore")
        available = torch.cuda.is_available()
    if available:
        yield from _visible_gpus()
        return
    if (driver := read_driver()) is None or not driver.names:
        yield _no_gpu(driver_fault())
        return
    names = ", ".join(name or "an unnamed GPU" for name in driver.names)
    cuda = "CUDA version unknown" if driver.cuda_version is None else f"up to CUDA {dotted(driver.cuda_version)}"
    seen = f"the driver (version {driver.version}, {cuda}) sees {names}"
    build = cuda_build(driver.cuda_version, driver.capabilities)
    remedy = UPDATE_DRIVER if build is None else install_torch(build)
    hidden = os.environ.get("CUDA_VISIBLE_DEVICES")
    if not torch.version.cuda:
        kind = "a ROCm build" if torch.version.hip else "a CPU-only build"
        message = f"{seen}, but torch {torch.__version__} is {kind}: training would ignore the GPU"
        first = "; no CUDA build runs on this driver, which must be updated first" if build is None else ""
        yield problem(message + first, remedy)
    elif hidden is not None and not torch.cuda.device_count():
        yield warning(
            f"{seen}, but CUDA_VISIBLE_DEVICES={hidden!r} hides every GPU from torch: training runs on the CPU",
            "unset CUDA_VISIBLE_DEVICES",
        )
    elif driver.cuda_version is not None and driver.cuda_version[0] < int(torch.version.cuda.split(".")[0]):
        old = f"is too old for torch {torch.__version__}, built for CUDA {torch.version.cuda}"
        yield problem(f"{seen}, but {old}", remedy)
    else:
        yield problem(f"{seen}, but torch cannot use it: {_why_no_cuda()}", install_torch(build or installed_build()))


def _visible_gpus() -> Iterator[Finding]:
    count, driver = torch.cuda.device_count(), read_driver()
    if driver and count < len(driver.names):
        shown = os.environ.get("CUDA_VISIBLE_DEVICES")
        yield ok(f"torch sees {count} of the driver's {len(driver.names)} GPUs (CUDA_VISIBLE_DEVICES={shown})")
    for index in range(count):
        properties = torch.cuda.get_device_properties(index)
        capability = dotted((properties.major, properties.minor))
        memory = f"{properties.total_memory / GIB:.1f} GiB"
        yield ok(f"cuda:{index}: {properties.name}, compute capability {capability}, {memory}")


def _no_gpu(fault: str | None) -> Finding:
    if torch.backends.mps.is_available():
        return ok("mps: the GPU of this Mac")
    if fault not in (None, "no driver", "no package"):  # `check_packages` reports the latter
        updated = "mismatch" in fault
        how = "was updated while it was loaded" if updated else "does not answer"
        return problem(f"the NVIDIA driver {how}: {fault}", "sudo reboot" if updated else UPDATE_DRIVER)
    if torch.version.cuda is None:
        return ok("no NVIDIA GPU: training runs on the CPU")
    known = "no NVIDIA driver known of without nvidia-ml-py" if fault == "no package" else "no NVIDIA driver"
    message = f"{known}: torch {torch.__version__}, built for CUDA {torch.version.cuda}, trains on the CPU"
    return warning(f"{message}, as it should on a machine without a GPU (a container sees GPUs with --gpus all)")


def _why_no_cuda() -> str:
    try:
        torch.cuda.init()
    except RuntimeError as error:
        return first_line(error)
    return "torch gives no reason"


def check_training_step() -> Iterator[Finding]:
    """Make one real update on every device."""
    for device in devices():
        fault, remedy = None, install_torch(installed_build())
        try:
            fault = training_step(device)
        except torch.OutOfMemoryError:
            fault, remedy = "no memory is left for even a small model", "nvidia-smi   # shows which processes hold it"
        except RuntimeError as error:  # no kernels, a device in exclusive use, a broken library
            fault, driver = first_line(error), read_driver()
            if driver and device.type == "cuda" and "no kernel image" in fault:
                build = cuda_build(driver.cuda_version, [torch.cuda.get_device_capability(device)])
                remedy = install_torch(build or installed_build())
        if fault is None:
            yield ok(f"{device}: forward, backward and optimizer step")
        else:
            yield problem(f"{device}: a training step failed: {fault}", remedy)


def training_step(device: torch.device) -> str | None:
    """Train a small convolutional net for one step; return what is wrong with the outcome, or None."""
    model = nn.Sequential(nn.Conv1d(4, 8, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(64, 1)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    before = [parameter.detach().clone() for parameter in model.parameters()]
    loss = model(torch.rand(16, 4, 8, device=device)).square().mean()
    loss.backward()
    optimizer.step()
    if not bool(loss.isfinite()):
        return f"the loss is {loss.item()}"
    if any(torch.equal(old, new) for old, new in zip(before, model.parameters(), strict=True)):
        return "the optimizer left weights unchanged"
    return None


def devices() -> list[torch.device]:
    """Return the CPU and every GPU that torch can use."""
    gpus = range(torch.cuda.device_count() if torch.cuda.is_available() else 0)
    mac = [torch.device("mps")] if torch.backends.mps.is_available() else []
    return [torch.device("cpu"), *(torch.device("cuda", index) for index in gpus), *mac]


def cuda_build(cuda_version: tuple[int, int] | None, capabilities: Sequence[tuple[int, int] | None]) -> str | None:
    """Return the wheel for the driver's `cuda_version` and GPUs (PyTorch's RELEASE.md, CUDA Support Matrix) or None."""
    # torch 2.11 to 2.14: CUDA 12.6 for capabilities 5.0 to 9.0 and any driver of CUDA 12, CUDA 13.0 for 7.5 and newer.
    if cuda_version is None or cuda_version < (12, 0):
        return None
    known = [capability for capability in capabilities if capability is not None]
    if cuda_version >= (13, 0) and min(known, default=(7, 5)) >= (7, 5):
        return "cu130"
    return "cu126" if min(known, default=(7, 5)) < (7, 5) or max(known, default=(0, 0)) < (10, 0) else None


def installed_build() -> str:
    """Return the wheel index of the installed torch, such as "cu126" or "cpu"."""
    return "cu" + torch.version.cuda.replace(".", "") if torch.version.cuda else "cpu"


def install_torch(build: str) -> str:
    """Return the command that installs this version of torch as `build` and leaves other packages alone."""
    # pip takes 2.13.0+cpu for 2.13.0 and would do nothing. Naming the build makes it replace torch and fetch what that
    # build needs; --force-reinstall alone would exchange numpy and the other pinned packages too.
    version = torch.__version__.partition("+")[0]
    anew = f"--force-reinstall --no-deps torch=={version}"
    named = f"torch=={version}+{build}" if build != installed_build() else anew
    return f"{pip()} install {named} --index-url https://download.pytorch.org/whl/{build}"
