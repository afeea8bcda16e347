"""Training in processes of little memory: under a cap on what they may hold beyond what is there before the task.

python tests/distributed/capped.py fsdp BYTES --workload cvrp ...
"""

import os
import re
import resource
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from pipelines import cli
from pipelines import train as stage
from pipelines.engine import loop, training  # noqa: F401 (imports come before the cap)
from tests.distributed.one_model import shard


def capped(size: int) -> None:
    """Let this process have `size` more bytes of its own than now."""
    status = Path("/proc/self/status").read_text()
    now = 1024 * int(re.search(r"VmData:\s+(\d+)", status)[1])
    resource.setrlimit(resource.RLIMIT_DATA, (now + size, now + size))


if __name__ == "__main__":
    os.environ["ACCELERATE_USE_CPU"] = "true"
    if sys.argv.pop(1) == "fsdp":
        shard()
    if "model.kind=vlm" in sys.argv:
        import transformers.models.llava.modeling_llava  # noqa: F401
    size, begin = int(sys.argv.pop(1)), training.train

    def train(*arguments):
        """Train under the cap: what imports and the processes' group take is there already."""
        capped(size)
        return begin(*arguments)

    training.train = train
    cli.run_main(stage.main)
