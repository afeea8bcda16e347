"""Evaluate a trained run beside its baselines.

Writes evaluations/<split>.json, files with a row per example, and report.html.

    accelerate launch pipelines/evaluate.py --workload cvrp
    accelerate launch pipelines/evaluate.py --workload cvrp --name dgt-50 \\
        evaluation.instances=my_instances.npz
    python pipelines/evaluate.py --workload cvrp --name savings \\
        model.kind=savings
    python pipelines/evaluate.py --workload cvrp --name cvrp-20

A method without training takes any new --name, a shipped model
(models/pretrained) its own. Words such as evaluation.samples=8 apply to this
evaluation only.
"""

import argparse
import os
import shlex
import shutil
import sys
import tempfile
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parents[1])  # replaced: names in pipelines/ would shadow libraries

from common import workers
from common.disk.files import explained
from common.errors import Stopped
from common.machine import cores
from common.stopping import StopRequest
from pipelines import arguments, exits, loading, run_config, workloads
from pipelines.distributed import ranks
from pipelines.members import processes


def main() -> None:
    """Evaluate the run that the command names; a signal ends it at once, as nothing is half written."""
    args, asked = arguments.parse(__doc__, run_config.evaluation_config), StopRequest()

    def leave() -> None:
        raise Stopped(asked.number or 0, then="evaluate again")

    with asked.listening(leave):
        evaluate(args)


def evaluate(args: argparse.Namespace) -> None:
    """Evaluate, and write the results and the report."""
    workload = workloads.find(args.workload)
    run = run_config.run_of(args)
    config = run_config.decided(lambda: run_config.evaluation_config(args, workload, run))
    exits.announce(f"evaluating {run.folder}")
    if cores() > 1 and len(run.members()) >= processes.FEWEST:
        # It imports in parallel with the imports below.
        workers.start_server([workload.evaluate.__module__, workload.report.__module__, "datasets"])
    from pipelines.engine.batches import mapper
    from pipelines.engine.training import make_accelerator
    from pipelines.report import page, plots
    from pipelines.report.tables import as_text
    from pipelines.tracking import trackers

    accelerator = make_accelerator(config, run)
    folder, manifest = loading.prepare_first(args, workload, config, run)

    def begin() -> None:
        if not run.provenance():  # not trained here: a shipped model, or a method without weights
            run.begin(run_config.evaluated_config(args, workload, run), accelerator.num_processes, manifest)
        with explained(run.folder):  # fail now, not after minutes of evaluation
            tempfile.TemporaryFile(dir=run.folder).close()

    ranks.on_main(begin)
    models = loading.trained_models(workload, config, folder, manifest, run, accelerator)
    map_items = mapper(accelerator, what="evaluating, batches")
    evaluations = workload.evaluate(config, models, folder, accelerator.device, map_items)

    def report() -> None:
        known = page.keep(run, evaluations)
        with plots.collected(bool(config.tracking.log_with)) as pictures:
            page.write(run, known, workload.report(config, models, known, run))
        if verdict := run.verdict():
            earlier = known[0].split not in {each.split for each in evaluations}
            print(f"verdict{f' of {known[0].split}, evaluated earlier' * earlier}: {verdict}\n")
        width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
        for evaluation in evaluations:
            if evaluation.member is None:
                print(as_text(evaluation, width))
        tables = {each.split: each.table for each in evaluations if each.table and each.member is None}
        trackers.show(accelerator, config, run, tables, pictures)
        print(f"report: {run.report}")
        if models and (example := workloads.inputs(args.workload).example):
            words = ["--workload", args.workload, "--name", args.name]
            words += [os.path.relpath(word) if Path(word).is_file() else word for word in example]
            print(f"\ntry next:\n  python pipelines/predict.py {shlex.join(words)}")
            print(f"  python pipelines/serve.py {run.workload}/{run.name}")

    ranks.on_main(report)


if __name__ == "__main__":
    exits.run_main(main)
