"""Texts that the tests prepare stories from, and a stand-in for the config."""

from pathlib import Path
from types import SimpleNamespace

from pipelines.workloads.tinystories import data
from pipelines.workloads.tinystories.config import Data
from pipelines.workloads.tinystories.generated_stories import generate

STORIES = list(generate(0, 30_000))[:30]
BOOK = "".join(f"On day {day} the fox ran {day * day} steps,\nand then it slept.\n" for day in range(300))


def config(source: Path | str | None = None, **fields) -> SimpleNamespace:
    """A stand-in for the workload's config."""
    section = {
        "source": None if source is None else str(source),
        "percent": 100,
        "vocabulary": 160,
        "passage_characters": 500,
        "generated_characters": 30_000,
        "seed": 0,
    }
    return SimpleNamespace(seed=0, data=Data.model_construct(**{**section, **fields}))


def written(path: Path, blocks: list[str], between: str = "\n<|endoftext|>\n") -> Path:
    path.write_text(between.join(blocks), encoding="utf-8", newline="")
    return path


def parts(folder: Path) -> tuple[list[str], list[str]]:
    return data.stories(folder, "train"), data.stories(folder, "held_out")


def both(folder: Path) -> list[str]:
    train, held_out = parts(folder)
    return [*train, *data.stories(folder, "validation"), *held_out]
