"""Train a workload's model into runs/<workload>/<name>/.

    accelerate launch pipelines/train.py --workload cvrp
    accelerate launch pipelines/train.py --workload cvrp --name dgt-50 model.kind=dgt data.customers=50
    accelerate launch --config_file accelerate_configs/ddp.yaml pipelines/train.py --workload cvrp --resume

Exit status: 0 done; 2 something you can mend, said in a few lines; 128 + n saved and stopped by signal n; 1 else.
"""

import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parents[1])  # replaced: names in pipelines/ would shadow libraries

import torch

from pipelines.engine import cli, hardware
from pipelines.engine.loop import Loop
from pipelines.engine.runs import Run
from pipelines.engine.workload import find


def main() -> None:
    args = cli.parse(__doc__, resume=True)
    workload = find(args.workload)
    run = Run(args.workload, args.name)
    config = cli.training_config(args, workload, run)
    accelerator = cli.make_accelerator(config, run)
    folder, manifest = cli.prepared(args, workload, config, accelerator)

    torch.manual_seed(config.seed)  # initial weights, the same on every rank
    task = workload.task(config, folder, accelerator.device)
    hardware.apply(config.hardware, accelerator.device, task.model, accelerator.print)
    accelerator.print(f"{sum(p.numel() for p in task.model.parameters()):,} parameters on {accelerator.device}")
    for note in task.notes:
        accelerator.print(note)

    loop = Loop(task, config, accelerator, run, workload.select, workload.maximise)
    resume = args.resume and run.started()
    accelerator.wait_for_everyone()
    if accelerator.is_main_process:
        run.begin(config, accelerator.num_processes, manifest)
    cli.start_trackers(accelerator, run, config)
    progress = loop.fit(resume)
    accelerator.end_training()
    accelerator.print(
        f"best {workload.select} {progress.best:.5g} at step {progress.best_step}; model in {run.best}\n"
        f"next: accelerate launch pipelines/evaluate.py --workload {run.workload} --name {run.name}"
    )


if __name__ == "__main__":
    cli.run_main(main)
