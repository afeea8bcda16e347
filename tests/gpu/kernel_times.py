"""Compare the routing kernels with torch on this machine's GPU and time both. Run by figures.py.

python tests/gpu/kernel_times.py            # one JSON line
python tests/gpu/kernel_times.py --dry-run  # on the CPU, where native code takes their places
"""

import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import torch

ROOT = Path(__file__).resolve().parents[2]
sys.path[0] = str(ROOT)

from models.routing import kernels, native
from models.routing.config import PRESETS, RoutingConfig
from models.routing.environment import Instances
from models.routing.policy import RoutingPolicy

DRY = "--dry-run" in sys.argv
SIZES = {20: 512, 50: 256, 100: 64} if not DRY else {6: 4}  # customers, as many starts: instances
DEVICE = torch.device("cpu" if DRY else "cuda")


def timed(policy: RoutingPolicy, instances: Instances, uniform: torch.Tensor, mixed: bool) -> dict[str, float]:
    """Return the median milliseconds of tours and their gradients, `mixed` with bfloat16, and the most memory."""
    seconds = []
    for repetition in range(4):
        if repetition == 1 and not DRY:
            torch.cuda.reset_peak_memory_stats()
        began = time.perf_counter()
        with torch.autocast(DEVICE.type, torch.bfloat16, enabled=mixed):
            log_prob = policy(instances, uniform.shape[1], uniform).log_prob
        log_prob.sum().backward()
        if not DRY:
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - began)
    most = 0 if DRY else torch.cuda.max_memory_allocated()
    return {"ms": 1e3 * statistics.median(seconds[1:]), "gib": most / 2**30}


def main() -> None:
    if DRY:
        from tests.gpu import kernels_on_cpu

        kernels_on_cpu.install()
        kernels.DEVICES.add("cpu")
        native.decodes = lambda *_: False
    found: dict[str, Any] = {}
    config, used = RoutingConfig("gt", **PRESETS["small"]), kernels.usable
    for customers, batch in SIZES.items():
        torch.manual_seed(0)
        policy = RoutingPolicy(config).to(DEVICE)
        demand = torch.randint(1, 10, (batch, customers + 1)).float()
        demand[:, 0] = 0
        given = torch.rand(batch, customers + 1, 2), demand, torch.full((batch,), 50.0)
        instances = Instances(*(tensor.to(DEVICE) for tensor in given))
        uniform = torch.rand(batch, customers, 2 * customers).to(DEVICE)
        with torch.enable_grad():
            try:
                differs = kernels.differences(DEVICE, customers + 1, config.width, config.heads, kernels.EXACT, False)
            except Exception as error:  # what the figures are to show
                differs = f"{type(error).__name__}: {error}"[:200]
        found[str(customers)] = {"differs": differs}
        for name, usable in ("kernels", used), ("torch", lambda *_: False):
            kernels.usable = usable
            for precision in "", " bf16":
                found[str(customers)][name + precision] = timed(policy, instances, uniform, bool(precision))
        kernels.usable = used
    print(json.dumps(found))


if __name__ == "__main__":
    main()
