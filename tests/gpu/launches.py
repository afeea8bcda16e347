"""Count what an update sends to a device and how often the host waits for it, on an emulated device, without a GPU.

    python tests/gpu/launches.py            # prints the table of docs/hardware.md; a minute or two for each row
    python tests/gpu/launches.py cvrp bep   # some rows

An operation is what torch sends to a device as one: a kernel as a rule; views and allocations do not count. A recurrent
layer counts as its parts, of which cuDNN makes fewer. The host waits for values that it reads and for shapes that
depend on values. Both are means over updates after the first FIRST, the next batch included; the log is written every
FIRST updates, and waits for its figures once. Then comes the memory that scoring tours with their gradients holds.
"""

import json
import os
import runpy
import sys
import tempfile
import weakref
from pathlib import Path
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter

ROOT = Path(__file__).resolve().parents[2]
if __name__ == "__main__":
    sys.path[0] = str(ROOT)

from tests.test_emulated_device import CASES

FIRST, LAST, BATCH = 5, 25, 64  # updates: in the first ones kernels are compared and other things happen once
ROUTES = [
    *("data.customers=100", "data.labels=0", "training.imitation_steps=0", "training.starts=100", "model.preset=small"),
    *("data.validation_instances=2", "data.test_instances=2", "training.batch_size=2"),
]
ROWS: dict[str, list[str]] = {
    "cvrp": ROUTES,
    "cvrp, without kernels": ROUTES,
    **{name: CASES[name] for name in ("tinystories", "bep", "crypto", "lmol")},
}


def counted(row: str, folder: Path, last: int = LAST) -> dict[str, Any]:
    """Return figures of a row up to update `last`, in a process of its own."""
    from tests import forked
    from tests.workloads.bep.firm import prose, written

    written(folder / "documents", {str(seed): prose(seed) for seed in range(5)})  # for bep
    done = forked.run([__file__, "--count", row, str(last)], folder)
    if done.returncode:
        sys.exit(done.stdout + done.stderr)
    return json.loads((folder / "counts.json").read_text())


def count(row: str, last: int) -> None:
    """Train on the emulated device and write counts.json."""
    from tests import emulated_device
    from tests.gpu import kernels_on_cpu

    os.environ["ACCELERATE_TORCH_DEVICE"] = f"{emulated_device.NAME}:0"
    emulated_device.install()
    if "without" not in row:
        kernels_on_cpu.install()
    from pipelines.engine.update import Updater

    update, seen = Updater.update, []

    def counting(updater: Updater, *arguments: Any) -> Any:
        seen.append((emulated_device.OPERATIONS.copy(), emulated_device.WAITS.copy()))
        return update(updater, *arguments)

    Updater.update = counting
    workload = row.partition(",")[0]
    steps = [f"training.{name}={last}" for name in ("validation_steps", "checkpoint_steps", "steps")]
    sys.argv = ["train.py", "--workload", workload, *ROWS[row], *steps, f"training.log_steps={FIRST}"]
    sys.path.insert(0, str(ROOT / "pipelines"))
    with emulated_device.EmulatedDevice():
        runpy.run_path(str(ROOT / "pipelines/train.py"), run_name="__main__")
    (one, waited), (other, after) = seen[FIRST], seen[last - 1]
    operations, waits = other - one, after - waited
    updates = last - 1 - FIRST
    found = {
        "operations": operations.total() / updates,
        "waits": waits.total() / updates,
        "most": {name: number / updates for name, number in operations.most_common(12)},
        "where": [[what, lines[:3], number] for (what, lines), number in waits.most_common(5)],
    }
    Path("counts.json").write_text(json.dumps(found))


class Held(TorchDispatchMode):
    """Adds up the bytes of tensors that are made within it; `most` is the most at a time."""

    def __init__(self):
        super().__init__()
        self.now = self.most = 0
        self.known: set[int] = set()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        found = function(*args, **(kwargs or {}))
        for tensor in tree_iter(found):
            if isinstance(tensor, torch.Tensor) and tensor.untyped_storage()._cdata not in self.known:
                storage = tensor.untyped_storage()
                self.known.add(storage._cdata)
                self.now += storage.nbytes()
                self.most = max(self.most, self.now)
                weakref.finalize(storage, self.free, storage._cdata, storage.nbytes())
        return found

    def free(self, key: int, size: int) -> None:
        self.known.discard(key)
        self.now -= size


def scoring_memory() -> dict[str, float]:
    """Return GiB that scoring BATCH x 100 tours of 100 customers and their gradients take, without computing them."""
    from models.routing import kernels, stepwise
    from models.routing.decoder import Decoding, PointerDecoder
    from models.routing.environment import Instances

    kernels.LIBRARY.impl("score_tours", lambda *_: None, "Meta")
    found, nodes, tours, steps, width = {}, 101, 100, 115, 128
    with FakeTensorMode():
        decoder, states = PointerDecoder(width, 8, dynamic=False), torch.empty(BATCH, nodes, width, requires_grad=True)
        instances = Instances(torch.empty(BATCH, nodes, 2), torch.empty(BATCH, nodes), torch.empty(BATCH))
        cache = decoder.prepare(states, torch.empty(BATCH, nodes, nodes))
        given = (Decoding(decoder, cache, instances), torch.empty(BATCH, tours, steps, dtype=torch.long), None, True)
        for name, log_prob in ("torch", stepwise.log_prob), ("kernels", kernels.log_prob):
            with Held() as held:
                torch.autograd.grad(log_prob(*given).sum(), [states, *decoder.parameters()], retain_graph=True)
            found[name] = held.most / 2**30
    return found


def main() -> None:
    if sys.argv[1:2] == ["--count"]:
        count(sys.argv[2], int(sys.argv[3]))
        return
    print("| workload | operations an update | waits an update |\n|---|---|---|")
    for row in sys.argv[1:] or ROWS:
        with tempfile.TemporaryDirectory() as folder:
            found = counted(row, Path(folder))
            print(f"| {row} | {found['operations']:,.0f} | {found['waits']:.2f} |", flush=True)
            print(json.dumps(found), file=sys.stderr)
    print(", ".join(f"{name} {gib:.1f} GiB" for name, gib in scoring_memory().items()), f"for {BATCH} instances")


if __name__ == "__main__":
    main()
