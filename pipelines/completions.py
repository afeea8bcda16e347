"""What a shell completes (`pipelines/completion.bash`): argcomplete reads the options, this module knows the values."""

from __future__ import annotations

import os
from argparse import Action, ArgumentParser, Namespace
from collections.abc import Iterable

from common.config import keys
from common.errors import UserError
from pipelines import workloads
from pipelines.inventory import found
from pipelines.run.folder import Run


def offer(parser: ArgumentParser) -> None:
    """Print what may end the command line and leave, where a shell asks for it."""
    if "_ARGCOMPLETE" in os.environ:
        import argcomplete

        argcomplete.autocomplete(parser, always_complete_options=False, default_completer=complete)


def complete(prefix: str, action: Action, parser: ArgumentParser, parsed_args: Namespace) -> list[str]:
    """Return the values that an argument can take, as argcomplete's completers do."""
    try:
        return sorted(_values(action.dest, getattr(parsed_args, "workload", None), prefix, "predict" in parser.prog))
    except UserError:  # a slip in the words before
        return []


def _values(argument: str, workload: str | None, prefix: str, predicts: bool) -> Iterable[str]:
    if argument == "workload":
        return workloads.names()
    if argument == "runs":
        return [run.name for run in found.find()]
    if argument not in ("name", "keys", "words"):
        return []
    if not workload:
        return ["--workload"]
    if argument == "name":
        return Run(workloads.name_of(workload), "any").names()
    if predicts:
        inputs = workloads.inputs(workload)
        return _of_groups([*keys.groups(inputs.settings), *keys.groups(inputs.input)], prefix)
    groups = keys.groups(workloads.find(workload).config)
    return [group.name for group in groups if group.name] if argument == "keys" else _of_groups(groups, prefix)


def _of_groups(groups: Iterable[keys.Group], prefix: str) -> list[str]:
    """Return `key=` of every key, or `key=value` where values are to be chosen from."""
    name, equals, _ = prefix.partition("=")
    found = [key for group in groups for key in group.keys]
    if not equals:
        return [f"{key.name}=" for key in found]
    return [f"{name}={choice}" for key in found if key.name == name for choice in key.choices]
