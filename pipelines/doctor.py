"""Is this machine ready to train? One line per check; every problem is followed by the command that mends it.

    python pipelines/doctor.py
    CUDA_VISIBLE_DEVICES=0 python pipelines/doctor.py      # with one GPU of several
    accelerate launch --config_file accelerate_configs/ddp.yaml pipelines/doctor.py      # under a launch config

Exit status: 0 ready, perhaps with warnings; 1 at least one problem.
"""

import os
import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parents[1])

from pipelines.doctor.diagnosis import Finding, diagnose


def main() -> int:
    if len(sys.argv) > 1:
        print(__doc__)
        return 0 if sys.argv[1:] in (["-h"], ["--help"]) else 2
    # Of the processes launched together one speaks and fails: a launcher kills the others as soon as one has failed.
    speaks = int(os.environ.get("RANK", 0)) == 0
    num_problems = 0
    for finding in diagnose():
        num_problems += finding.level == "problem"
        if speaks:
            show(finding)
    if not speaks:
        return 0
    if num_problems:
        print(f"\nnot ready, {num_problems} to mend: type what stands after ->, then run this again")
        return 1
    print("\nready to train")
    return 0


def show(finding: Finding) -> None:
    print(f"{finding.level:9}{finding.what}", flush=True)
    if finding.remedy:
        print("      -> " + finding.remedy.replace("\n", "\n         "), flush=True)


if __name__ == "__main__":
    sys.exit(main())
