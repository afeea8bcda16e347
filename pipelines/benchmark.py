"""Time training steps of a workload on this machine: a table, then a JSON line.

    python pipelines/benchmark.py --workload cvrp data.labels=2000
    python pipelines/benchmark.py --workload bep --compare data.loader=stream
    python pipelines/benchmark.py --workload crypto --name mine/BTCUSDT
    python pipelines/benchmark.py --workload cvrp --steps 50 data.customers=50 \\
        data.labels=2000
    accelerate launch --mixed_precision bf16 \\
        pipelines/benchmark.py --workload cvrp data.labels=2000

The config's data are prepared first, as in training; to time routes,
data.labels=2000 are enough (training imitates more, solved for minutes).
--name takes the config of an existing run. With a GPU, a second process then
times the same steps on the CPU, within --cpu-seconds.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

sys.path[0] = str(Path(__file__).resolve().parents[1])  # replaced: names in pipelines/ would shadow libraries

from common.config import build
from common.errors import UserError
from pipelines import arguments, exits, loading, run_config, workloads
from pipelines.engine.config import BaseConfig
from pipelines.engine.workload import Workload
from pipelines.report.markup import shown
from pipelines.run.folder import Run


def main() -> None:
    """Run the command."""
    args = arguments.parse(__doc__, timed_config, steps=20)
    if args.steps < 1:
        raise UserError(f"--steps {args.steps}: give 1 or more")
    workload = workloads.find(args.workload)
    run = run_config.run_of(args)
    config = run_config.decided(lambda: timed_config(args, workload, run))
    changed = {word: build(workload.config, config.model_dump(mode="json"), [word], word) for word in args.compare}
    import torch

    from pipelines.checks import throughput
    from pipelines.engine.training import make_accelerator

    accelerator = make_accelerator(config, run)

    def timed(config: BaseConfig) -> dict[str, Any]:
        folder, _ = loading.prepare_first(args, workload, config)
        config = next(iter(workload.expand(config, folder).values()), config)  # of many models, the first
        config.hardware.apply(accelerator.device, accelerator.print)
        torch.manual_seed(config.seed)
        task = workload.task(config, folder, accelerator.device)
        config.hardware.apply_to(task.model)
        return throughput.measure(task, config, accelerator, run, args.steps)

    result = timed(config)
    result |= {f"targets_per_s, {word}": timed(other)["targets_per_s"] for word, other in changed.items()}
    if not accelerator.is_main_process:
        return
    show(result)  # now: the CPU may take minutes, or run out of time
    alone = accelerator.device.type == "cuda" and accelerator.num_processes == 1
    if alone and args.cpu_seconds and (cpu := on_cpu(args.cpu_seconds)) is not None:
        show({**result, "cpu": cpu, "times_faster_than_cpu": result["examples_per_s"] / cpu["examples_per_s"]})


def timed_config(args: argparse.Namespace, workload: Workload, run: Run) -> BaseConfig:
    """Return the config of the run or the member that --name names, or a fresh one."""
    if args.name == "default":
        return run_config.fresh_config(args, workload)
    return run.config(workload.config, args.words)


def show(result: Mapping[str, object]) -> None:
    """Print figures as a table and as a JSON line."""
    for key, value in result.items():
        print(f"{key:36} {value if isinstance(value, dict) else shown(value)}")
    print(json.dumps(result), flush=True)


def on_cpu(seconds: float) -> dict[str, Any] | None:
    """Run this command on the CPU and return its result; None if `seconds` are not enough."""
    try:
        env = {**os.environ, "ACCELERATE_TORCH_DEVICE": "cpu", "ACCELERATE_MIXED_PRECISION": "no"}
        command = [sys.executable, *sys.argv]
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=True, timeout=seconds)
        return dict(json.loads(done.stdout.splitlines()[-1]))
    except subprocess.TimeoutExpired:
        print(f"not timed on the CPU: {seconds:g} s are not enough", file=sys.stderr)
    except subprocess.CalledProcessError as error:  # too little memory, say; keep the GPU's result
        print(f"not timed on the CPU, exit status {error.returncode}: {error.stderr[-1000:]}", file=sys.stderr)
    return None


if __name__ == "__main__":
    exits.run_main(main)
