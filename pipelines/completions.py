"""What a shell completes (`pipelines/completion.bash`): argcomplete reads the options, this module knows the values."""

from __future__ import annotations

import os
import re
from argparse import Action, ArgumentParser, Namespace
from collections.abc import Iterable

from common.config import keys
from common.errors import UserError
from pipelines import workloads
from pipelines.inventory import found
from pipelines.run.folder import Run

FINISHED = re.compile(r"""\s[\w.]+=("[^"]*"|'[^']*'|[^\s"'])*(?=\s)""")  # words key=value before the last


def offer(parser: ArgumentParser) -> None:
    """Print what may end the command line and leave, where a shell asks for it."""
    if "_ARGCOMPLETE" in os.environ:
        import argcomplete

        # argcomplete takes options after such words for the end of them, which parse_intermixed_args does not.
        line = FINISHED.sub(" ", os.environ["COMP_LINE"])
        os.environ |= {"COMP_LINE": line, "COMP_POINT": str(len(line))}
        argcomplete.autocomplete(parser, always_complete_options=False, default_completer=complete)  # type: ignore[arg-type] # any function will do


def complete(prefix: str, action: Action, parser: ArgumentParser, parsed_args: Namespace) -> list[str]:
    """Return the values that an argument can take, as argcomplete's completers do."""
    try:
        return sorted(_values(action.dest, prefix, parser.prog, parsed_args))
    except UserError:  # a slip in the words before
        return []


def _values(argument: str, prefix: str, program: str, args: Namespace) -> Iterable[str]:
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
        return _of_groups([*keys.groups(inputs.settings), *keys.groups(inputs.input)], prefix)
    groups = keys.groups(workloads.find(args.workload).config)
    if args.keys is None:
        return _of_groups(groups, prefix)
    return [group.name for group in groups if group.name and argument == "keys"]  # where words may follow, too


def _of_groups(groups: Iterable[keys.Group], prefix: str) -> list[str]:
    """Return `key=` of every key, or `key=value` where values are to be chosen from."""
    name, equals, _ = prefix.partition("=")
    found = [key for group in groups for key in group.keys]
    if not equals:
        return [f"{key.name}=" for key in found]
    return [f"{name}={choice}" for key in found if key.name == name for choice in key.choices]
