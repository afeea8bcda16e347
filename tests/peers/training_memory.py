"""The memory told before training LLaVA-1.5-7B's sizes, against what a pass takes on a CPU.

    python tests/peers/training_memory.py [LAYERS MORE_LAYERS]

A language model of the real width and so many layers makes one forward and one backward pass of a pair, in both orders,
with and without gradient checkpointing. Its peak of resident memory over the weights is read from Linux; what the line
before training tells is found with shapes alone. Both are continued to 32 layers, of which each takes as much. The last
line is JSON: what is told over what is taken.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import torch

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from models.images import vlm_comparator
from models.images.vlm_comparator.config import PRESETS

LAYERS = 32  # of LLaVA-1.5-7B
TOKENS, FEATURES = 576, 1024  # of an image, as they enter the projector


def resident(kind):
    """Bytes of resident memory: VmRSS, those now, or VmHWM, the most since `forget`."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(kind):
            return 1024 * int(line.split()[1])
    raise SystemExit(f"/proc/self/status has no {kind}; run this on Linux")


def forget():
    """Let the most resident memory be what it is now."""
    Path("/proc/self/clear_refs").write_text("5")


def of(layers, checkpointing):
    """Bytes told and bytes taken by a pass of one pair."""
    sizes = PRESETS["llava-1.5-7b"]
    sizes["text"]["num_hidden_layers"] = layers
    sizes["vision"]["num_hidden_layers"] = 2  # the tower has no part in the pass, as what it gives is kept
    model = vlm_comparator.build({"channels": 3, "lora": True, "preset": "llava-1.5-7b"}).train()
    model.gradient_checkpointing = checkpointing
    encoded = torch.randn(2, TOKENS, FEATURES, dtype=torch.bfloat16)
    told = model.training_bytes(1, encoded.shape[1:])
    both = torch.tensor([0, 1])
    forget()
    before = resident("VmRSS")
    model(None, both, both.flip(0), encoded=encoded).float().logsumexp(-1).sum().backward()
    return told, resident("VmHWM") - before


def alone(layers, checkpointing):
    """What `of` returns in a process of its own, whose freed memory goes back to the system at once."""
    words = [sys.executable, __file__, "--one", str(layers), str(int(checkpointing))]
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536"}
    return json.loads(subprocess.run(words, check=True, capture_output=True, text=True, env=environment).stdout)


def main(few=1, more=2):
    found = {}
    for checkpointing in (False, True):
        some, rest = alone(few, checkpointing), alone(more, checkpointing)
        told, taken = (a + (LAYERS - few) * (b - a) / (more - few) for a, b in zip(some, rest, strict=True))
        name = "with checkpointing" if checkpointing else "without checkpointing"
        print(
            f"{name}: told and taken of {few} layers {some}, {more} {rest}; {LAYERS} [{told:.0f}, {taken:.0f}]",
            flush=True,
        )
        found[name] = told / taken
    print(json.dumps(found))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        print(json.dumps(of(*map(int, sys.argv[2:]))))
    else:
        main(*map(int, sys.argv[1:]))
