"""Search sizes and settings of stories on the chip at equal processor time; print a line of JSON for each candidate.

    python tests/peers/story_search.py SOURCE SECONDS [CANDIDATE ...]

Each of CANDIDATES, or those that are named, is trained on a text (as `data.source`) by as many updates as take about
SECONDS CPU-seconds on one thread; 300 is a whole run. Results are kept in runs/story-search, and what is there is not
trained again. They are bits/character

- `training`: of the last updates, with dropout, and without what a window itself put into the memory;
- `validation` and `held_out`: of the text that picks the best model, and of that which judges it;
- `mixed`: of both with n-grams of the same tokens (Kneser-Ney) mixed in, by the share that suits the validation text;

and `together` of the FEW candidates with the fewest bits of validation text, whose probabilities are averaged: what a
teacher that is larger than the chip could hand on. Choose by `validation`; `held_out` says what comes of it.
"""

import hashlib
import json
import resource
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from common import kneser_ney
from common.config import load
from common.disk import files
from common.text import BITS_PER_NAT, token_nats
from models import io
from models.stories import rp2040
from models.stories.ngram_counts import sequences
from models.stories.tiny_transformer import TinyTransformer
from pipelines import loading, run_config
from pipelines.workloads.tinystories import WORKLOAD, data
from pipelines.workloads.tinystories.config import Config
from pipelines.workloads.tinystories.task import Windows, text_only, unseen
from tests.peers.run_stage import run_stage

RESULTS = Path("runs/story-search")
RUN = Path("runs/tinystories/story-search")
EVERY = (
    "training.epochs=null training.batch_size=16 training.learning_rate=5e-3 model.dropout=0.2 training.patience=null"
    " hardware.threads=1"
)
CANDIDATES = {  # words that come after those of EVERY
    "preset": "",
    "dropout 0.1": "model.dropout=0.1",
    "dropout 0.3": "model.dropout=0.3",
    "weight decay 0.2": "training.weight_decay=0.2",
    "averaged weights": "training.ema=0.99",
    "rate 1e-2": "training.learning_rate=1e-2",
    "muon": "training.optimizer=muon",
    "batch 32": "training.batch_size=32",
    "no tables": "model.memory=[]",
    "half the tables": "model.memory=[4096,8192]",
    "more bigrams": "model.memory=[16384,8192]",
    "4-grams": "model.memory=[8192,8192,8192]",
    "4-grams and 5-grams": "model.memory=[4096,8192,8192,4096]",
    "wider": "model.width=80 model.layers=2 model.hidden=160 model.context=48 model.memory=[4096,16384]",
    "narrower and deeper": "model.width=48 model.layers=4 model.hidden=192 model.memory=[16384,16384]",
    "smaller": "model.width=48 model.layers=3 model.hidden=128 model.memory=[16384,16384]",
    "256 tokens": "model.vocabulary=256 model.hidden=208",
    "1,024 tokens": "model.vocabulary=1024 model.layers=2 model.hidden=128",
}
TIMED = 4  # updates by which a candidate's speed is measured
SHARES = np.linspace(0, 1, 21)  # of the networks in a mixture
FEW = 4
SPLITS = ("validation", "held_out")
Nats = dict[str, np.ndarray]  # by split: of each token of text (n,)


def main(source: str, seconds: float, names: Sequence[str]) -> None:
    if unknown := set(names) - set(CANDIDATES):
        raise SystemExit(f"no candidate {', '.join(sorted(unknown))}; there are: {', '.join(CANDIDATES)}")
    torch.set_num_threads(1)
    source = str(Path(source).resolve())
    RESULTS.mkdir(parents=True, exist_ok=True)
    found: list[dict[str, Any]] = []
    for name in names or CANDIDATES:
        words = f"data.source={source} {EVERY} {CANDIDATES[name]}".strip()
        path = RESULTS / f"{hashlib.sha256(f'{seconds} {words}'.encode()).hexdigest()[:16]}.json"
        if not path.exists():
            result = {"candidate": name, "words": words, **tried(words.split(), seconds, path.with_suffix(".npz"))}
            files.write_json(path, result)
        found.append({**json.loads(path.read_text()), "path": path})
        print(json.dumps({key: value for key, value in found[-1].items() if key != "path"}), flush=True)
    print(json.dumps({"together": together(found, load_config(f"data.source={source} {EVERY}".split()))}))


def load_config(words: Sequence[str]) -> Config:
    return cast(Config, load(run_config.config_file("tinystories"), WORKLOAD.config, [*words, "training.steps=1"]))


def tried(words: Sequence[str], seconds: float, kept: Path) -> dict[str, Any]:
    """Train a candidate for so many CPU-seconds, keep its nats, and return its sizes and figures."""
    config = load_config(words)
    folder, facts = loading.prepare("tinystories", WORKLOAD, config)
    updates = max(1, round(seconds / seconds_per_update(config, folder)))
    shutil.rmtree(RUN, ignore_errors=True)
    began = children_seconds()
    run_stage(".", "train.py", "--workload", "tinystories", "--name", RUN.name, *words, f"training.steps={updates}")
    spent = children_seconds() - began
    model = cast(TinyTransformer, io.load(RUN / "model/best"))
    sequence = config.sequence(model.config.context)
    network = {split: nats(model, unseen(folder, split, sequence, torch.device("cpu"))) for split in SPLITS}
    np.savez(kept, validation=network["validation"], held_out=network["held_out"])
    records = [json.loads(line) for line in (RUN / "metrics.jsonl").read_text().splitlines()]
    last = [record["train/loss"] for record in records if "train/loss" in record][-1]
    per_character = facts["train"]["tokens"] / facts["train"]["characters"] * BITS_PER_NAT
    return {
        "updates": updates,
        "cpu_seconds": round(spent),
        "sram_bytes": rp2040.sram_bytes(model.config),
        "flash_bytes": rp2040.flash_bytes(model.config),
        "tokens_per_s": round(rp2040.CLOCK_HZ / rp2040.cycles_per_token(model.config)),
        "training": round(last * per_character, 4),
        **{split: round(bits(network[split], facts[split]), 4) for split in SPLITS},
        "mixed": mixed(network, folder, model.config.vocabulary),
    }


def seconds_per_update(config: Config, folder: Path) -> float:
    """Return the CPU-seconds of a forward and a backward pass, without those of the first batch, which is slower."""
    task = WORKLOAD.task(config, folder, torch.device("cpu"))
    task.model.train()
    items = torch.arange(config.training.batch_size) % cast(Windows, task.train).size
    began = 0.0
    for number in range(TIMED + 1):
        if number == 1:
            began = time.process_time()
        loss = task.loss(task.model, task.train.batch(items))
        (loss.value / loss.count).backward()
    return (time.process_time() - began) / TIMED


def children_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


@torch.no_grad()
def nats(model: TinyTransformer, windows: Windows) -> np.ndarray:
    """Return the nats (n,) of each token of text, in its order."""
    found = []
    for items in torch.arange(windows.size).split(16):
        batch = windows.batch(items)
        found.append(token_nats(model(batch["tokens"], batch["stories"]), batch["targets"])[text_only(batch)])
    return torch.cat(found).double().numpy()


def mixed(network: Nats, folder: Path, vocabulary: int) -> dict[str, float]:
    """Return the bits of the network and n-grams mixed, by the share of the network that suits the validation text."""
    training, facts = data.tokens(folder, "train"), data.facts(folder)
    counted = kneser_ney.KneserNey.chosen(sequences(training, data.numbers(training)), vocabulary)
    grams = {}
    for split in SPLITS:
        stream = data.tokens(folder, split)
        predicted = counted.nats(sequences(stream, data.numbers(stream)))
        grams[split] = np.concatenate([each[:-1] for each in predicted])  # without the ends of stories

    def both(split: str, share: float) -> float:
        probability = share * np.exp(-network[split]) + (1 - share) * np.exp(-grams[split])
        return bits(-np.log(probability), facts[split])

    share = min(SHARES, key=lambda share: both("validation", share))
    return {"share": round(float(share), 2), **{split: round(both(split, share), 4) for split in SPLITS}}


def together(found: Sequence[dict[str, Any]], config: Config) -> dict[str, Any]:
    """Return the figures of the FEW best candidates that have the tokens of `config`, their probabilities averaged."""
    folder, facts = loading.prepare("tinystories", WORKLOAD, config)
    alike = [each for each in found if "model.vocabulary" not in each["words"]]
    best = sorted(alike, key=lambda each: each["validation"])[:FEW]
    kept = [np.load(each["path"].with_suffix(".npz")) for each in best]
    average = {split: -np.log(np.mean([np.exp(-each[split]) for each in kept], 0)) for split in SPLITS}
    return {
        "candidates": [each["candidate"] for each in best],
        **{split: round(bits(average[split], facts[split]), 4) for split in SPLITS},
        "mixed": mixed(average, folder, config.data.vocabulary),
    }


def bits(nats: np.ndarray, facts: Mapping[str, Any]) -> float:
    return float(nats.sum()) * BITS_PER_NAT / facts["characters"]


if __name__ == "__main__":
    if len(sys.argv) < 3:
        raise SystemExit(__doc__)
    main(sys.argv[1], float(sys.argv[2]), sys.argv[3:])
