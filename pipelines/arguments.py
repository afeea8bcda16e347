"""Command lines: their options, and --help with every key of the config.

They are parsed before torch is imported, so that help and refusals come at once.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

from common import config as configs
from common.config import keys
from common.config.arguments import Parser, nearest
from common.errors import UserError
from pipelines import cli, completions, workloads
from pipelines.engine.config import BaseConfig
from pipelines.engine.workload import Workload
from pipelines.run.folder import Run

Configure = Callable[[argparse.Namespace, Workload, Run], BaseConfig]
RESTARTS = ("TORCHELASTIC_RESTART_COUNT", "SLURM_RESTART_COUNT")  # by torchrun after a failure, and by Slurm


def parse(
    description: str | None,
    configure: Configure | None = None,
    resume: bool = False,
    steps: int | None = None,
    argv: Sequence[str] | None = None,
) -> argparse.Namespace:
    """`--workload W --name N --config FILE key.path=value ...`; `description` is the entry point's docstring.

    `resume` adds --resume and --only; `steps` adds a benchmark's options, with that default for --steps. --help and
    --print-config end the program here; the latter prints what `configure` returns.
    """
    known = parser(description, resume, steps)
    completions.offer(known)
    args = known.parse_intermixed_args(argv)
    if args.help or args.keys is not None:
        show(_help(known, args))
    if not args.workload:
        raise UserError(f"--workload is missing; give one of {', '.join(workloads.names())}, or the folder of your own")
    configs.check_words(workloads.find(args.workload).config, args.words)
    # A launcher that restarts processes or a job means to continue.
    args.restarted = any(int(os.environ.get(name, 0)) for name in RESTARTS)
    if resume and args.restarted:
        args.resume = True
    if args.print_config and configure:
        show(configs.dump(configure(args, workloads.find(args.workload), cli.run_of(args))).rstrip())
    return args


def show(text: str) -> NoReturn:
    """Print `text` and end the program."""
    end_quietly()
    print(text)
    sys.exit()


def end_quietly() -> None:
    """Let the program end silently when a pager or head has read enough."""
    if hasattr(signal, "SIGPIPE"):
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)


def parser(description: str | None, resume: bool = False, steps: int | None = None) -> Parser:
    """Return the parser of an entry point; see `parse`."""
    made = Parser(
        _known_keys,
        prog=f"python pipelines/{Path(sys.argv[0]).name}",
        description=description,
        add_help=False,
        usage="%(prog)s --workload W [options] [key=value ...]",
    )
    add = made.add_argument
    known = ", ".join(workloads.names())
    add("--workload", metavar="W", help=f"one of {known}, or the folder of one of your own")
    add("--name", metavar="N", default="default", help="the run's name: runs/<workload>/<name>; default")
    add("--config", type=Path, metavar="FILE", help="YAML file instead of pipelines/configs/<workload>.yaml")
    add("words", nargs="*", metavar="key.path=value", help="changes to the config")
    add("-h", "--help", action="store_true", help="show this, and with --workload every key of its config")
    add("--keys", nargs="?", const="", metavar="PREFIX", help="show the keys that start with it, such as evaluation")
    add("--print-config", action="store_true", help="print the whole config as YAML and exit")
    if resume:
        add("--resume", action="store_true", help="continue the run from its newest checkpoint")
        add("--only", metavar="NAME,NAME", help="train only these members of a run of many models")
    if steps:
        add("--steps", type=int, default=steps, help=f"steps to time; {steps}")
        add("--cpu-seconds", type=float, default=600, metavar="S", help="for the same steps on the CPU; 600, 0: none")
        add("--compare", metavar="WORD", help="also time the config changed by this key.path=value")
    return made


def _known_keys() -> list[str]:
    """Return the dotted keys of the command's workload, else those that all workloads share."""
    words = [*sys.argv, ""]
    named = words[words.index("--workload") + 1] if "--workload" in words else ""
    config = workloads.find(named).config if named in workloads.names() else BaseConfig
    return [key.name for group in keys.groups(config) for key in group.keys]


def _help(known: Parser, args: argparse.Namespace) -> str:
    """Return the help; keys have the values that hold without words."""
    options = known.format_help().rstrip()
    if not args.workload:
        if args.keys is not None:
            raise UserError(f"--keys needs --workload, one of {', '.join(workloads.names())}")
        return f"{options}\n\nkeys of a config: {known.prog} --workload {workloads.names()[0]} --help"
    workload = workloads.find(args.workload)
    args.words = []
    values = dict(configs.leaves(cli.fresh_config(args, workload).model_dump(mode="json")))
    shown = keys.as_text(_selected(keys.groups(workload.config), args.keys or ""), values)
    if args.keys is not None:
        return shown
    source, root = args.config or cli.config_file(args.workload), Path(__file__).resolve().parents[1]
    source = source.relative_to(root) if source.is_relative_to(root) else source
    return f"{options}\n\nkeys, with the values of {source}; key=value changes:\n\n{shown}"


def _selected(groups: Sequence[keys.Group], prefix: str) -> list[keys.Group]:
    """Return the groups with only the keys that start with `prefix`. Raises UserError if none does."""
    chosen = [
        keys.Group(group.name, group.description, found)
        for group in groups
        if (found := tuple(key for key in group.keys if key.name.startswith(prefix)))
    ]
    if not chosen:
        known = [name for group in groups for name in (group.name, *(key.name for key in group.keys)) if name]
        near = nearest(prefix, known)
        hint = f"did you mean {near[0]}?" if near else f"sections: {', '.join(g.name for g in groups if g.name)}"
        raise UserError(f"--keys {prefix}: no key starts with it; {hint}")
    return chosen
