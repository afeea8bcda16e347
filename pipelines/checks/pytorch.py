"""Checks of torch: its build, the number formats that devices compute in, and one real training step."""

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress

import torch
from torch import nn

from pipelines.checks import AMPERE, Finding, first_line, ok, problem, warning
from pipelines.checks.installation import pip


def check_torch_build() -> Iterator[Finding]:
    """Check that torch was built for the GPUs of this machine."""
    cuda, rocm = torch.version.cuda, torch.version.hip
    kind = f"built for CUDA {cuda}" if cuda else f"built for ROCm {rocm}" if rocm else "a build without CUDA"
    yield ok(f"torch {torch.__version__}, {kind}")
    if cuda and torch.cuda.is_available():
        version = torch.backends.cudnn.version()
        slow = warning("no cuDNN: convolutions and LSTMs are slow", install_torch(installed_build()))
        yield slow if version is None else ok(f"cuDNN {version}")


def check_precision() -> Iterator[Finding]:
    """Try a matrix product in each number format that `mixed_precision` of an Accelerate config may name."""
    for device in devices():
        formats = ["fp32"]
        nvidia = device.type == "cuda" and torch.version.cuda is not None
        if nvidia and torch.cuda.get_device_capability(device) >= AMPERE:
            formats.append("tf32")
        for name, dtype in (("bf16", torch.bfloat16), ("fp16", torch.float16)):
            with suppress(RuntimeError):
                ones = torch.ones(8, 8, device=device, dtype=dtype)
                formats += [name] * bool((ones @ ones == 8).all())
        emulated = nvidia and "tf32" not in formats and "bf16" in formats
        advice = " (bf16 is emulated and slow; fp16 is fast)" if emulated else ""
        if device.type == "cpu":
            advice = "; as mixed_precision only bf16 has an effect"
        yield ok(f"{device}: computes in {', '.join(formats)}{advice}")


def check_training_step() -> Iterator[Finding]:
    """Make one real update on every device."""
    for device in devices():
        fault, remedy = None, install_torch(installed_build())
        try:
            fault = training_step(device)
        except torch.OutOfMemoryError:
            fault, remedy = "no memory is left for even a small model", "nvidia-smi   # shows which processes hold it"
        except RuntimeError as error:  # no kernels, a device in exclusive use, a broken library
            fault = first_line(error)
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


def has_kernels(capability: tuple[int, int], arch_list: Iterable[str]) -> bool:
    """Return whether code built for `arch_list` (as from `torch.cuda.get_arch_list()`) runs on that capability.

    sm_XY runs on the same major version, minor Y or later, compute_XY on anything from XY on; suffix `a` means exactly
    XY, `f` the same major version (CUDA C++ Programming Guide, "Compute Capabilities" and "Binary Compatibility").
    """
    for match in filter(None, (re.fullmatch(r"(sm|compute)_(\d+)(\d)([af]?)", arch) for arch in arch_list)):
        built = int(match[2]), int(match[3])
        same_major = (match[1] == "compute" and match[4] != "f") or capability[0] == built[0]
        if capability == built or (match[4] != "a" and capability > built and same_major):
            return True
    return False


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
