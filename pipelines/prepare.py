"""Prepare the data of a workload: data/<workload>/<hash of the data section>/.

    python pipelines/prepare.py --workload cvrp
    python pipelines/prepare.py --workload cvrp data.customers=50

Training prepares missing data itself; use this to look at them first.
"""

import re
import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parents[1])  # replaced: names in pipelines/ would shadow libraries

from common.config import leaves
from common.foreign_text import printable
from pipelines import arguments, exits, loading, run_config, workloads

MOST, FACTS = 5, 30  # elements shown of a list, and facts shown
OF_FILES = re.compile(r"files\..*\.(?:kept|pages|sha256)")  # so many that they would hide the rest


def main() -> None:
    """Prepare the data and show what was found."""
    args = arguments.parse(__doc__, lambda args, workload, run: run_config.fresh_config(args, workload))
    workload = workloads.find(args.workload)
    folder, manifest = loading.prepare(args.workload, workload, run_config.fresh_config(args, workload), renew=True)
    # What was found; --print-config has the settings, the manifest has all.
    facts = leaves({key: value for key, value in manifest.items() if key not in ("sha256", "inputs", "data", "note")})
    found = [(key, value) for key, value in facts if value not in (None, "", [], {}) and not OF_FILES.fullmatch(key)]
    width = max((len(key) for key, _ in found[:FACTS]), default=0)
    for key, value in found[:FACTS]:
        parts = list(map(str, value)) if isinstance(value, list) else [str(value)]
        more = f", ... ({len(parts)} in all)" * (len(parts) > MOST)
        print(printable(f"{key:{width}}  {', '.join(parts[:MOST])}{more}"))
    print(f"... and {len(found) - FACTS} more\n" * (len(found) > FACTS))
    print(f"prepared: {folder}, with all of these in manifest.json")


if __name__ == "__main__":
    exits.run_main(main)
