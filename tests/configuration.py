"""Write docs/configuration.md, the keys of all configs, from the classes that read them.

make docs
"""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from common import config as configs
from common.config import key_help
from pipelines import run_config, workloads
from pipelines.engine.config import BaseConfig

PAGE = Path(__file__).resolve().parents[1] / "docs" / "configuration.md"
HEAD = """\
# Configuration

<!-- Made by `make docs` from the config classes; a test compares. -->

A run's configuration is `pipelines/configs/<workload>.yaml`, overridden by `key=value` arguments of the command;
whatever neither sets has its default. The result is validated as a whole, written into the run's folder before anything
else, and read from there by every later command.

    python pipelines/train.py --workload cvrp --help                # every key, as below
    python pipelines/train.py --workload cvrp --keys evaluation     # those of a section
    python pipelines/train.py --workload cvrp --print-config data.customers=50
    accelerate launch pipelines/train.py --workload cvrp --name mine data.customers=50 training.learning_rate=3e-4
    accelerate launch pipelines/evaluate.py --workload cvrp --name mine evaluation.decode=sampling

Values are YAML: `null` for none, `[a, b]` for lists, quotes around `"no"` or `"1e-4"` where text is meant. Training
fixes `model`, `training` and `seed`, and `data` for every workload but cvrp: later commands refuse to change them,
except that `--resume` may raise `training.steps` or `training.epochs` and change `training.micro_batch_size`.

For completion of workloads, runs, keys and values in bash and zsh:

    source pipelines/completion.bash
"""
COMMON = """
## All workloads

These are the common defaults. A workload may replace them; its section below lists its own values.
"""


def page() -> str:
    """Return the whole page."""
    common = {key.name: key for group in key_help.groups(BaseConfig) for key in group.keys}
    base = BaseConfig().training
    defaults = {f"training.{name}": getattr(base, name) for name in type(base).model_fields} | {"training.steps": None}
    parts = [HEAD, COMMON, _tables(key_help.groups(BaseConfig), defaults, common)]
    for name in workloads.names():
        workload = workloads.find(name)
        args = argparse.Namespace(workload=name, config=None, words=[])
        values = dict(configs.leaves(run_config.fresh_config(args, workload).model_dump(mode="json")))
        groups = key_help.groups(workload.config)
        own = {key.name: key for group in groups for key in group.keys if key.name not in common}
        others = [
            f"`{key.name}={key_help.shown(values[key.name])}`"
            for group in groups
            for key in group.keys
            if key.name in common and values[key.name] != _plain(defaults.get(key.name, key.default))
        ]
        parts.append(f"\n## {name}\n\nWith the values of `pipelines/configs/{name}.yaml`.\n")
        parts.append(_tables(groups, values, own))
        parts.append(f"\nCommon keys with values of its own: {', '.join(others)}.\n" if others else "")
    return "".join(parts)


def _plain(value):
    return list(value) if isinstance(value, tuple) else value


def _tables(groups, values, wanted) -> str:
    parts = []
    for group in groups:
        rows = [key for key in group.keys if key.name in wanted]
        if rows:
            heading = f"\n**{group.name}**: {group.description}\n" if group.name else "\n**Top level**\n"
            parts.append(f"{heading}\n| key | value | takes | meaning |\n| --- | --- | --- | --- |\n")
            parts += [_row(key, values.get(key.name, key.default)) for key in rows]
    return "".join(parts)


def _row(key: key_help.Key, value) -> str:
    meaning = key.description.replace("|", r"\|").replace("<", r"\<").replace("*", r"\*")
    return f"| `{key.name}` | `{key_help.shown(value)}` | `{key.type}` | {meaning} |\n"


if __name__ == "__main__":
    PAGE.write_text(page())
