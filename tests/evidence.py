"""Measure again what the documents state: whole training runs, and the comparisons of tests/peers.

    python tests/evidence.py                # every part, several hours; the same as `make evidence`
    python tests/evidence.py cvrp bep       # some of them
    python tests/evidence.py --list

A part runs commands as a user types them, reads figures from what they write or print, and holds some of the figures
to bounds. Its entry in docs/evidence.json is replaced; what other parts left there stays. A part that fails is
recorded with its last lines, and the exit status is 1. Runs are named `evidence...`, logs are in runs/evidence.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
if __name__ == "__main__":
    sys.path[0] = str(ROOT)

from common.disk import files
from pipelines.run.folder import provenance
from tests.evidence_parts import PARTS, Part


def main(arguments: Sequence[str], parts: Mapping[str, Part] = PARTS, path: Path = ROOT / "docs/evidence.json") -> int:
    """Run the parts that `arguments` name and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(parts))
    parser.add_argument("--list", action="store_true", help="print the commands of the parts and stop")
    args = parser.parse_args(arguments)
    if unknown := [name for name in args.parts if name not in parts]:
        parser.error(f"no part {', '.join(unknown)}; there are {', '.join(parts)}")
    failed, known = False, json.loads(path.read_text()) if path.exists() else {}
    about = provenance(1, {})  # now: the entry of one part is no change of the code that the next one measures
    for name, part in parts.items():
        if args.parts and name not in args.parts:
            continue
        if args.list:
            print(f"{name}, {_when(known.get(name))}:", *part.commands, sep="\n  ")
        elif part.needs and not (ROOT / part.needs).exists():
            print(f"{name}: left out, there is no {part.needs}", flush=True)
        else:
            entry = measure(name, part, about)
            recorded = json.loads(path.read_text()) if path.exists() else {}
            files.write_json(path, recorded | {name: entry})
            failed |= "failed" in entry
    return int(failed)


def _when(entry: Mapping[str, Any] | None) -> str:
    if entry is None:
        return "not measured"
    cpu = f", {entry['cpu_seconds'] / 60:.1f} CPU-minutes" if "cpu_seconds" in entry else ""
    return f"measured on {entry['date']}, {entry['seconds'] / 60:.1f} minutes{cpu}"


def measure(name: str, part: Part, about: Mapping[str, Any]) -> dict[str, Any]:
    """Run a part's commands until one fails, read its figures, and return its entry, with facts `about` the code."""
    for run in part.runs:
        shutil.rmtree(ROOT / "runs" / run, ignore_errors=True)
    log = ROOT / "runs/evidence" / f"{name}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    figures, faults, seconds, before = {}, [], [], os.times()
    with log.open("w") as output:
        for command in part.commands:
            print(f"{name}: {command}", flush=True)
            began = time.perf_counter()
            done = subprocess.run(
                command, shell=True, cwd=ROOT, env=environment, stdout=output, stderr=subprocess.STDOUT
            )
            seconds.append(round(time.perf_counter() - began, 1))
            if done.returncode:
                faults = [f"exit status {done.returncode} of {command}", *log.read_text().splitlines()[-10:]]
                break
    now = os.times()
    # Each difference by itself, or rounding can leave less than nothing.
    cpu = (now.children_user - before.children_user) + (now.children_system - before.children_system)
    for key, figure in {} if faults else part.figures.items():
        try:
            value = figure.read(log.read_text())
            json.dumps(value, allow_nan=False)
        except (OSError, ValueError, LookupError) as error:
            faults.append(f"{key}: cannot be read, {error!r}")
            continue
        figures[key] = value
        if fault := figure.fault(value):
            faults.append(f"{key}: {fault}")
    print(f"{name}: {'; '.join(faults) or 'done'} ({sum(seconds):.0f} s)", flush=True)
    return {
        "command": " && ".join(part.commands),
        "figures": figures,
        **({"failed": faults} if faults else {}),
        "seconds": round(sum(seconds), 1),
        "cpu_seconds": round(cpu, 1),
        "seconds_of_commands": seconds,
        "device": ", ".join(about["devices"]),
        "commit": about["commit"],
        "uncommitted_changes": about["uncommitted_changes"],
        "date": time.strftime("%Y-%m-%d"),
    }


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
