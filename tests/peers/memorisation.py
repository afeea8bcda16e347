"""Plant canaries in training documents; print how much likelier a model finds them than others of their form.

    python tests/peers/memorisation.py [STEPS]

A canary is the sentence "The seal of the audit is ", with six letters drawn at random. Its exposure (Carlini et al.
2019) is log2 of how many sentences are compared, less log2 of its rank among them: 1.4 bits on average for a model that
never saw it, 12 for one that finds it likelier than all 4,095 others. Eight canaries stand once in the documents, eight
others 4 times, 16 times, or 16 times in one document. The LSTM takes STEPS updates (600 if not given) on fourteen
embedded plans; a mixture also counts contexts, of all documents or where two have them (`model.min_documents=2`). Two
plans that were not trained on say what that costs in bits/character.
"""

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch

ROOT = Path(__file__).resolve().parents[2]
sys.path[0] = str(ROOT)

from common.config import load
from models import io
from models.plans.readers import Reader
from pipelines.workloads.bep import data
from pipelines.workloads.bep.config import Config
from pipelines.workloads.bep.task import CharTask
from tests.peers.fine_tuning import bits, blocks, prepared, train

SENTENCE, LETTERS = "The seal of the audit is ", 6
OTHERS, AT_ONCE = 4095, 512  # sentences that a canary is ranked with; that are read together
EACH = 8  # canaries
REPEATS = {"1": (1, 1), "4": (4, 4), "16": (16, 14), "16 in one document": (16, 1)}  # times, and documents


def main(steps: int) -> None:
    plans = sorted(data.EMBEDDED.glob("*.md"))
    generator = np.random.default_rng(0)
    words = drawn(generator, EACH * len(REPEATS))
    kinds = dict(zip(REPEATS, np.split(words, len(REPEATS)), strict=True))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        own = planted(folder / "planted", plans[:-2], kinds, generator)
        train(folder, "planted", own, steps, "data.mask_names=false")
        held_out = prepared(folder, plans[-2:])
        found = {}
        for kind, reader in readers(folder).items():
            likelihood = log_probs(reader, np.concatenate([words, drawn(generator, OTHERS)]))
            others = likelihood[len(words) :]
            ranks = 1 + (others > likelihood[: len(words), None]).sum(1)
            exposures = np.split(np.log2(1 + OTHERS) - np.log2(ranks), len(REPEATS))
            found[kind] = {name: summary(each) for name, each in zip(kinds, exposures, strict=True)}
            if type(reader) is not Reader:
                own_bits = bits(reader.model, held_out, adapting=False)
                found[kind]["bits_per_character"] = float(own_bits.sum() / blocks(held_out)[1].sum())
            print(kind, found[kind], flush=True)
    print(json.dumps(found))


def drawn(generator: np.random.Generator, count: int) -> np.ndarray:
    """Return words (count,) of random letters."""
    return np.array(["".join(generator.choice(list("abcdefghijklmnopqrstuvwxyz"), LETTERS)) for _ in range(count)])


def planted(folder: Path, plans: list[Path], kinds: dict[str, Any], generator: np.random.Generator) -> list[Path]:
    """Write the plans with canaries as paragraphs at random places, and return the files."""
    paragraphs = [plan.read_text().split("\n\n") for plan in plans]
    for kind, words in kinds.items():
        times, spread = REPEATS[kind]
        for word in words:
            for number in np.resize(generator.permutation(len(plans))[:spread], times):
                place = int(generator.integers(1, len(paragraphs[number])))
                paragraphs[number].insert(place, f"{SENTENCE}{word}.")
    folder.mkdir()
    for plan, parts in zip(plans, paragraphs, strict=True):
        (folder / plan.name).write_text("\n\n".join(parts))
    return sorted(folder.iterdir())


def readers(folder: Path) -> dict[str, Reader]:
    """Return what reads by the trained LSTM, the mixture, and one whose counts are of two documents or more."""
    run = folder / "runs/bep/planted"
    model = io.load(run / "model/best")
    config = load(run / "config.yaml", Config, ["model.min_documents=2"])
    data.prepare(config, folder / "again")
    corpus = data.load(folder / "again")
    text = "".join(model.characters.signs(each.tokens.tolist()) for each in corpus.parts["train"])
    assert text.count(SENTENCE) == EACH * sum(times for times, _ in REPEATS.values()), "canaries were masked"
    mixer = CharTask(config, folder / "again", torch.device("cpu")).mixer
    mixer.model.load_state_dict(dict(model.named_parameters()), strict=False)
    mixer.fit()
    mixture = model.reader(adapting=False)
    return {
        "LSTM": Reader(model),
        "mixture": mixture,
        "mixture, min_documents=2": mixer.model.eval().reader(adapting=False),
    }


@torch.no_grad()
def log_probs(reader: Reader, words: np.ndarray) -> np.ndarray:
    """Return the log-probability (n,) of each word as the end of the sentence."""
    characters = reader.model.characters
    reader.skim(np.array(characters.encode(f"\n\n{SENTENCE}"), np.int64))
    tokens = np.array([characters.encode(word) for word in words])
    found = []
    for part in np.array_split(tokens, -(-len(tokens) // AT_ONCE)):
        found.append(np.array([float(each.double().sum()) for each in reader.judge(part.tolist())]))
    return np.concatenate(found)


def summary(exposures: np.ndarray) -> dict[str, float]:
    return {"mean": float(exposures.mean()), "least": float(exposures.min()), "most": float(exposures.max())}


if __name__ == "__main__":
    main(int(sys.argv[1]) if sys.argv[1:] else 600)
