"""Checks of Accelerate: the device, processes and precision it chooses, and its default config file."""

import os
from collections.abc import Iterator

from common.errors import UserError
from common.machine import launched_on_one_thread, physical_cores
from pipelines.checks import Finding, dotted, first_line, ok, problem, warning
from pipelines.checks.formed_processes import check_world
from pipelines.checks.installation import install_requirements
from pipelines.checks.pytorch import AMPERE


def check_accelerate() -> Iterator[Finding]:
    """Start Accelerate under the command that started this program, and check what it chose."""
    try:
        import accelerate
        import torch

        accelerator = accelerate.Accelerator()
    except ImportError as error:
        yield problem(f"Accelerate cannot be imported: {error}", install_requirements())
        return
    except (ValueError, RuntimeError) as error:  # a precision that the device lacks, an environment that contradicts
        yield problem(f"Accelerate does not start: {first_line(error)}", "accelerate config")
        return
    precision, processes = accelerator.mixed_precision, accelerator.num_processes
    number = f"{processes} process{'es' * (processes != 1)}"
    chosen = f"Accelerate {accelerate.__version__}: device {accelerator.device}, {number}, mixed precision {precision}"
    on_cpu = accelerator.device.type == "cpu"
    if on_cpu and torch.cuda.is_available():
        use_cpu = os.environ.get("ACCELERATE_USE_CPU")
        yield warning(f"{chosen}: the GPU is not used (ACCELERATE_USE_CPU={use_cpu})", "unset ACCELERATE_USE_CPU")
    elif on_cpu and precision == "fp16":
        yield warning(f"{chosen}: Accelerate ignores fp16 on a CPU and computes in fp32", "accelerate config")
    else:
        yield ok(chosen)
    if on_cpu:
        yield from check_threads(processes)
    try:
        check_world(processes)
    except UserError as error:
        message, _, commands = str(error).partition("\n")
        yield problem(message, commands)
    accelerator.end_training()
    yield from check_accelerate_config()


def check_threads(processes: int) -> Iterator[Finding]:
    """Compare the threads of each process with its share of the cores."""
    import torch

    threads, cores = torch.get_num_threads(), physical_cores()
    if threads < cores // processes and "OMP_NUM_THREADS" in os.environ and not launched_on_one_thread():
        yield warning(
            f"cpu: each process computes on {threads} of {cores} cores (OMP_NUM_THREADS={threads})",
            f"export OMP_NUM_THREADS={cores // processes}",
        )


def check_accelerate_config() -> Iterator[Finding]:
    """Check the file that `accelerate launch` follows when it is given no --config_file."""
    import torch
    import yaml
    from accelerate.commands.config.config_args import default_config_file, load_config_from_file

    if not os.path.isfile(default_config_file):
        missing = f"no default Accelerate config ({default_config_file})"
        yield ok(f"{missing}; accelerate_configs/ has some for --config_file")
        return
    rewrite = "accelerate config"
    try:
        config = load_config_from_file(None)
    except (ValueError, TypeError, AttributeError, yaml.YAMLError) as error:
        yield problem(f"{default_config_file}, the default Accelerate config: {first_line(error)}", rewrite)
        return
    kind = getattr(config.distributed_type, "value", config.distributed_type)
    message = (
        f"{default_config_file}, the default Accelerate config: {kind}, num_processes {config.num_processes}, "
        f"mixed_precision {config.mixed_precision}"
    )
    gpus = torch.cuda.device_count()
    on_gpu = config.mixed_precision == "bf16" and not config.use_cpu and torch.version.cuda
    emulated = on_gpu and any(torch.cuda.get_device_capability(index) < AMPERE for index in range(gpus))
    if kind in ("MULTI_GPU", "FSDP") and config.num_processes > gpus * getattr(config, "num_machines", 1):
        yield problem(f"{message}: more processes than GPUs ({gpus} per machine)", rewrite)
    elif kind in ("NO", "MULTI_CPU") and config.num_processes > 1 and not config.mpirun_config:
        yield problem(f"{message}: accelerate launch would start only one process", rewrite)
    elif emulated:
        yield warning(f"{message}: GPUs below compute capability {dotted(AMPERE)} emulate bf16; choose fp16", rewrite)
    else:
        yield ok(message)
