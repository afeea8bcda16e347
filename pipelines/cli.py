"""Code shared by the entry points: arguments, exit codes, the config of a run, prepared data, trained models.

torch and Accelerate are imported by the functions that need them, so that mistakes in a command are reported at once.
"""

from __future__ import annotations

import argparse
import difflib
import os
import re
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from common import config as configs
from common import prepared
from common.config import leaves
from common.errors import MembersFailed, Stopped, UserError
from pipelines import workloads
from pipelines.engine import ranks
from pipelines.engine.config import BaseConfig
from pipelines.engine.run import Config, Run
from pipelines.engine.workload import Workload

if TYPE_CHECKING:
    import torch
    from accelerate import Accelerator
    from torch import nn

CONFIGS = Path(__file__).resolve().parent / "configs"
PRETRAINED = Path(__file__).resolve().parents[1] / "models" / "pretrained"
GROWING = ("training.steps", "training.epochs")


def parse(
    description: str | None, resume: bool = False, steps: int | None = None, argv: Sequence[str] | None = None
) -> argparse.Namespace:
    """`--workload W --name N --config FILE key.path=value ...`; `description` is the entry point's docstring.

    `resume` adds --resume and --only; `steps` adds what a benchmark takes, --steps with that default.
    """
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    known = ", ".join(workloads.names())
    parser.add_argument("--workload", required=True, help=f"one of {known}, or the folder of one of your own")
    parser.add_argument("--name", default="default", help="the run's name: runs/<workload>/<name>")
    parser.add_argument("--config", type=Path, help="YAML file instead of pipelines/configs/<workload>.yaml")
    parser.add_argument("words", nargs="*", metavar="key.path=value", help="changes to the config")
    if resume:
        parser.add_argument("--resume", action="store_true", help="continue the run from its newest checkpoint")
        parser.add_argument("--only", metavar="NAME,NAME", help="train only these members of a run of many models")
    if steps:
        parser.add_argument("--steps", type=int, default=steps, help=f"steps to time, {steps} by default")
        parser.add_argument("--cpu-seconds", type=float, default=600, help="for the same steps on the CPU; 0: none")
        parser.add_argument("--compare", metavar="WORD", help="also time the config changed by this key.path=value")
    args = parser.parse_intermixed_args(argv)
    if resume and int(os.environ.get("TORCHELASTIC_RESTART_COUNT", 0)):
        args.resume = True  # under torchrun --max-restarts, after a process has failed
    return args


def run_main(main: Callable[[], None]) -> None:
    """Call `main`; exit with 2 and a message for a mistake that the user can fix, 128 + n after signal n."""
    warnings.filterwarnings("ignore", message=".*barrier.*device.*", category=UserWarning)
    try:
        main()
    except UserError as error:
        _leave(f"error: {error}", 2)
    except Stopped as stop:
        _leave(str(stop), 128 + stop.number)
    except MembersFailed as error:
        _leave(f"error: {error}", 1)


def _leave(message: str, status: int) -> None:
    """Exit; of several processes that end for the same reason, only the first prints it."""
    if int(os.environ.get("RANK", 0)) == 0:
        print(message, file=sys.stderr, flush=True)
    else:
        time.sleep(5)  # the launcher ends all processes as soon as one has gone: let the first one speak
    sys.exit(status)


def run_of(args: argparse.Namespace) -> Run:
    """Return the run that --workload and --name refer to."""
    return Run(workloads.name_of(args.workload), args.name)


def fresh_config(args: argparse.Namespace, workload: Workload) -> BaseConfig:
    """Build the config from the YAML file and the words; a workload outside the project may bring a config.yaml."""
    name, own = workloads.name_of(args.workload), workloads.own_folder(args.workload)
    path = args.config or (own / "config.yaml" if own else CONFIGS / f"{name}.yaml")
    if own and not args.config and not path.exists():
        return configs.build(workload.config, {}, args.words, f"of {name}")
    return configs.load(path, workload.config, args.words)


def decided(decide: Callable[[], Config]) -> Config:
    """Return on all processes the config that `decide` finds on the main one.

    Raises UserError if the processes that were launched did not find each other.
    """
    from pipelines.doctor.launch import check_world

    check_world(ranks.join())
    return ranks.on_main(decide)


@contextmanager
def held(args: argparse.Namespace, workload: Workload, run: Run) -> Iterator[BaseConfig]:
    """Hold the run within the block, which trains it; yield the config to train with.

    The main process does both, and writes the config of a new run first of all, so that --resume knows what was asked
    for whenever that process dies; what is refused before anything has come of it is no run. Raises UserError where
    `training_config` does, and if another process has the run.
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
                run.forget()
            raise


def training_config(args: argparse.Namespace, workload: Workload, run: Run) -> BaseConfig:
    """Return the config to train with: a fresh one, or with --resume the run's, whose steps or epochs may grow.

    A run of which nothing came may be begun again, with other words.
    """
    if args.resume and not run.started():
        _check_meant(run)
    if not run.started() or (run.is_blank() and not args.resume):
        config = fresh_config(args, workload)
        if not config.trains:
            raise UserError(
                f"model.kind={config.model.kind} is a heuristic and needs no training; evaluate it with: python "
                f"pipelines/evaluate.py --workload {args.workload} --name {config.model.kind} "
                f"model.kind={config.model.kind}"
            )
        return config
    if not args.resume:
        raise UserError(
            f"the run {run.folder} exists: continue it with --resume, or start another with --name {run.name}-2"
        )
    stored = run.config(workload.config)
    asked = fresh_config(args, workload) if args.config else run.config(workload.config, args.words)
    old, new = dict(leaves(stored.model_dump())), dict(leaves(asked.model_dump()))
    grown = [key for key in GROWING if old[key] is not None and new[key] is not None and new[key] >= old[key]]
    changed = [line for line in _changed(stored, asked) if line.partition(":")[0] not in grown]
    if changed:
        raise UserError(
            "\n  ".join(
                [
                    f"--resume continues {run.folder} under its own config; only training.steps or epochs may grow. "
                    "Leave these words out, or start another run with --name:",
                    *changed,
                ]
            )
        )
    return asked


def _check_meant(run: Run) -> None:
    """Raise UserError for the name of a run to be resumed that is a slip of another's; names of a series are none."""

    def series(name: str) -> str:
        return re.sub(r"[-_.]?\d+", "", name)

    known = run.names()
    near = difflib.get_close_matches(run.name, [name for name in known if series(name) != series(run.name)], 1, 0.8)
    if near:
        shown = ", ".join(known[:20]) + ", ..." * (len(known) > 20)
        raise UserError(
            f"--resume: there is no run {run.folder}; did you mean --name {near[0]}? Runs of {run.workload}: {shown}. "
            "To begin a new one, leave out --resume"
        )
    print(f"--resume: there is no run {run.folder} yet, so it begins", file=sys.stderr, flush=True)


def evaluation_config(args: argparse.Namespace, workload: Workload, run: Run) -> BaseConfig:
    """Return the config of a trained run, patched for a later stage; keys that training has settled cannot change.

    A method without weights needs no run: its config is built afresh. A model that comes with the project becomes a run
    of its name.
    """
    run.adopt(PRETRAINED / run.name)
    if not run.started():
        fresh = fresh_config(args, workload)
        if not fresh.trains:
            return fresh
    stored, asked = run.config(workload.config), run.config(workload.config, args.words)
    fixed = [line for line in _changed(stored, asked) if line.startswith(stored.settled)]
    if fixed:
        raise UserError(
            "\n  ".join([f"{run.folder} is trained; these keys are settled, train another --name for others:", *fixed])
        )
    return asked


def _changed(stored: BaseConfig, asked: BaseConfig) -> list[str]:
    """List the differences, except in how data are loaded, which depends on the machine and changes no result."""
    return [line for line in configs.differences(stored, asked) if not line.startswith("data.loader:")]


def members(workload: Workload, config: BaseConfig, folder: Path) -> Mapping[str, BaseConfig]:
    """Return {name: config} for a run of many models, {} for a run of one."""
    return workload.expand(config, folder) if workload.expand else {}


def prepare(name: str, workload: Workload, config: BaseConfig) -> tuple[Path, dict[str, Any]]:
    """Return the folder and the manifest of the workload's prepared data, which are made first if missing."""
    section = config.data.model_dump(mode="json", exclude={"loader"})  # how data are loaded does not decide them
    folder = prepared.folder_of(workloads.name_of(name), section, config.data.layout)
    return folder, prepared.prepare(
        folder, section, lambda temporary: workload.prepare(config, temporary), config.data.inputs
    )


def prepare_first(args: argparse.Namespace, workload: Workload, config: BaseConfig) -> tuple[Path, dict[str, Any]]:
    """Call `prepare` on the main process. Raises UserError if another one has not the same data on its own disk."""
    folder, manifest = ranks.on_main(lambda: prepare(args.workload, workload, config))
    ranks.agree(lambda: None if ranks.is_main() else prepared.check_same(folder, manifest))
    return folder, manifest


def trained_models(
    workload: Workload, config: BaseConfig, folder: Path, run: Run, accelerator: Accelerator
) -> dict[str, nn.Module]:
    """Load the run's best models: {run: model}, {member: model} for a run of many, {} for a method without weights.

    Members whose training is not finished are left out, and reported.
    """
    from common import hardware

    device, say = accelerator.device, accelerator.print
    if not config.trains:
        return {}
    hardware.apply(config.hardware, device, say)
    names = list(members(workload, config, folder))
    if not names:
        return {run.name: _load_model(run.best, config, device)}
    outcomes = ranks.on_main(lambda: {name: run.member(name).outcome() or {"state": "not trained"} for name in names})
    for name, outcome in outcomes.items():
        if outcome["state"] != "done":
            say(f"{name} is left out: {outcome['state']} {outcome.get('reason', '')}")
    done = [name for name, outcome in outcomes.items() if outcome["state"] == "done"]
    if not done:
        raise UserError(f"no member of {run.folder} is trained yet; go on with pipelines/train.py --resume")
    return {name: _load_model(run.member(name).best, config, device) for name in done}


def _load_model(folder: Path, config: BaseConfig, device: torch.device) -> nn.Module:
    """Load a saved model and apply the machine's settings to it. Raises UserError for a folder without a model."""
    from common import hardware
    from models import io

    def load() -> nn.Module:
        try:
            return io.load(local, device)
        except ValueError as error:
            raise UserError(str(error)) from error

    with ranks.copy_of(folder) as local:
        model = ranks.agree(load)
    hardware.apply_to(model, config.hardware.model_copy(update={"gradient_checkpointing": False}))
    return model


def choose(asked: str | None, names: Sequence[str]) -> list[str]:
    """Return the `names` that --only lists, or all. Raises UserError for an unknown name."""
    if asked is None:
        return list(names)
    if not names:
        raise UserError("--only: this run is of one model; leave it out")
    unknown = [name for name in asked.split(",") if name not in names]
    if unknown:
        raise UserError(f"--only {asked}: {unknown[0]} is not among the members ({', '.join(names)})")
    return [name for name in names if name in asked.split(",")]
