"""Evaluate a trained run beside its baselines: evaluations/<split>.json, per-example files and report.html.

    accelerate launch pipelines/evaluate.py --workload cvrp
    accelerate launch pipelines/evaluate.py --workload cvrp --name dgt-50 evaluation.instances=my_instances.npz
    python pipelines/evaluate.py --workload cvrp --name savings model.kind=savings

A model that needs no training is evaluated under any new --name.
"""

import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parents[1])  # replaced: names in pipelines/ would shadow libraries

from pipelines import cli
from pipelines.engine.loop import evaluator
from pipelines.engine.runs import Run
from pipelines.engine.workload import find
from pipelines.report import page, tables


def main() -> None:
    args = cli.parse(__doc__)
    workload = find(args.workload)
    run = Run(args.workload, args.name)
    fresh = None if run.started() else cli.fresh_config(args, workload)
    untrained = fresh is not None and workload.untrained(fresh)
    config = fresh if untrained else cli.stored_config(args, workload, run)
    accelerator = cli.make_accelerator(config, run)
    folder, manifest = cli.prepared(args, workload, config, accelerator)
    if untrained and accelerator.is_main_process:
        run.begin(config, accelerator.num_processes, manifest)

    model = cli.trained_model(workload, config, folder, run, accelerator)
    evaluations = workload.evaluate(config, model, folder, accelerator.device, evaluator(accelerator))
    if accelerator.is_main_process:
        for evaluation in evaluations:
            page.keep(run, evaluation)
            print(tables.as_text(evaluation))
        page.write(run, workload.report(config, model, run))
        print(f"report: {run.report}")


if __name__ == "__main__":
    cli.run_main(main)
