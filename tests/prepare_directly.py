"""Prepares data in this process, under changed constants, and prints the peak of its memory after each.

    python tests/prepare_directly.py WORKLOAD '{"module.CONSTANT": value}' FOLDER '{"source": "..."}' ...

Each FOLDER is filled with the data of the section behind it.
"""

import importlib
import json
import sys
from pathlib import Path

from common.machine import peak_memory_bytes
from pipelines import workloads


def main() -> None:
    name, constants, *pairs = sys.argv[1:]
    workload = workloads.find(name)
    for constant, value in json.loads(constants).items():
        module, _, attribute = constant.rpartition(".")
        setattr(importlib.import_module(module), attribute, value)
    for folder, section in zip(pairs[::2], pairs[1::2], strict=True):
        config = workload.config.model_validate({"data": json.loads(section)})
        workload.prepare(config, Path(folder))
        print(peak_memory_bytes(), flush=True)


if __name__ == "__main__":
    main()
