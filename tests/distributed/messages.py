"""What ranks tell each other in a training: messages and bytes by rank on 2, 4 and 8 processes, and on 64 by these.

    python tests/distributed/messages.py        # a minute

The toy of the loop's tests is trained with DDP on CPUs. Bytes are those that a rank receives: of a sum the tensor, of a
gathering one tensor from each rank. Gradients are one message of an update: 4 bytes for each of the toy's 97 weights.
What grows with the number of processes does so in a straight line, which is drawn on to 64.
"""

import functools
import json
import os
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch.distributed
from torch.distributed import distributed_c10d

from tests import forked

SIZES, FAR = (2, 4, 8), 64
TRAINING = {"steps": 40, "batch_size": 16, "log_steps": 10, "validation_steps": 20, "checkpoint_steps": 20}
PHASES = {"update": "an update", "_log": "a record", "_validate": "a validation", "save": "a checkpoint"}
# The number of tensors that a rank receives for each one it gives.
RECEIVED = {
    "all_reduce": lambda world: 1,
    "broadcast": lambda world: 1,
    "gather": lambda world: world if torch.distributed.get_rank() == 0 else 0,
    "all_gather": lambda world: world,
    "all_gather_into_tensor": lambda world: world,
    "barrier": lambda world: 0,
}


def count() -> dict:
    """Train the toy and return {phase: [times, messages, bytes]} of this rank."""
    from pipelines.engine.loop import Loop
    from pipelines.engine.update import Updater
    from tests.engine import toy

    found, phases = defaultdict(lambda: [0, 0, 0]), ["start and end"]

    def counted(name, own):
        @functools.wraps(own)
        def call(*given, **words):
            tensors = [each for each in given if isinstance(each, torch.Tensor)] or [words.get("tensor")]
            size = sum(each.numel() * each.element_size() for each in tensors[-1:] if each is not None)
            found[phases[-1]][1] += 1
            found[phases[-1]][2] += size * RECEIVED[name](torch.distributed.get_world_size())
            return own(*given, **words)

        return call

    def within(phase, own):
        def call(*given, **words):
            found[phase][0] += 1
            phases.append(phase)
            try:
                return own(*given, **words)
            finally:
                phases.pop()

        return call

    for name in RECEIVED:
        own = counted(name, getattr(distributed_c10d, name))
        setattr(distributed_c10d, name, own)
        setattr(torch.distributed, name, own)
    for owner in (Updater, Loop):  # private methods of the loop are its phases: there is no other way to tell them
        for name in PHASES.keys() & vars(owner).keys():
            setattr(owner, name, within(PHASES[name], getattr(owner, name)))
    found["start and end"][0] = 1
    toy.train("counted", TRAINING, {})
    return found


def table() -> None:
    """Print a row for each phase and rank."""
    counts = {}
    for world in SIZES:
        with tempfile.TemporaryDirectory() as folder:
            variables = {**os.environ, "OMP_NUM_THREADS": "1", "ACCELERATE_USE_CPU": "true"}
            done = forked.run([__file__, "count"], Path(folder), variables, world)
            assert done.returncode == 0, done.stderr
            counts[world] = {rank: json.loads(Path(folder, f"{rank}.json").read_text()) for rank in range(world)}
    print("| " + " | ".join(["in", "rank", *(f"{world} processes" for world in (*SIZES, FAR))]) + " |")
    print("|---" * (len(SIZES) + 3) + "|")
    for phase in counts[SIZES[0]][0]:
        for rank, who in ((0, "first"), (1, "others")):
            means = [
                [value / counts[world][rank][phase][0] for value in counts[world][rank][phase][1:]] for world in SIZES
            ]
            slopes = [(last - first) / (SIZES[-1] - SIZES[0]) for first, last in zip(means[0], means[-1], strict=True)]
            means.append([last + slope * (FAR - SIZES[-1]) for last, slope in zip(means[-1], slopes, strict=True)])
            cells = [f"{messages:.3g}, {received:,.0f} B" for messages, received in means]
            print("| " + " | ".join([phase, who, *cells]) + " |")


if __name__ == "__main__":
    if sys.argv[1:] == ["count"]:
        rank = os.environ["RANK"]
        found = count()
        Path(f"{rank}.json").write_text(json.dumps(found))
    else:
        table()
        forked.stop()
