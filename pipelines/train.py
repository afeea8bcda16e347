"""Train a workload's model into runs/<workload>/<name>/.

    accelerate launch pipelines/train.py --workload cvrp
    accelerate launch pipelines/train.py --workload cvrp --name dgt-50 model.kind=dgt data.customers=50
    accelerate launch --config_file accelerate_configs/ddp.yaml pipelines/train.py --workload cvrp --resume
    accelerate launch pipelines/train.py --workload crypto --only BTCUSDT,ETHUSDT

Exit status: 0 done; 2 something you can mend, said in a few lines; 128 + n saved and stopped by signal n; 1 else.
"""

import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parents[1])  # replaced: names in pipelines/ would shadow libraries

from pipelines.engine import server
from pipelines.workloads import MANY

if __name__ == "__main__" and any(name in sys.argv for name in MANY):
    server.start()  # before the imports below, beside which its own run

from pipelines import cli
from pipelines.engine import members, training
from pipelines.engine.runs import Run
from pipelines.engine.workload import find


def main() -> None:
    args = cli.parse(__doc__, resume=True)
    workload = find(args.workload)
    run = Run(args.workload, args.name)
    config = cli.training_config(args, workload, run)
    accelerator = cli.make_accelerator(config, run)
    folder, manifest = cli.prepared(args, workload, config, accelerator)
    evaluate = f"next: accelerate launch pipelines/evaluate.py --workload {run.workload} --name {run.name}"

    names = tuple(workload.members(config, folder))
    chosen = members.choose(args.only, names)
    if names:
        accelerator.wait_for_everyone()
        if accelerator.is_main_process:
            run.begin(config, accelerator.num_processes, manifest)
        members.train_all(members.Job(run, config, folder, args.resume), chosen, accelerator)
        accelerator.print(f"{len(chosen)} models in {run.member('NAME').best}\n{evaluate}")
        return
    progress = training.train(workload, config, folder, manifest, run, accelerator, args.resume)
    accelerator.print(
        f"best {workload.select} {progress.best:.5g} at step {progress.best_step}; model in {run.best}\n{evaluate}"
    )


if __name__ == "__main__":
    cli.run_main(main)
