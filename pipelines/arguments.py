"""Command lines: options, help on all keys, completion. Parsed before torch loads: help and errors come at once."""

import argparse
import contextlib
import os
import signal
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

from common import config as configs
from common.config import key_help
from common.config.mistakes import nearest
from common.config.option_parser import Parser
from common.errors import UserError
from pipelines import run_config, workloads
from pipelines.engine.config import BaseConfig
from pipelines.engine.workload import Workload
from pipelines.inventory import found
from pipelines.run.folder import Run

RESTARTS = ("TORCHELASTIC_RESTART_COUNT", "SLURM_RESTART_COUNT")  # by torchrun after a failure, and by Slurm


def parse(
    description: str | None,
    configure: Callable[[argparse.Namespace, Workload, Run], BaseConfig] | None = None,
    resume: bool = False,
    steps: int | None = None,
    argv: Sequence[str] | None = None,
    further: Callable[[Parser], None] = lambda known: None,
) -> argparse.Namespace:
    """Parse words with `parser` and `further` options; --help and --print-config (what `configure` returns) exit."""
    known = parser(description, resume, steps)
    further(known)
    args = known.completing(complete).parse_intermixed_args(argv)
    if args.help or args.keys is not None:
        show(_help(known, args))
    if not args.workload:
        raise UserError(f"--workload is missing; give one of {', '.join(workloads.names())}, or your workload's folder")
    config = workloads.find(args.workload).config
    if resume and args.folds:
        if "data.fold" not in (key.name for group in key_help.groups(config) for key in group.keys):
            raise UserError(f"--folds {args.folds}: {args.workload} has no data.fold; leave --folds out")
        args.words.append(f"data.fold={args.folds}")
    configs.check_words(config, args.words)
    args.restarted = any(int(os.environ.get(name, 0)) for name in RESTARTS)
    args.resume = resume and (args.resume or args.restarted)  # a launcher that restarts a job means to continue
    if args.print_config and configure:
        show(configs.dump(configure(args, workloads.find(args.workload), run_config.run_of(args))).rstrip())
    return args


def show(text: str) -> NoReturn:
    """Print `text` and end the program."""
    end_quietly()
    print(text)
    sys.exit()


def end_quietly() -> None:
    """Exit silently when the reader of a pipe, such as head or a pager, closes it."""
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)


def parser(description: str | None, resume: bool = False, steps: int | None = None) -> Parser:
    """Return an entry point's parser; `resume` adds training's options, `steps` (a default) a benchmark's."""
    made = Parser(
        _known_keys,
        prog=f"python pipelines/{Path(sys.argv[0]).name}",
        description=description,
        add_help=False,
        usage="%(prog)s --workload W [options] [key=value ...]",
    )
    add = made.add_argument
    add("--workload", metavar="W", help=f"one of {', '.join(workloads.names())}, or your workload's folder")
    add("--name", metavar="N", default="default", help="the run's name: runs/<workload>/<name>; default")
    add("--config", type=Path, metavar="FILE", help="YAML file instead of pipelines/configs/<workload>.yaml")
    add("words", nargs="*", metavar="key.path=value", help="changes to the config")
    add("-h", "--help", action="store_true", help="show this help, with --workload also its config's keys")
    add("--keys", nargs="?", const="", metavar="PREFIX", help="show the keys that start with PREFIX, such as data")
    add("--print-config", action="store_true", help="print the whole config as YAML and exit")
    if resume:
        add("--resume", action="store_true", help="continue the run from its newest checkpoint")
        add("--folds", choices=["all"], help="train a member for each fold of the data, as data.fold=all does")
        add("--only", metavar="NAME,NAME", help="train only these members of a run of many models")
    if steps:
        add("--steps", type=int, default=steps, help=f"steps to time; {steps}")
        add("--cpu-seconds", type=float, default=600, metavar="S", help="limit for timing the CPU, too; 600, 0: do not")
        add("--compare", metavar="WORD", action="append", default=[], help="also time it with this key.path=value")
    return made


def _known_keys() -> list[str]:
    """Return the dotted keys of the command's workload, else those that all workloads share."""
    words = [*" ".join(sys.argv).replace("--workload=", "--workload ").split(" "), ""]
    named = words[words.index("--workload") + 1] if "--workload" in words else ""
    config = workloads.find(named).config if named in workloads.names() else BaseConfig
    return [key.name for group in key_help.groups(config) for key in group.keys]


def _help(known: Parser, args: argparse.Namespace) -> str:
    """Return the help; keys are shown with their values before any words."""
    options = known.format_help().rstrip()
    if not args.workload:
        if args.keys is not None:
            raise UserError(f"--keys needs --workload, one of {', '.join(workloads.names())}")
        return f"{options}\n\nkeys of a config: {known.prog} --workload {workloads.names()[0]} --help"
    workload, args.words = workloads.find(args.workload), []
    values = dict(configs.leaves(run_config.fresh_config(args, workload).model_dump(mode="json")))
    shown = key_help.as_text(_selected(key_help.groups(workload.config), args.keys or ""), values)
    if args.keys is not None:
        return shown
    source, root = args.config or run_config.config_file(args.workload), Path(__file__).resolve().parents[1]
    source = source.relative_to(root) if source.is_relative_to(root) else source
    return f"{options}\n\nkeys, with the values of {source}; key=value changes:\n\n{shown}"


def _selected(groups: Sequence[key_help.Group], prefix: str) -> list[key_help.Group]:
    """Return the groups with only the keys that start with `prefix`. Raises UserError if none does."""
    chosen = [replace(each, keys=tuple(key for key in each.keys if key.name.startswith(prefix))) for each in groups]
    if not any(group.keys for group in chosen):
        known = [name for group in groups for name in (group.name, *(key.name for key in group.keys)) if name]
        near = nearest(prefix, known)
        hint = f"did you mean {near[0]}?" if near else f"sections: {', '.join(g.name for g in groups if g.name)}"
        raise UserError(f"--keys {prefix}: no key starts with it; {hint}")
    return [group for group in chosen if group.keys]


def complete(prefix: str, action: argparse.Action, parser: Parser, parsed_args: argparse.Namespace) -> list[str]:
    """Return an argument's completions, as a completer of argcomplete."""
    with contextlib.suppress(UserError):  # a mistake earlier in the line
        return sorted(_values(action.dest, prefix, parser.prog, parsed_args))
    return []


def _values(argument: str, prefix: str, program: str, args: argparse.Namespace) -> Iterable[str]:
    if argument == "workload":
        return workloads.names()
    if argument == "runs":
        return [run.name for run in found.find()]
    if argument not in ("name", "keys", "words"):
        return []
    if not args.workload:
        return ["--workload"]
    if argument == "name":
        return Run(workloads.name_of(args.workload), "any").names()
    if program.endswith("predict.py"):
        inputs = workloads.inputs(args.workload)
        return _of_groups([*key_help.groups(inputs.settings), *key_help.groups(inputs.input)], prefix)
    groups = key_help.groups(workloads.find(args.workload).config)
    if args.keys is None:
        return _of_groups(groups, prefix)
    return [group.name for group in groups if group.name and argument == "keys"]  # argcomplete also asks for words here


def _of_groups(groups: Iterable[key_help.Group], prefix: str) -> list[str]:
    """Return `key=` for every key; after `key=`, `key=value` for each of its choices."""
    name, equals, _ = prefix.partition("=")
    found = [key for group in groups for key in group.keys]
    if not equals:
        return [f"{key.name}=" for key in found]
    return [f"{name}={choice}" for key in found if key.name == name for choice in key.choices]
