"""The config of a command: a fresh one, or that of the run to resume or to evaluate."""

import argparse
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from common import config as configs
from common.disk.files import remove
from common.errors import UserError
from models import shipped
from pipelines import workloads
from pipelines.distributed import ranks
from pipelines.engine.config import BaseConfig
from pipelines.engine.workload import Workload
from pipelines.exits import announce
from pipelines.run.folder import Config, Run

CONFIGS = Path(__file__).resolve().parent / "configs"
GROWING = ("steps", "epochs", "most_epochs")  # of training
ROUNDING = ("training.micro_batch_size:", "hardware.")  # changes results only by rounding


def run_of(args: argparse.Namespace) -> Run:
    """Return the run that --workload and --name refer to."""
    return Run(workloads.name_of(args.workload), args.name, workloads.own_folder(args.workload))


def config_file(word: str) -> Path:
    """Return the YAML file of a workload; for one outside the project it may be missing."""
    own = workloads.own_folder(word)
    return own / "config.yaml" if own else CONFIGS / f"{word}.yaml"


def fresh_config(args: argparse.Namespace, workload: Workload, run: BaseConfig | None = None) -> BaseConfig:
    """Build the config from the YAML file, if any, and the words; `run` is the config of a run to continue."""
    path = args.config or config_file(args.workload)
    if not args.config and workloads.own_folder(args.workload) and not path.exists():
        return configs.build(workload.config, {}, args.words, f"of {workloads.name_of(args.workload)}")
    return configs.load(path, workload.config, args.words, run=run and run.model_dump())


def decided(decide: Callable[[], Config]) -> Config:
    """Return the main process's `decide()` on all. Raises UserError if the processes did not find each other."""
    from pipelines.checks.accelerate_config import check_world

    check_world(ranks.join())
    return ranks.on_main(decide)


@contextmanager
def held(args: argparse.Namespace, workload: Workload, run: Run) -> Iterator[BaseConfig]:
    """Hold the run's lock within the block and yield its `training_config`; UserError if another process holds it.

    A new run's config is written first, so that --resume works after a crash, and removed if the run is refused.
    """
    with ExitStack() as stack:

        def decide() -> BaseConfig:
            stack.enter_context(run.held())
            config = training_config(args, workload, run)
            if run.is_blank():
                run.keep_config(config)
            return config

        config = decided(decide)
        try:
            yield config
        except UserError:
            if ranks.is_main() and run.is_blank():
                remove(run.config_file)
                remove(run.provenance_file)
            raise


def training_config(args: argparse.Namespace, workload: Workload, run: Run) -> BaseConfig:
    """Return a fresh config, also for a blank run, or with --resume the run's, patched in length and hardware.

    A launcher's restart implies --resume, also where the first process died before there was a run.
    """
    if args.resume and not run.started() and not args.restarted:
        raise UserError(f"--resume: {run.unknown()} To start it, leave out --resume")
    if not run.started() or (run.is_blank() and not args.resume):
        config = fresh_config(args, workload)
        if not config.trains:
            kind = dict(configs.leaves(config.model_dump()))["model.kind"]
            command = f"python pipelines/evaluate.py --workload {args.workload} --name {kind} model.kind={kind}"
            raise UserError(f"model.kind={kind} is a heuristic and needs no training; evaluate it with: {command}")
        return config
    if not args.resume:
        raise UserError(f"the run {run.folder} exists: continue it with --resume, or give --name {run.name}-2")
    stored = run.config(workload.config)
    asked = fresh_config(args, workload, stored) if args.config else run.config(workload.config, args.words)
    if args.config and (kept := configs.differences(fresh_config(args, workload), asked)):
        announce("\n  ".join(["the run keeps the data it began with:", *kept]))
    lengths = {key: (getattr(stored.training, key), getattr(asked.training, key)) for key in GROWING}
    # A length in the other unit is checked by the loop, against the updates done.
    grown = [f"training.{key}" for key, (old, new) in lengths.items() if old is None or new is None or new >= old]
    if not any(key.startswith("val/") for each in (run, *run.members()) for entry in each.metrics() for key in entry):
        grown.append("training.metric")  # no model was chosen by it yet
    changed = [line for line in _changed(stored, asked) if line.partition(":")[0] not in grown]
    if refused := [line for line in changed if not line.startswith(ROUNDING)]:
        head = f"--resume continues {run.folder} under its own config; only training.steps, epochs and most_epochs may "
        head += "grow, and training.micro_batch_size and hardware.* change. Leave these words out, or begin a run with "
        raise UserError("\n  ".join([f"{head}--name:", *refused]))
    if changed:
        announce("\n  ".join(["continuing with settings that change results only by rounding:", *changed]))
    return asked


def evaluation_config(args: argparse.Namespace, workload: Workload, run: Run) -> BaseConfig:
    """Return a trained run's config with later stages' keys patched, or a fresh one for methods without weights."""
    run.adopt(shipped.FOLDER / run.name)
    if not run.started() and not (fresh := fresh_config(args, workload)).trains:
        return fresh
    stored = run.config(workload.config, others=shipped.names(run.workload))
    asked = run.config(workload.config, args.words)
    if fixed := [line for line in _changed(stored, asked) if line.startswith(stored.settled)]:
        head = f"{run.folder} is trained, which fixes these keys; train another --name to change them:"
        raise UserError("\n  ".join([head, *fixed]))
    return asked


def evaluated_config(args: argparse.Namespace, workload: Workload, run: Run) -> BaseConfig:
    """Return the config of a run not trained here: a shipped model's, or a fresh one without `evaluation` words."""
    if run.started():
        return run.config(workload.config)
    words = [word for word in args.words if re.split("[.=]", word)[0] != "evaluation"]
    return fresh_config(argparse.Namespace(**{**vars(args), "words": words}), workload)


def _changed(stored: BaseConfig, asked: BaseConfig) -> list[str]:
    """List the differences, except in how data are loaded, which changes no result."""
    return [line for line in configs.differences(stored, asked) if not line.startswith("data.loader:")]
