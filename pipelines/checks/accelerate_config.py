"""Checks of Accelerate: what it chooses, and that launched processes found each other."""

import os
import shlex
import sys
from collections.abc import Iterator, Sequence

from common.errors import UserError
from pipelines.checks import Finding, first_line, ok, problem, warning
from pipelines.checks.installation import install_requirements


def check_accelerate() -> Iterator[Finding]:
    """Start Accelerate under the command that started this program, and check what it chose."""
    try:
        import accelerate
        import torch

        accelerator = accelerate.Accelerator()
    except ImportError as error:
        yield problem(f"Accelerate cannot be imported: {error}", install_requirements())
        return
    except (ValueError, RuntimeError) as error:  # a precision that the device lacks, contradictory variables
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
    try:
        check_world(processes)
    except UserError as error:
        message, _, commands = str(error).partition("\n")
        yield problem(message, commands)
    accelerator.end_training()


def check_world(accelerator_num_processes: int) -> None:
    """Raise `UserError`, with the command that works, if fewer processes formed than were asked for."""
    formed, asked = accelerator_num_processes, int(os.environ.get("WORLD_SIZE", 1))
    if formed < asked:
        apart = "they would train separately and write to the same run folder"
        lost = f"{asked} processes were asked for and started, but each sees only {formed}"
        raise UserError(f"{lost}: {apart}.\n{_remedy(asked)}")
    if formed < (asked := asked_of_simple_launcher()):
        more = "it starts more only with --multi_gpu or a distributed_type that implies it"
        lost = f"accelerate launch was asked for {asked} processes, but started {formed}"
        raise UserError(f"{lost}: {more}.\n{_remedy(asked)}")


def asked_of_simple_launcher() -> int:
    """Return how many processes `accelerate launch` was asked for when it started only one; 1 for other launchers."""
    # That path leaves no count in the environment, only MASTER_ADDR where more than one was asked for; an ordinary
    # MASTER_ADDR, set by a cluster, looks the same. The launcher is still our ancestor, so its command line decides.
    if "MASTER_ADDR" not in os.environ or "ACCELERATE_MIXED_PRECISION" not in os.environ or "LOCAL_RANK" in os.environ:
        return 1
    import psutil
    from accelerate.commands.config.config_args import default_config_file, load_config_from_file
    from accelerate.commands.launch import launch_command_parser

    for ancestor in psutil.Process().parents():
        try:
            words = launch_words(ancestor.cmdline())
        except psutil.Error:  # another user's process, or one that has ended
            continue
        if words is None:
            continue
        arguments = launch_command_parser().parse_args(words)
        if arguments.num_processes is not None:
            return int(arguments.num_processes)
        if arguments.config_file is None and (arguments.cpu or not os.path.isfile(default_config_file)):
            return 1
        return int(load_config_from_file(arguments.config_file).num_processes)
    return 1


def launch_words(command_line: Sequence[str]) -> Sequence[str] | None:
    """Return the words after `accelerate launch` on a command line, or None if it starts another program."""
    for i, word in enumerate(command_line):
        name = os.path.basename(word).removesuffix(".exe")
        if name in ("accelerate-launch", "accelerate.commands.launch"):
            return command_line[i + 1 :]
        if name in ("accelerate", "accelerate.commands.accelerate_cli") and command_line[i + 1 : i + 2] == ["launch"]:
            return command_line[i + 2 :]
    return None


def _remedy(asked: int) -> str:
    import torch

    gpus = torch.cuda.device_count()
    on_cpu = os.environ.get("ACCELERATE_USE_CPU", "false").lower() in ("true", "1", "yes", "y", "t", "on")
    precision, script = os.environ.get("ACCELERATE_MIXED_PRECISION"), shlex.join(sys.argv)
    kept = precision == "bf16" or (precision and gpus)  # on a CPU Accelerate ignores fp16
    flags = f"--num_machines 1 --mixed_precision {precision if kept else 'no'} --dynamo_backend no {script}"
    many = f"accelerate launch --multi_gpu --num_processes {asked} {flags}"
    if "LOCAL_RANK" in os.environ and precision is None:
        many = f"torchrun --standalone --nproc_per_node {asked} {script}"
    if os.environ.get("WORLD_SIZE") != os.environ.get("LOCAL_WORLD_SIZE", os.environ.get("WORLD_SIZE")):
        lines = ["On the CPUs of several machines: put ACCELERATE_USE_CPU=true before the command on each of them."]
    elif gpus >= asked and not on_cpu:
        lines = [f"{asked} processes on {asked} GPUs:", f"  {many}"]
    else:
        lines = [f"{asked} processes on the CPU:", f"  ACCELERATE_USE_CPU=true {many}"]
    lines += ["One process:", f"  accelerate launch {'--cpu ' if on_cpu else ''}--num_processes 1 {flags}"]
    if gpus < asked and not on_cpu:
        lines += [f"torch sees {gpus} GPUs here. If that is wrong, this command says why:"]
        lines += ["  python pipelines/doctor.py"]
    return "\n".join(lines)
