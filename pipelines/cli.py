"""Code shared by the entry points: exit codes, the config of a run, prepared data, trained models.

Functions that need torch and Accelerate import them, so that mistakes in a command are reported at once.
"""

from __future__ import annotations

import argparse
import atexit
import errno
import functools
import gc
import json
import os
import re
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from common import config as configs
from common.config import leaves
from common.disk import prepared
from common.disk.files import FAULTS, remove
from common.errors import LostProcessError, MembersFailedError, Stopped, UserError, as_user_error
from common.foreign_text import printable
from common.machine import yield_while_waiting
from common.packages import missing
from common.plain import Plain
from models import shipped
from pipelines import workloads
from pipelines.distributed import ranks
from pipelines.engine.config import BaseConfig
from pipelines.engine.workload import Workload
from pipelines.run.folder import Config, Run

if TYPE_CHECKING:
    from accelerate import Accelerator
    from torch import nn

CONFIGS = Path(__file__).resolve().parent / "configs"
REMEDIES = FAULTS | {errno.ENAMETOOLONG: "no file or folder has so long a name; give a shorter one"}
GROWING = ("steps", "epochs", "most_epochs")  # of training
ROUNDING = ("training.micro_batch_size:", "hardware.")  # changes results by rounding alone


def run_main(main: Callable[[], None]) -> None:
    """Call `main`; exit with 2 and a message for an error the user can fix, with 128 + n after signal n."""
    warnings.filterwarnings("ignore", message=".*barrier.*device.*", category=UserWarning)
    yield_while_waiting()
    sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]  # as JSON escapes odd file names
    # Saves a second of garbage collection; Triton's bindings would report what is not collected as leaks.
    atexit.register(lambda: None if "triton" in sys.modules else gc.freeze())
    try:
        main()
        ranks.part()
    except (UserError, MembersFailedError) as error:
        _leave(f"error: {error}", 2 if isinstance(error, UserError) else 1)
    except Stopped as stop:
        _leave(str(stop), 128 + stop.number)
    except KeyboardInterrupt:  # where nothing is saved, such as while data are prepared
        _leave("stopped by Ctrl-C", 130)
    except OSError as error:
        if error.errno not in REMEDIES:
            raise
        _leave(f"error: {error}: {REMEDIES[error.errno]}", 2)
    except LostProcessError:  # named by each of the others; those that still wait for it must not keep this one
        sys.stderr.flush()
        os._exit(1)
    except ModuleNotFoundError as error:
        if (lacking := missing(error)) is None:
            raise
        _leave(f"error: {lacking}", 2)


def _leave(message: str, status: int) -> None:
    """Exit; only the first of several processes prints the message."""
    if int(os.environ.get("RANK", 0)) == 0:
        _say(message)
    else:
        time.sleep(5)  # the launcher kills the others once one has exited: let the first one speak
    sys.exit(status)


def run_of(args: argparse.Namespace) -> Run:
    """Return the run that --workload and --name refer to."""
    return Run(workloads.name_of(args.workload), args.name, workloads.own_folder(args.workload))


def config_file(word: str) -> Path:
    """Return the YAML file of a workload; for one outside the project it may be missing."""
    own = workloads.own_folder(word)
    return own / "config.yaml" if own else CONFIGS / f"{word}.yaml"


def fresh_config(args: argparse.Namespace, workload: Workload, run: BaseConfig | None = None) -> BaseConfig:
    """Build the config from the YAML file, if any, and the words; with `run`, that of a run that goes on by them."""
    path = args.config or config_file(args.workload)
    if not args.config and workloads.own_folder(args.workload) and not path.exists():
        return configs.build(workload.config, {}, args.words, f"of {workloads.name_of(args.workload)}")
    return configs.load(path, workload.config, args.words, run=run and run.model_dump())


def decided(decide: Callable[[], Config]) -> Config:
    """Return on all processes the main one's `decide()`. Raises UserError if the processes did not find each other."""
    from pipelines.checks.accelerate_config import check_world

    check_world(ranks.join())
    return ranks.on_main(decide)


def announce(line: str) -> None:
    """Print the first line of a command, before the seconds that importing torch takes."""
    if ranks.is_main():
        _say(line)


def _say(text: str) -> None:
    """Print lines on stderr; what a user's files put into them cannot steer the terminal."""
    print("\n".join(map(printable, text.split("\n"))), file=sys.stderr, flush=True)


@contextmanager
def held(args: argparse.Namespace, workload: Workload, run: Run) -> Iterator[BaseConfig]:
    """Hold the run's lock within the block and yield its `training_config`; UserError if another process holds it.

    A new run's config is written first, for --resume whenever the process dies, and removed where the run is refused.
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
    """Return a fresh config, also for a run without results, or with --resume the run's, which may grow and move.

    A launcher may restart with --resume a command whose first process died before there was a run.
    """
    if args.resume and not run.started() and not args.restarted:
        raise UserError(f"--resume: {run.unknown()} To start it, leave out --resume")
    if not run.started() or (run.is_blank() and not args.resume):
        config = fresh_config(args, workload)
        if not config.trains:
            kind = dict(leaves(config.model_dump()))["model.kind"]
            command = f"python pipelines/evaluate.py --workload {args.workload} --name {kind} model.kind={kind}"
            raise UserError(f"model.kind={kind} is a heuristic and needs no training; evaluate it with: {command}")
        return config
    if not args.resume:
        raise UserError(f"the run {run.folder} exists: continue it with --resume, or give --name {run.name}-2")
    stored = run.config(workload.config)
    asked = fresh_config(args, workload, stored) if args.config else run.config(workload.config, args.words)
    if args.config and (kept := configs.differences(fresh_config(args, workload), asked)):
        announce("\n  ".join(["the run goes on with the data it began with:", *kept]))
    lengths = {key: (getattr(stored.training, key), getattr(asked.training, key)) for key in GROWING}
    # The loop compares what is asked for in the other unit with the updates done.
    grown = [f"training.{key}" for key, (old, new) in lengths.items() if old is None or new is None or new >= old]
    if not any(key.startswith("val/") for each in (run, *run.members()) for entry in each.metrics() for key in entry):
        grown.append("training.metric")  # by which nothing was chosen yet
    changed = [line for line in _changed(stored, asked) if line.partition(":")[0] not in grown]
    if refused := [line for line in changed if not line.startswith(ROUNDING)]:
        head = f"--resume continues {run.folder} under its own config; only training.steps, epochs and most_epochs may "
        head += "grow, and training.micro_batch_size and hardware.* change. Leave these words out, or begin a run with "
        raise UserError("\n  ".join([f"{head}--name:", *refused]))
    if changed:
        announce("\n  ".join(["going on with settings that change results by rounding alone:", *changed]))
    return asked


def evaluation_config(args: argparse.Namespace, workload: Workload, run: Run) -> BaseConfig:
    """Return a trained run's config with later stages' keys patched, or a fresh one for methods without weights."""
    run.adopt(shipped.FOLDER / run.name)
    if not run.started() and not (fresh := fresh_config(args, workload)).trains:
        return fresh
    stored = run.config(workload.config, others=shipped.names(run.workload))
    asked = run.config(workload.config, args.words)
    if fixed := [line for line in _changed(stored, asked) if line.startswith(stored.settled)]:
        head = f"{run.folder} is trained; these keys are settled, train another --name for others:"
        raise UserError("\n  ".join([head, *fixed]))
    return asked


def evaluated_config(args: argparse.Namespace, workload: Workload, run: Run) -> BaseConfig:
    """Return the config of a run not trained here: a shipped model's own, or a method's words less `evaluation`."""
    if run.started():
        return run.config(workload.config)
    words = [word for word in args.words if re.split("[.=]", word)[0] != "evaluation"]
    return fresh_config(argparse.Namespace(**{**vars(args), "words": words}), workload)


def _changed(stored: BaseConfig, asked: BaseConfig) -> list[str]:
    """List the differences, except in how data are loaded, which changes no result."""
    return [line for line in configs.differences(stored, asked) if not line.startswith("data.loader:")]


def prepare(name: str, workload: Workload, config: BaseConfig, renew: bool = False) -> tuple[Path, dict[str, Plain]]:
    """Prepare missing data, and with `renew` changed ones; print their `note`, return their folder and manifest."""
    data = config.data
    folder = prepared.folder_for(workloads.name_of(name), data, data.layout)
    manifest = prepared.prepare(
        folder,
        prepared.section_of(data),
        lambda temporary: workload.prepare(config, temporary),
        data.inputs,
        (lambda temporary: workload.prepare(config, temporary, folder)) if renew and data.renews else None,
        "pipelines/train.py --resume takes in what has changed" if data.renews else prepared.ANEW,
    )
    if manifest.get("note"):
        announce(str(manifest["note"]))
    return folder, manifest


def prepare_first(
    args: argparse.Namespace, workload: Workload, config: BaseConfig, renew: bool = False
) -> tuple[Path, dict[str, Plain]]:
    """Call `prepare` on the main process. Raises UserError if another process has other data on its disk."""
    folder, manifest = ranks.on_main(lambda: prepare(args.workload, workload, config, renew))
    ranks.check_seen(folder / prepared.MANIFEST, f"copy that folder to {folder.absolute()} there")
    return folder, manifest


def trained_models(
    workload: Workload, config: BaseConfig, folder: Path, manifest: dict[str, Plain], run: Run, accelerator: Accelerator
) -> dict[str, nn.Module]:
    """Load the best models, {run or member: model}, {} without weights; untrained or stale members are left out."""
    if not config.trains:
        return {}
    config.hardware.apply(accelerator.device, accelerator.print)
    if not (known := workload.expand(config, folder)):
        early = ranks.on_main(lambda: run.last.is_dir() and not run.best.is_dir())  # before the first validation
        if early:
            accelerator.print(f"{run.best} is written at the first validation; using {run.last}")
        return {run.name: load_model(run.last if early else run.evaluated, config, accelerator)}

    def outcome(name: str) -> dict[str, Plain]:
        if not run.member(name).learnt_from(known[name].content(manifest)):
            return {"state": "stale", "reason": "its data have changed; continue with pipelines/train.py --resume"}
        return run.member(name).outcome() or {"state": "not trained"}

    outcomes = ranks.on_main(lambda: {name: outcome(name) for name in known})
    for name, found in outcomes.items():
        if found["state"] != "done":
            accelerator.print(f"{name} is left out: {found['state']} {found.get('reason', '')}")
    if not (done := [name for name, found in outcomes.items() if found["state"] == "done"]):
        raise UserError(f"no member of {run.folder} is trained yet; continue with pipelines/train.py --resume")
    return {name: load_model(run.member(name).evaluated, config, accelerator) for name in done}


def load_model(folder: Path, config: BaseConfig, accelerator: Accelerator) -> nn.Module:
    """Load a saved model, split if it is launched so, and apply the machine's settings. UserError without a model."""
    from models import io

    @as_user_error()
    def load() -> nn.Module:
        if accelerator.distributed_type == "FSDP":
            from pipelines.distributed import sharding  # late, as other launches do without its imports

            stated, (stored, metadata) = io.described(local), io.stored_weights(local / io.WEIGHTS, mapped=True)
            build = functools.partial(io.module_of(stated["family"]).build, stated["config"])
            own = metadata.get("model") in (None, json.dumps(stated, sort_keys=True))  # else it is refused below
            # A base is read whole in any case.
            if own and not stated["config"].get("base") and (split := sharding.load(accelerator, build, stored)):
                return split
        return io.load(local, accelerator.device)

    with ranks.copy_of(folder) as local:
        model = ranks.agree(load)
    config.hardware.model_copy(update={"gradient_checkpointing": False}).apply_to(model)
    return model


def choose(asked: str | None, names: Sequence[str]) -> list[str]:
    """Return the `names` that --only lists, or all. Raises UserError for an unknown name."""
    if asked is None:
        return list(names)
    if not names:
        raise UserError("--only: this run has a single model; leave it out")
    if unknown := [name for name in asked.split(",") if name not in names]:
        raise UserError(f"--only {asked}: {unknown[0]} is not among the members ({', '.join(names)})")
    return [name for name in names if name in asked.split(",")]
