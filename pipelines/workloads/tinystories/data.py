"""Prepared stories: written once as text and tokens, read back by training and evaluation."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import datasets
import numpy as np
import pyarrow as pa

from common.errors import UserError
from common.prepared import MANIFEST
from models.tiny_transformer import UNKNOWN
from pipelines.workloads.tinystories.sources import WAYS, clean, read, source_files
from pipelines.workloads.tinystories.splitting import split
from pipelines.workloads.tinystories.tokenization import alphabet, encode, train_tokenizer

if TYPE_CHECKING:
    from pipelines.workloads.tinystories import Config, Data


def prepare(config: "Config", folder: Path) -> Mapping[str, Any]:
    """Write the splits "train" and "held_out" (text, tokens) and tokenizer.json; return facts for the manifest.

    The tokenizer is trained on the training split only. Raises UserError for a source that cannot be read, for a text
    too short to hold a story out, and for a vocabulary that the text does not allow.
    """
    datasets.disable_progress_bars()
    source, texts = read(config.data)
    blocks = [block for text in texts for block in clean(text)]
    if not blocks:
        raise UserError(f"{source}: there is no text in it (it is empty or white space only); {WAYS}")
    parts, how, duplicates = split(blocks, config.data, source)
    bpe = train_tokenizer(parts["train"], config.data.vocabulary)
    tables = {name: encode(bpe, part) for name, part in parts.items()}
    datasets.DatasetDict({name: datasets.Dataset(table) for name, table in tables.items()}).save_to_disk(folder)
    bpe.save(str(folder / "tokenizer.json"))
    return {
        "source": source,
        "files": [path.name for path in inputs(config.data)],
        "split": how,
        "duplicates_removed": duplicates,
        "nul_characters_removed": sum(text.count("\0") for text in texts),
        **{name: _sizes(parts[name], table) for name, table in tables.items()},
        "vocabulary": bpe.get_vocab_size(),
        "alphabet": len(alphabet(parts["train"])),
    }


def inputs(data: "Data") -> list[Path]:
    """Return the user's files that the stories come from; none for the generator, a dataset id or a missing source."""
    return [] if data.source is None else source_files(data.source)


def _sizes(texts: Sequence[str], table: pa.Table) -> dict[str, Any]:
    tokens, _ = _flat(table)
    characters = sum(map(len, texts))
    return {
        "stories": len(texts),
        "characters": characters,
        "bytes": sum(len(text.encode()) for text in texts),
        "tokens": len(tokens),
        "unknown_bytes": int((tokens == UNKNOWN).sum()),
        "characters_per_token": characters / len(tokens),
    }


def facts(folder: Path) -> dict[str, Any]:
    """Return the manifest of prepared data."""
    return json.loads((folder / MANIFEST).read_text())


def tokenizer(folder: Path) -> dict[str, Any]:
    """Return the tokenizer as the library `tokenizers` writes it, which leaves out `encode_special_tokens`."""
    return json.loads((folder / "tokenizer.json").read_text())


def check_tokenizer(folder: Path, trained_with: Mapping[str, Any]) -> None:
    """Raise UserError if the prepared data have other tokens than a model was trained with."""
    if tokenizer(folder) != trained_with:
        raise UserError(
            f"the model was trained on other tokens than those in {folder}: the source or the embedded generator has "
            "changed since; restore the old source and delete that folder, or train under another --name"
        )


def stories(folder: Path, split: str) -> list[str]:
    """Return the texts of a split."""
    return datasets.load_from_disk(folder)[split]["text"][:]


def tokens(folder: Path, split: str) -> tuple[np.ndarray, np.ndarray]:
    """Return a split's stream of tokens (N,) int64, with a 0 before and after each story, and their stories (N,) int64.

    A story is its number in the split.
    """
    values, lengths = _flat(datasets.load_from_disk(folder)[split].data)
    story = np.repeat(np.arange(len(lengths)), lengths + 2)
    ends = np.cumsum(lengths + 2)
    is_text = np.ones(len(story), bool)
    is_text[ends - 1] = is_text[ends - lengths - 2] = False
    stream = np.zeros(len(story), np.int64)
    stream[is_text] = values
    return stream, story


def _flat(table: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return all tokens of a table (T,) uint16, and the number of tokens of each story (n,) int64."""
    chunks = table.column("tokens").chunks
    values = [chunk.flatten().to_numpy() for chunk in chunks]
    lengths = [chunk.value_lengths().to_numpy() for chunk in chunks]
    return np.concatenate(values), np.concatenate(lengths).astype(np.int64)
