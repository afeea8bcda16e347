"""Builds of torch: the one installed, the GPUs that a build runs on, the build that suits a driver."""

import re
from collections.abc import Iterable, Iterator, Sequence

from pipelines.checks.findings import Finding, ok, warning
from pipelines.checks.installation import pip


def check_torch_build() -> Iterator[Finding]:
    """Check that torch was built for the GPUs of this machine."""
    import torch

    if torch.version.cuda:
        yield ok(f"torch {torch.__version__}, built for CUDA {torch.version.cuda}")
        if torch.cuda.is_available():
            version = torch.backends.cudnn.version()
            if version is None:
                yield warning("no cuDNN: convolutions and LSTMs are slow", install_torch(installed_build()))
            else:
                yield ok(f"cuDNN {version}")
    elif torch.version.hip:
        yield ok(f"torch {torch.__version__}, built for ROCm {torch.version.hip}")
    else:
        yield ok(f"torch {torch.__version__}, a build without CUDA")


def has_kernels(capability: tuple[int, int], arch_list: Iterable[str]) -> bool:
    """Return whether code built for `arch_list` (as from `torch.cuda.get_arch_list()`) runs on that capability.

    sm_XY is machine code: it runs on the same major version, minor Y or later. compute_XY is PTX, compiled by the
    driver for anything from XY on. A suffix narrows both: `a` to exactly XY, `f` to the same major version.
    Source: CUDA C++ Programming Guide, "Compute Capabilities" and "Binary Compatibility".
    """
    for match in filter(None, (re.fullmatch(r"(sm|compute)_(\d+)(\d)([af]?)", arch) for arch in arch_list)):
        kind, suffix = match[1], match[4]
        built = (int(match[2]), int(match[3]))
        if suffix == "a":
            runs = capability == built
        elif kind == "sm" or suffix == "f":
            runs = capability[0] == built[0] and capability >= built
        else:
            runs = capability >= built
        if runs:
            return True
    return False


def cuda_build(cuda_version: tuple[int, int] | None, capabilities: Sequence[tuple[int, int] | None]) -> str | None:
    """Return the PyTorch wheel that suits a driver and its GPUs; None if there is none, as for a driver too old.

    `cuda_version` is the newest CUDA that the driver runs. torch 2.11 to 2.14 exist for CUDA 12.6 (compute capability
    5.0 to 9.0, any driver of CUDA 12) and for CUDA 13.0 (7.5 and newer).
    Source: PyTorch's RELEASE.md, "PyTorch CUDA Support Matrix".
    """
    if cuda_version is None or cuda_version < (12, 0):
        return None
    known = [capability for capability in capabilities if capability is not None]
    if known and min(known) < (7, 5):
        return "cu126"
    if cuda_version >= (13, 0):
        return "cu130"
    if known and max(known) >= (10, 0):
        return None
    return "cu126"


def installed_build() -> str:
    """Return the wheel index of the installed torch, such as "cu126" or "cpu"."""
    import torch

    return "cu" + torch.version.cuda.replace(".", "") if torch.version.cuda else "cpu"


def install_torch(build: str) -> str:
    """Return the command that installs this version of torch as `build` and leaves other packages alone."""
    import torch

    # pip takes 2.13.0+cpu for 2.13.0 and would do nothing. Naming the build makes it replace torch and fetch what that
    # build needs; --force-reinstall alone would exchange numpy and the other pinned packages too.
    version = torch.__version__.partition("+")[0]
    anew = f"--force-reinstall --no-deps torch=={version}"
    named = f"torch=={version}+{build}" if build != installed_build() else anew
    return f"{pip()} install {named} --index-url https://download.pytorch.org/whl/{build}"
