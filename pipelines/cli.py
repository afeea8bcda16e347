"""What the entry points share: arguments, exit codes, the config of a run, the Accelerator."""

import argparse
import importlib.util
import os
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import torch
from accelerate import Accelerator
from accelerate.utils import ProjectConfiguration
from torch import nn

from common.errors import MembersFailed, UserError
from models import io
from pipelines.doctor.launch import check_world
from pipelines.engine import config as configs
from pipelines.engine import data, hardware
from pipelines.engine.config import BaseConfig, leaves
from pipelines.engine.loop import Stopped
from pipelines.engine.runs import ROOT, Run
from pipelines.engine.workload import WORKLOADS, Workload

GROWING = ("training.steps", "training.epochs")


def parse(description: str, resume: bool = False, steps: int | None = None) -> argparse.Namespace:
    """`--workload W --name N --config FILE key.path=value ...`; `description` is the entry point's docstring.

    `resume` adds --resume and --only, `steps` adds --steps with that default.
    """
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workload", required=True, help=f"one of: {', '.join(WORKLOADS)}")
    parser.add_argument("--name", default="default", help="the run's name: runs/<workload>/<name>")
    parser.add_argument("--config", type=Path, help="YAML file instead of pipelines/configs/<workload>.yaml")
    parser.add_argument("words", nargs="*", metavar="key.path=value", help="changes to the config")
    if resume:
        parser.add_argument("--resume", action="store_true", help="continue the run from its newest checkpoint")
        parser.add_argument("--only", metavar="NAME,NAME", help="train these of a run's many models")
    if steps:
        parser.add_argument("--steps", type=int, default=steps, help=f"steps to time, {steps} if not given")
    return parser.parse_intermixed_args()


def run_main(main: Callable[[], None]) -> None:
    """Call `main`; exit 2 with the message alone for what the user can mend, 128 + n after signal n."""
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
    """Exit; of several processes, which all meet the same end, the first one says why."""
    if int(os.environ.get("RANK", 0)) == 0:
        print(message, file=sys.stderr, flush=True)
    else:
        time.sleep(5)  # the launcher ends all processes as soon as one has gone: let the first one speak
    sys.exit(status)


def fresh_config(args: argparse.Namespace, workload: Workload) -> BaseConfig:
    """The config from the YAML file and the words."""
    path = args.config or ROOT / "pipelines" / "configs" / f"{args.workload}.yaml"
    return configs.load(path, workload.config, args.words)


def training_config(args: argparse.Namespace, workload: Workload, run: Run) -> BaseConfig:
    """The config to train with: fresh, or on --resume that of the run, which only its length may leave."""
    if not run.started():
        return fresh_config(args, workload)
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


def stored_config(args: argparse.Namespace, workload: Workload, run: Run) -> BaseConfig:
    """The config of a trained run, patched for a later stage; what was trained cannot be changed any more."""
    stored, asked = run.config(workload.config), run.config(workload.config, args.words)
    fixed = [line for line in _changed(stored, asked) if line.startswith(workload.settled)]
    if fixed:
        raise UserError(
            "\n  ".join([f"{run.folder} is trained; these keys are settled, train another --name for others:", *fixed])
        )
    return asked


def _changed(stored: BaseConfig, asked: BaseConfig) -> list[str]:
    """What differs, but for how data are loaded: that is a matter of the machine and changes no result."""
    return [line for line in configs.differences(stored, asked) if not line.startswith("data.loader:")]


def make_accelerator(config: BaseConfig, run: Run) -> Accelerator:
    """The Accelerator, with the trackers asked for; refuses processes that did not find each other."""
    packages = {"tensorboard": "tensorboard", "trackio": "trackio", "wandb": "wandb"}
    for tracker in config.tracking.log_with:
        if importlib.util.find_spec(packages[tracker]) is None:
            raise UserError(f"tracking.log_with: {tracker} is not installed; pip install {packages[tracker]}")
    accelerator = Accelerator(
        log_with=list(config.tracking.log_with) or None,
        project_config=ProjectConfiguration(project_dir=str(run.folder), logging_dir=str(run.folder / "trackers")),
    )
    check_world(accelerator.num_processes)
    return accelerator


def start_trackers(accelerator: Accelerator, run: Run, config: BaseConfig) -> None:
    """Open the trackers, if any, with the config as flat plain values."""
    if accelerator.log_with:
        flat = {
            key: value if isinstance(value, int | float | str) else str(value)
            for key, value in leaves(config.model_dump(mode="json"))
        }
        accelerator.init_trackers(f"{run.workload}-{run.name}", config=flat)


def prepared(args: argparse.Namespace, workload: Workload, config: BaseConfig, accelerator: Accelerator) -> tuple:
    """Data folder and manifest; the main process makes them while the others wait."""
    with accelerator.main_process_first():
        return data.prepare(args.workload, workload, config)


def trained_model(
    workload: Workload, config: BaseConfig, folder: Path, run: Run, accelerator: Accelerator
) -> nn.Module | dict[str, nn.Module] | None:
    """The run's best model, {name: model} of a run with many, None where there is nothing to train.

    Members that are not trained to their end are left out, with a line that says so.
    """
    if workload.untrained(config):
        return None
    names = tuple(workload.members(config, folder))
    if not names:
        return _load_model(run.best, config, accelerator.device, accelerator.print)
    outcomes = {name: run.member(name).outcome() or {"state": "not trained"} for name in names}
    for name, outcome in outcomes.items():
        if outcome["state"] != "done":
            accelerator.print(f"{name} is left out: {outcome['state']} {outcome.get('reason', '')}")
    done = [name for name, outcome in outcomes.items() if outcome["state"] == "done"]
    if not done:
        raise UserError(f"no member of {run.folder} is trained yet; go on with pipelines/train.py --resume")
    # What the machine ignores is said once.
    say = dict.fromkeys(done, lambda line: None) | {done[0]: accelerator.print}
    return {name: _load_model(run.member(name).best, config, accelerator.device, say[name]) for name in done}


def _load_model(folder: Path, config: BaseConfig, device: torch.device, say: Callable[[str], None]) -> nn.Module:
    """A saved model under the machine's settings; what is wrong with the folder is the user's to mend."""
    try:
        model = io.load(folder, device)
    except ValueError as error:
        raise UserError(str(error)) from error
    settings = config.hardware.model_copy(update={"gradient_checkpointing": False})
    hardware.apply(settings, device, model, say)
    return model
