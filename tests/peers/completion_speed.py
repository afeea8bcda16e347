"""Measure how fast a mixture writes, and how fast it reads a document before it does, on one thread.

    python tests/peers/completion_speed.py [RUN]

RUN is a trained run, as in runs/bep/default; if none is given, one is trained for 20 updates, since the time depends on
the sizes, not on how good a model is. It prints characters generated per CPU-second, 400 in a row and 30 of each of 1,
8 and 64 texts that are written side by side, their prompts read in that time, too; and the CPU-seconds for 140,000
characters: the embedded plans, and the same backwards, of which no longer context was seen before. Each is
the median of five.
"""

import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

ROOT = Path(__file__).resolve().parents[2]
sys.path[0] = str(ROOT)

from models import io
from pipelines.workloads.bep import data
from tests.peers.fine_tuning import BASE, train

PROMPT, CHARACTERS = "The information manager is responsible for ", 400
DOCUMENT = 140_000  # characters
TIMES = 5
BEGUN, FEW, SIDE_BY_SIDE = "The scope of the works includes ", 30, (1, 8, 64)  # as tests/server/load.py asks


def main(run: str | None) -> None:
    torch.set_num_threads(1)
    plans = sorted(data.EMBEDDED.glob("*.md"))
    with tempfile.TemporaryDirectory() as folder:
        if run is None:
            train(Path(folder), "base", plans[BASE], 20)
        model = io.load(Path(run or f"{folder}/runs/bep/base") / "model/best")
    text = "".join(plan.read_text() for plan in plans)[:DOCUMENT]
    seconds = cpu_seconds(lambda seed: model.complete(PROMPT, CHARACTERS, seed=seed))
    found: dict[str, Any] = {"characters_per_s": CHARACTERS / seconds}
    for number in SIDE_BY_SIDE:
        inputs = [{"prompt": BEGUN, "item": item} for item in range(number)]
        written = sum(len(answer["text"]) for answer in model.predict(inputs, number, length=FEW))
        seconds = cpu_seconds(lambda _, own=inputs: list(model.predict(own, len(own), length=FEW)))
        found[f"{number} side by side, characters_per_s"] = written / seconds
    for name, document in (("plans", text), ("backwards", text[::-1])):
        tokens = np.array(model.characters.encode(document), np.int64)
        for adapting, how in ((False, "frozen"), (True, "adapting")):
            read = cpu_seconds(lambda _, tokens=tokens, adapting=adapting: model.reader(adapting=adapting).skim(tokens))
            found[f"{name}, {how}, s"] = read
    print(json.dumps({key: round(value, 3) for key, value in found.items()}))


def cpu_seconds(measured: Callable[[int], Any]) -> float:
    """Return the median CPU-seconds of a call."""
    spent = []
    for number in range(TIMES):
        began = time.process_time()
        measured(number)
        spent.append(time.process_time() - began)
    return statistics.median(spent)


if __name__ == "__main__":
    main(sys.argv[1] if sys.argv[1:] else None)
