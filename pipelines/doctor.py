"""Check whether this machine is ready to train: one line per check, and the command that fixes each problem.

    python pipelines/doctor.py
    CUDA_VISIBLE_DEVICES=0 python pipelines/doctor.py      # with one GPU of several
    accelerate launch --config_file accelerate_configs/ddp.yaml pipelines/doctor.py      # under a launch config

Exit status: 0 if the machine is ready, perhaps with warnings; 1 if there is at least one problem.
"""

import os
import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parents[1])  # replaced: names in pipelines/ would shadow libraries

from common.version import version
from pipelines.checks.diagnosis import diagnose
from pipelines.checks.findings import Finding


def main() -> int:
    """Print the findings; return the exit status."""
    if sys.argv[1:] == ["--version"]:
        print(version())
        return 0
    if len(sys.argv) > 1:
        print(__doc__)
        return 0 if sys.argv[1:] in (["-h"], ["--help"]) else 2
    # Of several launched processes the first one speaks and fails: a launcher kills the others once one has failed.
    speaks = int(os.environ.get("RANK", 0)) == 0
    num_problems = 0
    for finding in diagnose():
        num_problems += finding.level == "problem"
        if speaks:
            show(finding)
    if not speaks:
        return 0
    if num_problems:
        counted = "1 problem" if num_problems == 1 else f"{num_problems} problems"
        print(f"\nnot ready: {counted}; run the command after each ->, then run this again")
        return 1
    print("\nready to train")
    return 0


def show(finding: Finding) -> None:
    """Print a finding and its remedy."""
    print(f"{finding.level:9}{finding.message}", flush=True)
    if finding.remedy:
        print("      -> " + finding.remedy.replace("\n", "\n         "), flush=True)


if __name__ == "__main__":
    sys.exit(main())
