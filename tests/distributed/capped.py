"""Training in processes of little memory: under a cap on what they may hold beyond what is there before the task.

    python tests/distributed/capped.py fsdp BYTES --workload cvrp ...
    python tests/distributed/capped.py fsdp BYTES evaluate --workload cvrp ...    # capped before the model is loaded

0 bytes are no cap.
"""

import os
import re
import resource
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from torch.distributed.tensor import DTensor

from pipelines import evaluate, exits, loading
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
    size = int(sys.argv.pop(1))
    evaluates = sys.argv[1] == "evaluate" and bool(sys.argv.pop(1))
    place, name = (loading, "trained_models") if evaluates else (training, "train")
    begin = getattr(place, name)

    def begun(*arguments):
        """Begin under the cap: what imports and the processes' group take is there already."""
        if size:
            capped(size)
        found = begin(*arguments)
        if evaluates:
            split = [isinstance(each, DTensor) for model in found.values() for each in model.parameters()]
            print(f"{sum(split)} of {len(split)} weights are split")
        return found

    setattr(place, name, begun)
    exits.run_main(evaluate.main if evaluates else stage.main)
