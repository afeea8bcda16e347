"""Prepared stories: written once as text and tokens, read back by training and evaluation."""

import hashlib
import json
import re
import shlex
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import tokenizers

from common.disk.prepared import MANIFEST
from common.errors import UserError, as_user_error
from common.workers import in_order, progress
from models import io
from models.stories.tiny_transformer import TinyTransformer
from pipelines.workloads.tinystories import story_blocks
from pipelines.workloads.tinystories.config import Config, Data
from pipelines.workloads.tinystories.sources import WAYS, left_out, text_files
from pipelines.workloads.tinystories.story_blocks import Blocks
from pipelines.workloads.tinystories.tokenization import SCHEMA, TOKENS, train_tokenizer, write_encoded

SHIPPED = "models/pretrained/tinystories-real"
FITTED_BYTES = 100_000_000  # of training text, to which the tokenizer is fitted
STREAM = "stream" + TOKENS  # a file of each split
SPLITS = ("train", "validation", "held_out")
FEWEST_STORIES = 20  # a text with fewer blocks than this is a book
HELD_OUT, VALIDATION = 10, 20  # at most one story in ten is held out, one in twenty picks the best model
SHORT = 250  # bytes: a story shorter than this may be a paragraph
SMALL = 10_000  # bytes on average: so small files hold a story each
HASHES = 1 << 16  # values of the first two bytes of a digest
# Patterns a passage may end with, best first.
PASSAGE_ENDS = (re.compile(r"[.!?][\"')\]\u2019\u201d]*\n"), re.compile(r"\n"), re.compile(r" "))


def prepare(config: Config, folder: Path) -> Mapping[str, object]:
    """Write the three splits (texts, and a stream of tokens) and tokenizer.json; return facts for the manifest.

    The text is read in pieces by all cores, twice: once to find the stories and their order, then those of the share to
    use. Memory holds 36 bytes for each story. The tokenizer is trained on the training split only, on its first 100 MB,
    which are drawn at random by the order. Raises UserError for a source that cannot be read, for a text too short to
    hold a story out, and for a vocabulary too small for its bytes.
    """
    scratch = folder / "scratch"
    try:
        source, files, own_test = text_files(config.data, scratch)
        whole = len(files) >= FEWEST_STORIES and sum(path.stat().st_size for path in files) < SMALL * len(files)
        base = config.data.base and load_base(config.data.base)
        lower = bool(base and base.lower_case)
        found, num_nuls = story_blocks.find(files, config.data.seed, whole, lower)
        held_out, _ = story_blocks.find(own_test, config.data.seed, lower=lower)
        if not len(found):
            raise UserError(f"{source}: there is no text in it (it is empty or white space only); {WAYS}")
        parts, how, duplicates = divided(found, held_out, config.data, source, scratch)
        fitted = parts["train"].first(FITTED_BYTES)
        if base:
            bpe, asked = base.tokenizer, base.config.vocabulary
        else:
            texts = progress(fitted.stories(), len(fitted), "fitting the tokenizer, stories")
            bpe, asked = train_tokenizer(texts, config.data.vocabulary), config.data.vocabulary
        size = bpe.get_vocab_size()
        notes = [f"model.vocabulary={asked} is lowered to {size}: the text yields no more tokens"] * (size < asked)
        notes += ["each file is a story, but for those with markers"] if whole else _parted(config.data, files, found)
        sizes = _write(folder, parts, bpe, lower)
        if base and (unknown := sum(size["unknown_bytes"] for size in sizes.values())):
            notes.append(f"{unknown:,} bytes of the text are no tokens of {config.data.base}, which cannot write them")
    finally:
        if scratch.exists():
            shutil.rmtree(scratch)  # errors are raised, as leftovers would be part of the data
    return {
        "source": source,
        "files": [path.name for path in config.data.texts()],
        "note": "\n".join([*left_out(config.data.source), *notes]),
        "split": how,
        "duplicates_removed": duplicates,
        "nul_characters_removed": num_nuls,
        **{name: {**size, "characters_per_token": size["characters"] / size["tokens"]} for name, size in sizes.items()},
        "vocabulary": size,
    }


def _parted(data: Data, files: Sequence[Path], found: Blocks) -> list[str]:
    """Return a note if few stories are cut like a book, or blank lines seem to separate paragraphs within stories."""
    with files[0].open("rb") as file:
        begun, put = file.read(story_blocks.CHUNK), f"put a line {story_blocks.MARKER.decode()} between stories"
    book = f"{data.source} is taken for a book and cut into passages"
    if story_blocks.separator(begun) is not story_blocks.SEPARATORS[-1][0]:
        few = 1 < len(found) < FEWEST_STORIES
        return [f"{book}: {len(found)} stories are too few to hold some out, which takes {FEWEST_STORIES}"] * few
    if len(found) < FEWEST_STORIES:
        each = shlex.quote(data.source or "") + "/*.txt" * Path(data.source or "").is_dir()
        return [f"{book}; if it is none, {put} (where each line is a story: sed G {each} > stories.txt)"]
    parted = f"blank lines separate {len(found):,} stories of {found.length.mean():.0f} characters on average"
    return [f"{parted}; if these are paragraphs, {put}"] * bool(found.length.mean() < SHORT)


def divided(
    found: Blocks, own_test: Blocks, data: Data, source: str, scratch: Path
) -> tuple[dict[str, Blocks], str, int]:
    """Return {split: blocks}, a description of the rule, and the number of duplicates that were removed first.

    Held out are stories whose hash of (seed, text) is in the lowest tenth of all values, up to `test_stories`; those in
    the highest twentieth validate, up to `validation_stories`. So a story's side depends on no other story until a
    limit is reached; then stories can only leave for the training part. A smaller `percent` takes a subset of a larger
    one. A source's own test split is held out in place of the tenth, and taken from the rest. Fewer than 20 blocks are
    a book: it is cut into passages, which are written to `scratch`; the last tenth of them is held out, the twentieth
    before it validates. Raises UserError if that would hold nothing out.
    """
    if len(own_test):
        own_test = own_test.take(np.unique(own_test.digest, return_index=True)[1][: data.test_stories])
        found = found.take(np.flatnonzero(~np.isin(found.digest, own_test.digest)))
    _, first = np.unique(found.digest, return_index=True)  # in the order of the hashes
    duplicates = len(found) - len(first)
    if len(first) < FEWEST_STORIES:
        book, own_test = found.take(np.sort(first)), own_test.take(slice(0))
        passages = (passage for pieces in book.pieces() for passage in cut(pieces, data.passage_characters))
        found, _ = story_blocks.find([story_blocks.write(scratch / "passages.txt", passages)], data.seed)
        first = np.sort(np.unique(found.digest, return_index=True)[1])
        duplicates += len(found) - len(first)
        place = np.arange(len(first))
        if len(first) < HELD_OUT:
            more = "raise data.generated_characters" if data.source is None else "give a longer text"
            most = data.passage_characters
            few = f"{len(first)} passages of up to {most} characters are too few to hold one out, {HELD_OUT} are needed"
            raise UserError(f"{source}: {few}; {more}, or lower data.passage_characters={most}")
        is_held_out = place >= (end := len(first) - len(first) // HELD_OUT)
        validates = (place >= end - max(1, len(first) // VALIDATION)) & ~is_held_out
        how = (
            f"passages of up to {data.passage_characters} characters in their order, the last tenth held out, the "
            "twentieth before it to pick the best model"
        )
    else:
        place = np.arange(len(first))
        hashes = np.frombuffer(found.digest[first].tobytes(), ">u2")[:: found.digest.itemsize // 2]
        most = len(first) // 4  # for each part; stories may be another split's lowest tenth
        lowest = max(1, min(data.test_stories, most, int((hashes < HASHES // HELD_OUT).sum())))
        is_held_out = place < (0 if len(own_test) else lowest)
        highest = int((hashes >= HASHES - HASHES // VALIDATION).sum())
        validates = place >= len(place) - max(1, min(data.validation_stories, most, highest))
        part = "its own test split" if len(own_test) else "the lowest tenth"
        tested = f"{part} held out (at most {data.test_stories:,})"
        picks = f"the highest twentieth to pick the best model (at most {data.validation_stories:,})"
        how = f"by a hash of seed {data.seed} and story, {tested}, {picks}"
    if data.percent < 100:
        how += f"; the first {data.percent} % of each part"
    rows = (first[~is_held_out & ~validates], first[validates], first[is_held_out])
    parts = {name: found.take(of) for name, of in zip(SPLITS, rows, strict=True)}
    if len(own_test):
        parts["held_out"] = own_test
    return ({name: one.take(slice(-(-len(one) * data.percent // 100))) for name, one in parts.items()}, how, duplicates)


def cut(pieces: Iterable[str], characters: int) -> Iterator[str]:
    """Cut the text that the pieces make into passages of at most `characters` and, but the last, at least half of that.

    A passage ends at the last end of a line in that range that also ends a sentence, else at any end of a line, else at
    a space, else at its largest length. Its white space at both ends is removed.
    """
    text = ""
    for piece in pieces:
        text, start = text + piece, 0
        while len(text) - start > characters:
            window = (text, start + characters // 2, start + characters)
            ends = ([match.end() for match in pattern.finditer(*window)] for pattern in PASSAGE_ENDS)
            end = next((found[-1] for found in ends if found), start + characters)
            if passage := text[start:end].strip():
                yield passage
            start = end
        text = text[start:]
    if passage := text.strip():
        yield passage


def load_base(base: str) -> TinyTransformer:
    """Load the model that `model.base` names. Raises UserError if there is no model of stories."""
    with as_user_error(f"model.base={base}: ", f"; give a model of stories, such as {SHIPPED}"):
        model = io.load(base)
    if not isinstance(model, TinyTransformer):
        raise UserError(f"model.base={base} is a {model.family}; give a model of stories, such as {SHIPPED}")
    return model


def _write(
    folder: Path, parts: Mapping[str, Blocks], bpe: tokenizers.Tokenizer, lower: bool
) -> dict[str, dict[str, int]]:
    """Write a dataset, its files by all cores in place of the library, and the tokenizer; return sizes by split."""
    datasets.disable_progress_bars()
    empty = datasets.Dataset(SCHEMA.empty_table())
    datasets.DatasetDict(dict.fromkeys(parts, empty)).save_to_disk(folder)
    bpe.save(str(folder / "tokenizer.json"))
    described = (folder / "tokenizer.json").read_text()
    tasks: list[tuple[Blocks, Path]] = []
    for name, part in parts.items():
        shards = part.shards()
        names = [f"data-{number:05d}-of-{len(shards):05d}.arrow" for number in range(len(shards))]
        tasks += [(shard, folder / name / file) for shard, file in zip(shards, names, strict=True)]
        state = json.loads((folder / name / "state.json").read_text())
        state["_data_files"] = [{"filename": file} for file in names]
        # The library's cache tells datasets apart by this.
        state["_fingerprint"] = hashlib.sha256(part.digest.tobytes() + described.encode()).hexdigest()[:16]
        (folder / name / "state.json").write_text(json.dumps(state, indent=2, sort_keys=True))
        (folder / name / STREAM).unlink(missing_ok=True)  # of a preparation that was killed: it is appended to below
    write = partial(write_encoded, described, empty.features.arrow_schema, lower)
    sizes = {name: Counter[str]() for name in parts}
    for (_, path), size in zip(tasks, in_order(write, tasks, "tokenizing, parts"), strict=True):
        sizes[path.parent.name].update(size)
        with (path.parent / STREAM).open("ab") as stream, path.with_suffix(TOKENS).open("rb") as tokens:
            shutil.copyfileobj(tokens, stream)
        path.with_suffix(TOKENS).unlink()
    return {name: dict(size) for name, size in sizes.items()}


def facts(folder: Path) -> dict[str, Any]:
    """Return the manifest of prepared data."""
    return dict(json.loads((folder / MANIFEST).read_text()))


def tokenizer(folder: Path) -> dict[str, object]:
    """Return the tokenizer as the library `tokenizers` writes it, which leaves out `encode_special_tokens`."""
    return dict(json.loads((folder / "tokenizer.json").read_text()))


def stories(folder: Path, split: str) -> list[str]:
    """Return the texts of a split."""
    return list(datasets.load_from_disk(folder)[split]["text"][:])


def ending(folder: Path, split: str, characters: int) -> str:
    """Return the last stories of a split, a line end between them: so many that they exceed `characters`, or all."""
    column = datasets.load_from_disk(folder)[split].data.column("text")
    texts: list[str] = []
    for chunk in reversed(column.chunks):
        texts.insert(0, "\n".join(chunk.to_pylist()))
        if sum(map(len, texts)) > characters:
            break
    return "\n".join(texts)


def tokens(folder: Path, split: str) -> np.ndarray:
    """Return a split's stream of tokens (N,) uint16, with a 0 before and after each story; it is mapped, not read."""
    return np.memmap(folder / split / STREAM, np.uint16, "c")


def numbers(stream: np.ndarray) -> np.ndarray:
    """Return the number of each token's story (N,) int32; -1 for a story cut at the beginning of the stream."""
    begins = stream == 0
    begins[1:] &= stream[:-1] == 0  # of two zeros in a row, the first one ends a story
    return np.cumsum(begins, dtype=np.int32) - 1
