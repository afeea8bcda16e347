"""All checks of this machine, in order. Each looks at one thing and yields findings: what it saw, and the remedy.

torch and Accelerate are imported inside the checks, so that a machine on which they are missing or broken gets an
answer too.
"""

from collections.abc import Iterator

from pipelines.checks.accelerate_config import check_accelerate
from pipelines.checks.builds import check_torch_build
from pipelines.checks.computing import check_precision, check_training_step
from pipelines.checks.findings import Finding
from pipelines.checks.gpus import check_gpus
from pipelines.checks.installation import check_disk, check_packages, check_python, check_torch_import


def diagnose() -> Iterator[Finding]:
    """Yield all findings, each as soon as it is known; without torch, those that need none."""
    for check in (check_python, check_packages, check_disk):
        yield from check()
    unusable = list(check_torch_import())
    yield from unusable
    if unusable:
        return
    for check in (check_torch_build, check_gpus, check_precision, check_training_step, check_accelerate):
        yield from check()
