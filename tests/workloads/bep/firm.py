"""A firm's made-up documents, a stand-in for the config, and what was prepared read back."""

import random
from types import SimpleNamespace

from models.plans.characters import Characters
from pipelines.workloads.bep import data
from pipelines.workloads.bep.splits import PARTS

WORDS = "plan model information container status review issue role lead team asset space level zone grid room wall door"
WORDS = (WORDS + " exchange delivery appointed party client survey cost programme risk method code field").split()


def prose(seed, characters=2500):
    """Sentences that no other seed has."""
    generator, text = random.Random(seed), ""
    while len(text) < characters:
        text += " ".join(generator.choices(WORDS, k=9)).capitalize() + generator.choice([". ", ".\n", ".\n\n"])
    return text.strip()


def config(sources, **fields):
    section = {
        "sources": None if sources is None else str(sources),
        "skip_bad": False,
        "mask": True,
        "mask_names": True,
        "reviewed": None,
        "projects": None,
        "labels": "file",
        "lower_case": False,
        "duplicates": 0.8,
        "validation": 0.1,
        "test": 0.1,
        "hold_out": None,
        "maximum_bytes": 1_000_000,
        "seed": 0,
    }
    return SimpleNamespace(seed=0, data=SimpleNamespace(**{**section, **fields}))


def written(folder, texts):
    """A folder of text files; a key without an ending gets .txt."""
    for name, text in texts.items():
        path = folder / (name if "." in name else f"{name}.txt")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return folder


def read(folder):
    """{name: decoded text}, all blocks of a document in their order."""
    corpus = data.load(folder)
    characters = Characters(corpus.vocabulary, corpus.facts["lower_case"])
    texts = {}
    for part in PARTS:
        for text in corpus.parts[part]:
            texts.setdefault(text.name, []).append(characters.decode(text.tokens.tolist()))
    return texts


def part_of(folder):
    return {text.name: part for part, texts in data.load(folder).parts.items() for text in texts}
