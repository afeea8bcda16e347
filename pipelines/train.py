"""Train a workload's model into runs/<workload>/<name>/.

    accelerate launch pipelines/train.py --workload cvrp
    accelerate launch pipelines/train.py --workload cvrp --name dgt-50 \\
        model.kind=dgt data.customers=50
    accelerate launch --config_file accelerate_configs/ddp.yaml \\
        pipelines/train.py --workload cvrp --resume
    accelerate launch pipelines/train.py --workload crypto --only BTCUSDT
    accelerate launch pipelines/train.py --workload lmol --folds all

Exit status: 0 done; 2 a mistake you can fix, reported in a few lines; 128 + n
saved and stopped by signal n; 1 otherwise. `accelerate launch` turns all but 0
into 1, under a traceback of its own that -q (before the script) leaves out.
"""

import argparse
import functools
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parents[1])  # replaced: names in pipelines/ would shadow libraries

from common import workers
from common.errors import UserError
from pipelines import arguments, exits, loading, run_config, workloads
from pipelines.engine.config import BaseConfig
from pipelines.engine.workload import Workload
from pipelines.members import fanout, processes
from pipelines.run.folder import Run


def main() -> None:
    """Train the run that the command names."""
    args = arguments.parse(__doc__, run_config.training_config, resume=True)
    workload = workloads.find(args.workload)
    run = run_config.run_of(args)
    with run_config.held(args, workload, run) as config:
        train(args, workload, run, config)


def train(args: argparse.Namespace, workload: Workload, run: Run, config: BaseConfig) -> None:
    """Train the run, or the members of a run of many models."""
    exits.announce(f"training {run.workload} into {run.folder}")
    from pipelines.engine import training

    accelerator = training.make_accelerator(config, run)
    folder, manifest = loading.prepare_first(args, workload, config, run, renew=True)
    words = shlex.join(["--workload", args.workload, "--name", run.name])
    evaluate = f"next: accelerate launch pipelines/evaluate.py {words}\n      which writes {run.report}"

    configs = workload.expand(config, folder)
    chosen = chosen_members(args.only, list(configs))
    if len(configs) > 1:
        workers.start_server([*processes.TRAINING, workload.task.__module__])
    if configs:
        begin = functools.partial(run.begin, config, accelerator.num_processes, manifest, accelerator.mixed_precision)
        job = fanout.Job(run, configs, folder, manifest, args.resume, functools.partial(workloads.find, args.workload))
        fanout.train_all(job, chosen, accelerator, begin)
        accelerator.print(f"{len(chosen)} model{'s' * (len(chosen) != 1)} in {run.member('NAME').best}\n{evaluate}")
        return
    facts = {**manifest, "content": config.content(manifest)}
    progress = training.train(workload, config, folder, facts, run, accelerator, args.resume)
    metric = workload.metric.chosen(config.training.metric).name
    if progress.best is None:
        raise UserError(f"{metric} never was a number, so there is no {run.best}, only {run.last}")
    best = f"best {metric} {progress.best:.5g} at step {progress.best_step}"
    accelerator.print(f"{best}; model in {run.best}\n{evaluate}")


def chosen_members(asked: str | None, names: Sequence[str]) -> list[str]:
    """Return the `names` that --only lists, or all. Raises UserError for an unknown name."""
    if asked is None:
        return list(names)
    if not names:
        raise UserError("--only: this run has a single model; leave it out")
    if unknown := [name for name in asked.split(",") if name not in names]:
        raise UserError(f"--only {asked}: {unknown[0]} is not among the members ({', '.join(names)})")
    return [name for name in names if name in asked.split(",")]


if __name__ == "__main__":
    exits.run_main(main)
