"""Is this machine ready to train? Every check looks at one thing and says what it found and how to mend it.

The functions stand in the order in which `diagnose` calls them. torch and Accelerate are imported inside, so that a
machine on which they are missing or broken gets an answer too.
"""

from __future__ import annotations

import importlib.metadata
import os
import re
import shlex
import shutil
import sys
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from common.errors import UserError
from common.gpu import GIB, driver_fault, read_driver, read_gpus
from pipelines.doctor.launch import check_world

if TYPE_CHECKING:
    import torch

ROOT = Path(__file__).resolve().parents[2]
OLDEST_PYTHON, NEWEST_PYTHON = (3, 11), (3, 12)
AMPERE = (8, 0)  # the first compute capability with bf16 and tf32 in hardware
FREE_BYTES = 2 * 10**9  # a data folder, a few checkpoints and a report of the default runs

UPDATE_DRIVER = "sudo ubuntu-drivers install && sudo reboot   # other systems: https://www.nvidia.com/drivers"


@dataclass(frozen=True)
class Finding:
    """What a check found: `level` is "ok", "warning" or "problem"; a problem always has a command as its remedy."""

    level: str
    what: str
    remedy: str | None = None


def ok(what: str) -> Finding:
    return Finding("ok", what)


def warning(what: str, remedy: str | None = None) -> Finding:
    return Finding("warning", what, remedy)


def problem(what: str, remedy: str) -> Finding:
    return Finding("problem", what, remedy)


def diagnose() -> Iterator[Finding]:
    """All findings, each as soon as it is known."""
    for check in (check_python, check_packages, check_disk):
        yield from check()
    unusable = list(check_torch_import())
    yield from unusable
    if unusable:
        return
    for check in (check_torch_build, check_gpus, check_precision, check_training_step, check_accelerate):
        yield from check()


def check_python(found: tuple[int, int] = sys.version_info[:2]) -> Iterator[Finding]:
    text = f"Python {_dotted(found)} ({sys.executable})"
    supported = f"{_dotted(OLDEST_PYTHON)} to {_dotted(NEWEST_PYTHON)} are supported"
    new_environment = "python3.12 -m venv .venv && .venv/bin/python -m pip install -r requirements.txt"
    if found < OLDEST_PYTHON:
        yield problem(f"{text}: too old; {supported}", new_environment)
    elif found > NEWEST_PYTHON:
        yield warning(f"{text}: newer than what this is tested with; {supported}", new_environment)
    else:
        yield ok(text)


def check_packages() -> Iterator[Finding]:
    """The pins of requirements.txt against what is installed; another version may work, a missing package does not."""
    text = (ROOT / "requirements.txt").read_text()
    pins = re.findall(r"^([A-Za-z0-9._-]+)(?:\[[^]]*\])?==([^\s;#]+)", text, flags=re.MULTILINE)
    missing, differing = [], []
    for name, pinned in pins:
        try:
            installed = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            missing.append(f"{name}=={pinned}")
            continue
        if installed.partition("+")[0] != pinned:  # 2.13.0+cpu is 2.13.0
            differing.append(f"{name} {installed} (pinned: {pinned})")
    if missing:
        yield problem(f"not installed: {', '.join(missing)}", _install_requirements())
    if differing:
        yield warning(f"other versions than in requirements.txt: {', '.join(differing)}", _install_requirements())
    if not missing and not differing:
        yield ok(f"{len(pins)} packages at the versions of requirements.txt")


def check_disk() -> Iterator[Finding]:
    free = shutil.disk_usage(ROOT).free
    text = f"{free / 1e9:.1f} GB free for data/ and runs/ ({ROOT})"
    if free < FREE_BYTES:
        show_largest = f"cd {shlex.quote(str(ROOT))} && du -hd 2 data runs | sort -h | tail   # then rm -r what can go"
        yield problem(f"{text}; at least {FREE_BYTES / 1e9:.0f} GB are needed", show_largest)
    else:
        yield ok(text)


def check_torch_import() -> Iterator[Finding]:
    """Nothing if torch can be used; broken shared libraries show here as OSError."""
    try:
        import torch  # noqa: F401
    except ImportError as error:
        yield problem(f"torch cannot be imported: {error}", _install_requirements())
    except OSError as error:
        yield problem(
            f"torch is broken: {error}",
            f"{_pip()} install --force-reinstall --no-deps torch=={importlib.metadata.version('torch')}",
        )


def check_torch_build() -> Iterator[Finding]:
    import torch

    if torch.version.cuda:
        yield ok(f"torch {torch.__version__}, built for CUDA {torch.version.cuda}")
        if torch.cuda.is_available():
            version = torch.backends.cudnn.version()
            if version is None:
                yield warning("no cuDNN: convolutions and LSTMs are slow", _install_torch(_this_build()))
            else:
                yield ok(f"cuDNN {version}")
    elif torch.version.hip:
        yield ok(f"torch {torch.__version__}, built for ROCm {torch.version.hip}")
    else:
        yield ok(f"torch {torch.__version__}, a build without CUDA")


def check_gpus() -> Iterator[Finding]:
    """What the driver sees against what torch sees. The worst case trains without an error, fifty times slower."""
    import torch

    with warnings.catch_warnings():  # torch says why there is no CUDA in a warning; _why_no_cuda says it here
        warnings.simplefilter("ignore")
        available = torch.cuda.is_available()
    if available:
        yield from _visible_gpus()
        return
    driver, gpus = read_driver(), read_gpus()
    if not gpus:
        yield from _no_gpu(driver_fault())
        return

    names = ", ".join(gpu.name or "a GPU without a name" for gpu in gpus)
    cuda = "an unknown CUDA" if driver.cuda_version is None else f"CUDA {_dotted(driver.cuda_version)}"
    seen = f"the driver (version {driver.version}, up to {cuda}) sees {names}"
    build = cuda_build(driver.cuda_version, driver.capabilities)
    hidden = os.environ.get("CUDA_VISIBLE_DEVICES")
    if not torch.version.cuda:
        kind = "a ROCm build" if torch.version.hip else "a CPU-only build"
        what = f"{seen}, but torch {torch.__version__} is {kind}: training would ignore the GPU"
        if build is None:
            yield problem(f"{what}; no CUDA build runs on this driver, it must be updated first", UPDATE_DRIVER)
        else:
            yield problem(what, _install_torch(build))
    elif hidden is not None and _hides_all(hidden, len(gpus)):
        yield warning(
            f"{seen}, but CUDA_VISIBLE_DEVICES={hidden!r} hides it from torch: training runs on the CPU",
            "unset CUDA_VISIBLE_DEVICES",
        )
    elif driver.cuda_version is not None and driver.cuda_version[0] < int(torch.version.cuda.split(".")[0]):
        yield problem(
            f"{seen}: too old for torch {torch.__version__}, built for CUDA {torch.version.cuda}",
            UPDATE_DRIVER if build is None else _install_torch(build),
        )
    else:
        yield problem(f"{seen}, but torch cannot use it: {_why_no_cuda()}", _install_torch(build or _this_build()))


def _hides_all(visible: str, num_gpus: int) -> bool:
    """Whether CUDA_VISIBLE_DEVICES leaves no GPU; CUDA stops reading at the first entry that names none."""
    first = visible.partition(",")[0].strip()
    return not first.startswith(("GPU-", "MIG-")) and not (first.isdigit() and int(first) < num_gpus)


def _visible_gpus() -> Iterator[Finding]:
    import torch

    count, all_gpus = torch.cuda.device_count(), len(read_gpus())
    if count < all_gpus:
        shown = os.environ.get("CUDA_VISIBLE_DEVICES")
        yield ok(f"torch sees {count} of the driver's {all_gpus} GPUs (CUDA_VISIBLE_DEVICES={shown})")
    kernels = torch.cuda.get_arch_list()
    for index in range(count):
        properties = torch.cuda.get_device_properties(index)
        capability = (properties.major, properties.minor)
        what = (
            f"cuda:{index}: {properties.name}, compute capability {_dotted(capability)}, "
            f"{properties.total_memory / GIB:.1f} GiB"
        )
        if torch.version.hip or has_kernels(capability, kernels):
            yield ok(what)
            continue
        driver = read_driver()
        build = cuda_build(driver.cuda_version if driver else None, [capability])
        if build is None:
            remedy = UPDATE_DRIVER
        elif build == _this_build():
            others = ",".join(str(other) for other in range(count) if other != index)
            remedy = f"export CUDA_VISIBLE_DEVICES={others}   # no build has kernels for this GPU: train without it"
        else:
            remedy = _install_torch(build)
        yield problem(f"{what}: torch {torch.__version__} has no kernels for it, only {' '.join(kernels)}", remedy)


def _no_gpu(fault: str | None) -> Iterator[Finding]:
    import torch

    if torch.backends.mps.is_available():
        yield ok("mps: the GPU of this Mac")
    elif fault in (None, "no driver") and _nvidia_card():
        yield warning(
            "an NVIDIA card is plugged in, but no driver answers (in a container: it was started without --gpus all); "
            "training runs on the CPU",
            UPDATE_DRIVER,
        )
    elif fault in (None, "no driver") and torch.version.cuda:
        yield warning(
            f"no NVIDIA driver: torch {torch.__version__}, built for CUDA {torch.version.cuda}, trains on the CPU, "
            "which is right on a machine without a GPU"
        )
    elif fault in (None, "no driver"):
        yield ok("no NVIDIA GPU: training runs on the CPU")
    elif fault == "no package":
        yield warning("nvidia-ml-py is missing, so the driver was not asked for GPUs", f"{_pip()} install nvidia-ml-py")
    elif "mismatch" in fault:
        yield problem(f"the NVIDIA driver was updated while it was loaded: {fault}", "sudo reboot")
    else:
        yield problem(f"the NVIDIA driver does not answer: {fault}", UPDATE_DRIVER)


def _nvidia_card() -> bool:
    """Whether a display device of NVIDIA's is on the PCI bus, driver or not (Linux only)."""
    for device in Path("/sys/bus/pci/devices").glob("*"):
        try:
            vendor, kind = (device / "vendor").read_text(), (device / "class").read_text()
        except OSError:
            continue
        if vendor.strip() == "0x10de" and kind.startswith("0x03"):
            return True
    return False


def _why_no_cuda() -> str:
    import torch

    try:
        torch.cuda.init()
    except RuntimeError as error:
        return _first_line(error)
    return "torch gives no reason"


def has_kernels(capability: tuple[int, int], arch_list: Iterable[str]) -> bool:
    """Whether code built for `arch_list` (as from `torch.cuda.get_arch_list()`) runs on a GPU of that capability.

    sm_XY is machine code: it runs on the same major version, minor Y or later. compute_XY is PTX, compiled by the
    driver for anything from XY on. A suffix narrows both: `a` to exactly XY, `f` to the same major version.
    Source: CUDA C++ Programming Guide, "Compute Capabilities" and "Binary Compatibility".
    """
    for arch in arch_list:
        match = re.fullmatch(r"(sm|compute)_(\d+)(\d)([af]?)", arch)
        if match is None:
            continue
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
    """The PyTorch wheel that suits a driver (newest CUDA it runs) and its GPUs; None if the driver is too old.

    torch 2.11 to 2.14 exist for CUDA 12.6 (compute capability 5.0 to 9.0, any driver of CUDA 12) and for CUDA 13.0
    (7.5 and newer). Source: PyTorch's RELEASE.md, "PyTorch CUDA Support Matrix".
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


def check_precision() -> Iterator[Finding]:
    """The number formats in which a matrix product runs; `mixed_precision` of an Accelerate config may name these."""
    import torch

    for device in _devices():
        formats = ["fp32"]
        nvidia = device.type == "cuda" and torch.version.cuda is not None
        if nvidia and torch.cuda.get_device_capability(device) >= AMPERE:
            formats.append("tf32")
        for name, dtype in (("bf16", torch.bfloat16), ("fp16", torch.float16)):
            if _computes(device, dtype):
                formats.append(name)
        emulated = nvidia and "tf32" not in formats and "bf16" in formats
        advice = " (emulated and slow; fp16 is fast)" if emulated else ""
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
    """One real update on every device."""
    import torch

    for device in _devices():
        fault, remedy = None, _install_torch(_this_build())
        try:
            fault = _training_step(device)
        except torch.OutOfMemoryError:
            fault, remedy = "no memory is left for even a small model", "nvidia-smi   # shows who holds it"
        except RuntimeError as error:  # no kernels, a device in exclusive use, a broken library
            fault = _first_line(error)
        if fault is None:
            yield ok(f"{device}: forward, backward and optimizer step")
        else:
            yield problem(f"{device}: a training step failed: {fault}", remedy)


def _training_step(device: torch.device) -> str | None:
    """Train a small convolutional net for one step; what is wrong with the outcome, or None."""
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
        return "the optimizer left weights as they were"
    return None


def check_accelerate() -> Iterator[Finding]:
    """Device, processes and precision as Accelerate sees them under the command that started this."""
    import torch

    try:
        import accelerate

        accelerator = accelerate.Accelerator()
    except ImportError as error:
        yield problem(f"Accelerate cannot be imported: {error}", _install_requirements())
        return
    except (ValueError, RuntimeError) as error:  # a precision that the device lacks, an environment that contradicts
        yield problem(f"Accelerate does not start: {_first_line(error)}", "accelerate config")
        return
    precision, processes = accelerator.mixed_precision, accelerator.num_processes
    what = (
        f"Accelerate {accelerate.__version__}: device {accelerator.device}, "
        f"{processes} {'process' if processes == 1 else 'processes'}, mixed precision {precision}"
    )
    if accelerator.device.type == "cpu" and torch.cuda.is_available():
        use_cpu = os.environ.get("ACCELERATE_USE_CPU")
        yield warning(f"{what}: the GPU is not used (ACCELERATE_USE_CPU={use_cpu})", "unset ACCELERATE_USE_CPU")
    elif accelerator.device.type == "cpu" and precision == "fp16":
        yield warning(f"{what}: Accelerate ignores fp16 on a CPU and computes in fp32", "accelerate config")
    else:
        yield ok(what)
    threads, cores = torch.get_num_threads(), _cores()
    if accelerator.device.type == "cpu" and threads < cores // processes and "OMP_NUM_THREADS" in os.environ:
        # accelerate launch sets it to 1 unless its config says use_cpu.
        yield warning(
            f"cpu: each process computes on {threads} of {cores} cores (OMP_NUM_THREADS={threads})",
            f"export OMP_NUM_THREADS={cores // processes}",
        )
    try:
        check_world(processes)
    except UserError as error:
        first, _, commands = str(error).partition("\n")
        yield problem(first, commands)
    accelerator.end_training()
    yield from check_accelerate_config()


def check_accelerate_config() -> Iterator[Finding]:
    """The file that `accelerate launch` follows when it is given no --config_file."""
    import torch
    import yaml
    from accelerate.commands.config.config_args import default_config_file, load_config_from_file

    if not os.path.isfile(default_config_file):
        what = f"no default Accelerate config ({default_config_file}); accelerate_configs/ has some for --config_file"
        if len(_devices()) == 1 and _cores() > 1:
            what += "; on this CPU give it cpu.yaml, as accelerate launch alone computes on one core"
        yield ok(what)
        return
    rewrite = "accelerate config"
    try:
        config = load_config_from_file(None)
    except (ValueError, TypeError, AttributeError, yaml.YAMLError) as error:
        yield problem(f"{default_config_file}, the default Accelerate config: {_first_line(error)}", rewrite)
        return
    kind = getattr(config.distributed_type, "value", config.distributed_type)
    what = (
        f"{default_config_file}, the default Accelerate config: {kind}, num_processes {config.num_processes}, "
        f"mixed_precision {config.mixed_precision}"
    )
    gpus = torch.cuda.device_count()
    machines = getattr(config, "num_machines", 1)
    if kind in ("MULTI_GPU", "FSDP") and config.num_processes > gpus * machines:
        yield problem(f"{what}: more processes than GPUs ({gpus} per machine)", rewrite)
    elif kind in ("NO", "MULTI_CPU") and config.num_processes > 1 and not config.mpirun_config:
        yield problem(f"{what}: accelerate launch would start one process", rewrite)
    elif config.mixed_precision == "bf16" and not config.use_cpu and _has_gpu_before(AMPERE):
        yield warning(f"{what}: before compute capability {_dotted(AMPERE)} a GPU emulates bf16; choose fp16", rewrite)
    else:
        yield ok(what)


def _devices() -> list[torch.device]:
    """The CPU and every GPU that torch can use."""
    import torch

    devices = [torch.device("cpu")]
    if torch.cuda.is_available():
        devices += [torch.device("cuda", index) for index in range(torch.cuda.device_count())]
    if torch.backends.mps.is_available():
        devices.append(torch.device("mps"))
    return devices


def _cores() -> int:
    """CPU cores that this process may use; two hardware threads of one core count once, as they compute as one."""
    import psutil

    cores = psutil.cpu_count(logical=False) or psutil.cpu_count() or 1
    return min(cores, len(os.sched_getaffinity(0))) if hasattr(os, "sched_getaffinity") else cores


def _has_gpu_before(capability: tuple[int, int]) -> bool:
    import torch

    if not torch.version.cuda:
        return False
    return any(torch.cuda.get_device_capability(index) < capability for index in range(torch.cuda.device_count()))


def _this_build() -> str:
    """The wheel index of the torch that runs: cu126, cpu."""
    import torch

    return "cu" + torch.version.cuda.replace(".", "") if torch.version.cuda else "cpu"


def _install_torch(build: str) -> str:
    """The command that puts this version of torch in as `build`, and nothing else."""
    import torch

    # pip takes 2.13.0+cpu for 2.13.0 and would do nothing. Naming the build makes it replace torch and fetch what that
    # build needs; --force-reinstall alone would exchange numpy and the other pinned packages too.
    version = torch.__version__.partition("+")[0]
    what = f"torch=={version}+{build}" if build != _this_build() else f"--force-reinstall --no-deps torch=={version}"
    return f"{_pip()} install {what} --index-url https://download.pytorch.org/whl/{build}"


def _install_requirements() -> str:
    return f"{_pip()} install -r {shlex.quote(_shown(ROOT / 'requirements.txt'))}"


def _pip() -> str:
    """pip of the Python that runs this, whether its environment is activated or not."""
    found = shutil.which("python")
    activated = found is not None and Path(found).parent == Path(sys.executable).parent
    return f"{'python' if activated else shlex.quote(_shown(Path(sys.executable)))} -m pip"


def _shown(path: Path) -> str:
    """`path` as one would type it here."""
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)


def _dotted(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]}"


def _first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0]
