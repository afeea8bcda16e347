"""Checks of what a device computes: number formats, and one real training step."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pipelines.checks.builds import install_torch, installed_build
from pipelines.checks.findings import Finding, first_line, ok, problem

if TYPE_CHECKING:
    import torch

AMPERE = (8, 0)  # the first compute capability with bf16 and tf32 in hardware


def check_precision() -> Iterator[Finding]:
    """Try a matrix product in each number format that `mixed_precision` of an Accelerate config may name."""
    import torch

    for device in devices():
        formats = ["fp32"]
        nvidia = device.type == "cuda" and torch.version.cuda is not None
        if nvidia and torch.cuda.get_device_capability(device) >= AMPERE:
            formats.append("tf32")
        for name, dtype in (("bf16", torch.bfloat16), ("fp16", torch.float16)):
            if _computes(device, dtype):
                formats.append(name)
        emulated = nvidia and "tf32" not in formats and "bf16" in formats
        advice = " (bf16 is emulated and slow; fp16 is fast)" if emulated else ""
        if device.type == "cpu":
            advice = "; as mixed_precision only bf16 has an effect"
        yield ok(f"{device}: computes in {', '.join(formats)}{advice}")


def _computes(device: torch.device, dtype: torch.dtype) -> bool:
    import torch

    try:
        ones = torch.ones(8, 8, device=device, dtype=dtype)
        return bool((ones @ ones == 8).all())
    except RuntimeError:
        return False


def check_training_step() -> Iterator[Finding]:
    """Make one real update on every device."""
    import torch

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
    import torch
    from torch import nn

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
    import torch

    found = [torch.device("cpu")]
    if torch.cuda.is_available():
        found += [torch.device("cuda", index) for index in range(torch.cuda.device_count())]
    if torch.backends.mps.is_available():
        found.append(torch.device("mps"))
    return found
