"""Print what may stand at the end of a command line, a word each; pipelines/completion.bash asks for it."""

import sys
from argparse import ArgumentParser
from collections.abc import Iterable, Sequence
from pathlib import Path

from common.config import keys
from common.errors import UserError
from pipelines import arguments, predict, runs, serve, workloads
from pipelines.inventory import found
from pipelines.run.folder import Run

EXPORTERS = Path(__file__).resolve().parents[1] / "exporters"
# What each command understands; keys of a config are for all but predict.py, which has its own, runs.py and serve.py.
PARSERS = {
    "train.py": lambda: arguments.parser(None, resume=True),
    "evaluate.py": lambda: arguments.parser(None),
    "prepare.py": lambda: arguments.parser(None),
    "benchmark.py": lambda: arguments.parser(None, steps=20),
    "predict.py": predict.parser,
    "runs.py": runs.parser,
    "serve.py": serve.parser,
}


def completions(line: str) -> list[str]:
    """Return the words that the last one of `line` may become; none for another command."""
    *before, last = line.split(" ")
    command = next((Path(word).name for word in before if Path(word).name in (*PARSERS, EXPORTERS.name)), None)
    if command is None:
        return []
    workload = before[before.index("--workload") + 1] if "--workload" in before[:-1] else None
    try:
        return sorted(word for word in _words(command, workload, before[-1], last) if word.startswith(last))
    except UserError:  # a slip in the words before
        return []


def _words(command: str, workload: str | None, previous: str, last: str) -> Iterable[str]:
    if previous == "--workload":
        return workloads.names()
    if previous == "--name" and workload:
        return Run(workloads.name_of(workload), "any").names()
    if command == EXPORTERS.name:
        formats = (path.stem.removeprefix("to_") for path in EXPORTERS.glob("to_*.py"))
        return [*formats, *(str(run.run.folder) for run in found.find())]
    if last.startswith("-"):
        return _options(PARSERS[command]())
    if command == "runs.py":
        return ["compare", "clean", *(run.name for run in found.find())]
    if command == "serve.py":
        return [run.name for run in found.find()]
    if not workload:
        return ["--workload"]
    if command == "predict.py":
        inputs = workloads.inputs(workload)
        return _of_groups([group for cls in (inputs.settings, inputs.input) for group in keys.groups(cls)], last)
    return _keys(workload, previous, last)


def _options(parser: ArgumentParser) -> list[str]:
    return [option for action in parser._actions for option in action.option_strings if option.startswith("--")]


def _keys(workload: str, previous: str, last: str) -> list[str]:
    """Return sections after --keys, else words of keys."""
    groups = keys.groups(workloads.find(workload).config)
    if previous == "--keys":
        return [group.name for group in groups if group.name]
    return _of_groups(groups, last)


def _of_groups(groups: Sequence[keys.Group], last: str) -> list[str]:
    """Return `key=` of every key, or `key=value` where values are to be chosen from."""
    name, equals, _ = last.partition("=")
    found = [key for group in groups for key in group.keys]
    if not equals:
        return [f"{key.name}=" for key in found]
    return [f"{name}={choice}" for key in found if key.name == name for choice in key.choices]


if __name__ == "__main__":
    print("\n".join(completions(sys.argv[1])))
