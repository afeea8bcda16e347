"""Check whether this machine is ready to train: one line per check, and the command that fixes each problem.

    python pipelines/doctor.py
    CUDA_VISIBLE_DEVICES=0 python pipelines/doctor.py      # with one GPU of several
    accelerate launch --config_file accelerate_configs/ddp.yaml pipelines/doctor.py      # under a launch config

Exit status: 0 if the machine is ready, perhaps with warnings; 1 if there is at least one problem.
"""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parents[1])  # replaced: names in pipelines/ would shadow libraries

from common.packages import version
from pipelines.checks import Finding
from pipelines.checks.installation import check_disk, check_packages, check_python, check_torch_import


def main() -> int:
    """Print the findings; return the exit status."""
    if sys.argv[1:] == ["--version"]:
        print(version())
        return 0
    if len(sys.argv) > 1:
        print(__doc__)
        return 0 if sys.argv[1:] in (["-h"], ["--help"]) else 2
    # Only rank 0 prints and fails: a launcher kills the other processes once one has failed.
    speaks, num_problems = int(os.environ.get("RANK", 0)) == 0, 0
    for finding in diagnose():
        num_problems += finding.level == "problem"
        if speaks:
            show(finding)
    if speaks:
        counted = f"{num_problems} problem{'s' * (num_problems > 1)}"
        fix = f"not ready: {counted}; run the command after each ->, then run this again"
        print(f"\n{fix if num_problems else 'ready to train'}")
    return int(speaks and num_problems > 0)


def diagnose() -> Iterator[Finding]:
    """Yield all findings, each as soon as it is known; without torch, those that do not need it."""
    for check in (check_python, check_packages, check_disk):
        yield from check()
    unusable = list(check_torch_import())
    yield from unusable
    if not unusable:
        from pipelines.checks.accelerate_config import check_accelerate
        from pipelines.checks.pytorch import check_gpus, check_torch_build, check_training_step

        for check in (check_torch_build, check_gpus, check_training_step, check_accelerate):
            yield from check()


def show(finding: Finding) -> None:
    """Print a finding and its remedy."""
    print(f"{finding.level:9}{finding.message}", flush=True)
    if finding.remedy:
        print("      -> " + finding.remedy.replace("\n", "\n         "), flush=True)


if __name__ == "__main__":
    sys.exit(main())
