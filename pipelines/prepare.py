"""Prepare the data of a workload: data/<workload>/<hash of the data section>/.

    python pipelines/prepare.py --workload cvrp
    python pipelines/prepare.py --workload cvrp data.customers=50

Training prepares what is missing by itself; this is for looking at data first.
"""

import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parents[1])  # replaced: names in pipelines/ would shadow libraries

from common.config import leaves
from pipelines import arguments, cli, workloads


def main() -> None:
    args = arguments.parse(__doc__, lambda args, workload, run: cli.fresh_config(args, workload))
    workload = workloads.find(args.workload)
    folder, manifest = cli.prepare(args.workload, workload, cli.fresh_config(args, workload), renew=True)
    for key, value in leaves({k: v for k, v in manifest.items() if k not in ("sha256", "inputs")}):
        print(f"{key:28} {value}")
    print(f"{'folder':28} {folder}")


if __name__ == "__main__":
    cli.run_main(main)
