"""Go on from a base with 1, 3 or 10 plans of one's own, and train on these from scratch; print bits/character.

    python tests/peers/fine_tuning.py [STEPS [NUMBERS]]

The base has read four embedded plans in 4 x STEPS updates (60 if not given); both others take STEPS updates at equal
settings, on plans that the base has not seen. NUMBERS, as in 1,3,10, says on how many. All are judged by two further
plans, with intervals by blocks of 500 characters.
"""

import json
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path[0] = str(ROOT)

from common.config import build
from common.statistics import ratio_percentiles, resampled_counts
from common.text import BITS_PER_NAT
from models import io
from pipelines.workloads.bep import data, evaluation
from pipelines.workloads.bep.config import Config
from tests.peers.run_stage import run_stage

BASE, OWN, HELD_OUT = slice(0, 4), slice(4, 14), slice(14, 16)  # of the embedded plans


def main(steps: int, numbers: list[int]) -> None:
    plans = sorted(data.EMBEDDED.glob("*.md"))
    found = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        train(folder, "base", plans[BASE], 4 * steps)
        held_out = prepared(folder, plans[HELD_OUT])
        for number in numbers:
            own = plans[OWN][:number]
            train(folder, f"scratch-{number}", own, steps)
            train(folder, f"tuned-{number}", own, steps, "model.base=runs/bep/base", "training.learning_rate=1e-3")
            for adapting in (False, True):
                kind = f"{number} documents, {'adapting' if adapting else 'frozen'}"
                found[kind] = compared(folder, number, held_out, adapting)
                print(kind, found[kind], flush=True)
    print(json.dumps(found))


def compared(folder: Path, number: int, held_out: Path, adapting: bool) -> dict[str, Any]:
    """Return bits/character of both models, and what the tuned one saves."""
    models = (io.load(folder / f"runs/bep/{kind}-{number}/model/best") for kind in ("scratch", "tuned"))
    scratch, tuned = (bits(model, held_out, adapting) for model in models)
    characters = blocks(held_out)[1]
    drawn = resampled_counts(len(characters), 2000, 0)
    return {
        "scratch": float(scratch.sum() / characters.sum()),
        "tuned": float(tuned.sum() / characters.sum()),
        "gain": float((scratch - tuned).sum() / characters.sum()),
        "interval": ratio_percentiles(scratch - tuned, characters, drawn),
    }


def train(folder: Path, name: str, plans: list[Path], steps: int, *words: str) -> None:
    """Train a run on all of some plans."""
    sources = copied(folder / f"plans-{name}", plans)
    every = ["data.hold_out=false", f"training.steps={steps}", f"training.validation_steps={steps}"]
    every += [f"data.sources={sources}", "hardware.threads=1", "training.warmup_steps=10", *words]
    config = str(ROOT / "pipelines/configs/bep.yaml")
    run_stage(str(folder), "train.py", "--workload", "bep", "--config", config, "--name", name, *every)


def copied(folder: Path, plans: list[Path]) -> Path:
    folder.mkdir(exist_ok=True)
    for plan in plans:
        shutil.copy(plan, folder)
    return folder


def prepared(folder: Path, plans: list[Path]) -> Path:
    """Return the folder of the prepared plans."""
    out = folder / "held-out"
    words = [f"data.sources={copied(folder / 'plans-held-out', plans)}", "data.hold_out=false"]
    data.prepare(build(Config, {}, words, "the comparison"), out)
    return out


def bits(model: Any, held_out: Path, adapting: bool) -> np.ndarray:
    """Return the bits (n,) of each block of the held-out plans."""
    documents = data.load(held_out, model.config.vocabulary).parts["train"]
    nats = evaluation.read(model, documents, adapting)["nats"]
    return np.add.reduceat(nats * BITS_PER_NAT, blocks(held_out)[0])


def blocks(held_out: Path) -> tuple[np.ndarray, np.ndarray]:
    """Return where each block begins, and its characters."""
    starts, _, characters = evaluation.blocks_of([len(each.tokens) for each in data.load(held_out).parts["train"]])
    return starts, characters


if __name__ == "__main__":
    given = sys.argv[2] if sys.argv[2:] else "1,3,10"
    main(int(sys.argv[1]) if sys.argv[1:] else 60, [int(each) for each in given.split(",")])
