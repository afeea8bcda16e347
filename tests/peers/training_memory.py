"""The memory told before training LLaVA-1.5-7B's sizes, against what a pass takes on a CPU.

    python tests/peers/training_memory.py [LAYERS ...]

A language model of the real width and so many layers makes one forward and one backward pass of a pair, in both orders,
with and without gradient checkpointing. Its peak of resident memory over the weights is read from Linux; what the line
before training tells is found with shapes alone. The last line is JSON: the bytes of each, and what both say of 32
layers, on which each further layer takes as much.
"""

import json
import sys
from pathlib import Path

import torch

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from models import vlm_comparator
from models.vlm_comparator.config import PRESETS

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


def main(*layers):
    few, more = layers or (1, 2)
    found = {}
    for checkpointing in (False, True):
        (told, taken), (told_more, taken_more) = (of(count, checkpointing) for count in (few, more))
        whole = [
            some + (LAYERS - few) * (rest - some) / (more - few)
            for some, rest in ((told, told_more), (taken, taken_more))
        ]
        name = "with checkpointing" if checkpointing else "without checkpointing"
        found[name] = {
            f"told, {few} and {more} layers": [told, told_more],
            f"taken, {few} and {more} layers": [taken, taken_more],
            f"told and taken, {LAYERS} layers": whole,
            "told_over_taken": whole[0] / whole[1],
        }
        print(name, found[name], flush=True)
    print(json.dumps({name: each["told_over_taken"] for name, each in found.items()}))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
