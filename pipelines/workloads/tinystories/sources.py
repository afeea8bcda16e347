"""Text for stories, from where `data.source` points: the generator, files, or a Hugging Face dataset."""

import contextlib
import itertools
import re
import shutil
import ssl
import threading
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import datasets
import pyarrow
from pyarrow import parquet

from common import sheets
from common.errors import UserError
from common.foreign_text import other_encoding, printable
from pipelines.workloads.tinystories import generated_stories, story_blocks
from pipelines.workloads.tinystories.config import LINES, LISTS, PARQUET, TEST_SPLITS, Data, is_dataset, source_files

DATASET_ID = re.compile(r"\w[\w.-]*/\w[\w.-]*(?<!\.txt)", re.ASCII)
WAYS = (
    "give a text file (.txt, .jsonl or .parquet), a folder of such files, a .csv or .json, or the id of a Hugging Face "
    "dataset (owner/name), or leave data.source out for the embedded stories"
)
NO_STORIES = (  # endings of files whose bytes would be learnt in place of their text
    *(".xlsx", ".xml", ".docx", ".doc", ".odt", ".rtf", ".pdf", ".epub", ".html", ".htm", ".zip"),
    *(".gz", ".arrow", ".feather", ".pkl"),
)
ROWS_AT_ONCE = 1000
PATIENCE = 10  # seconds for the hub to answer
MOST_CONVERTED = 2**28  # bytes of a text file whose encoding is looked at


def text_files(data: Data, scratch: Path) -> tuple[str, list[Path], list[Path]]:
    """Return a description of `data.source`, the text files that hold it, and those that hold its own test split.

    For all but text files they are in `scratch`. Raises UserError if the source is missing or has no column of texts.
    """
    written, test = scratch / "stories.txt", scratch / "test.txt"
    if data.source is None:
        generated = generated_stories.generate(data.seed, data.generated_characters)
        return f"embedded story generator, seed {data.seed}", [story_blocks.write(written, generated)], []
    path, (files, own) = Path(data.source), source_files(data.source)
    if is_dataset(path):
        return f"dataset {path}", *_written(datasets.load_from_disk(path), data.source, written, test)
    if not path.exists():
        if not DATASET_ID.fullmatch(data.source):
            raise UserError(f"data.source={data.source}: there is no such file or folder; {WAYS}")
        return f"Hugging Face dataset {data.source}", *_written(_download(data.source), data.source, written, test)
    if path.is_file() and path.suffix.lower() in NO_STORIES:
        raise UserError(f"data.source={data.source}: stories are not read from {path.suffix} files; {WAYS}")
    if path.is_dir() and not files:
        there = "".join(f"\n  {line}" for line in left_out(data.source))
        none = f"there are no .txt files in this folder (subfolders are not read), and no {LINES} or {PARQUET} files"
        raise UserError(f"data.source={data.source}: {none}; give the folder that holds them{there}")
    tables, lines = ([file for file in files if file.suffix.lower() in kind] for kind in ((PARQUET,), LISTS))
    texts = [file for file in files if file.suffix.lower() not in (PARQUET, *LISTS)]
    usable = [_in_utf8(file, scratch / f"utf-8-{number}.txt") for number, file in enumerate(texts)]
    converted = sum(copy != file for copy, file in zip(usable, texts, strict=True))
    also = f", {converted} converted from Windows-1252 or UTF-16" if converted else ""
    rows = itertools.chain(_table_texts(tables, data.source), *[_row_texts(file, data.source) for file in lines])
    read = [*usable, *([story_blocks.write(written, rows)] if tables or lines else [])]
    held_out = [story_blocks.write(test, _table_texts(own, data.source))] if own else []
    counts = ((".txt", texts), (LINES, lines), (PARQUET, tables)) if path.is_dir() else ()
    kinds = "".join(f", {suffix} files: {len(of)}" for suffix, of in counts if of)
    return f"{'folder' if path.is_dir() else 'file'} {path}{kinds}{also}", read, held_out


def _in_utf8(path: Path, copy: Path) -> Path:
    """Return a text file, or a copy in UTF-8 of one in UTF-16 or Windows-1252; damaged UTF-8 is refused later."""
    encoding = None
    with contextlib.suppress(OSError):
        encoding = other_encoding(path) if path.stat().st_size <= MOST_CONVERTED else None
    if encoding:
        with contextlib.suppress(UnicodeDecodeError):
            copy.parent.mkdir(parents=True, exist_ok=True)
            with path.open(encoding=encoding, newline="") as text, copy.open("w", encoding="utf-8", newline="") as file:
                shutil.copyfileobj(text, file, story_blocks.CHUNK)
            return copy
    return path


def left_out(source: str | None) -> list[str]:
    """Return a line with number and reason for each kind of file in the folder `source` that is not read."""
    if source is None or not Path(source).is_dir() or is_dataset(Path(source)):
        return []
    read = {file for files in source_files(source) for file in files}
    others = (path for path in Path(source).rglob("*") if path.is_file() and path not in read)
    passed = Counter(path.suffix.lower() for path in others if not path.name.startswith("."))
    why = {
        PARQUET: "only the files named train are read, and those of a test",
        **dict.fromkeys(LISTS, "may hold no stories; name the one to read, as in data.source=FOLDER/FILE"),
        **dict.fromkeys((".txt", LINES), "those in subfolders are not read; move them, or give their folder"),
    }
    other = f"stories are read from .txt, {LINES} and {PARQUET} files; save it as one of them"
    return [
        f"left out of {source}: {count} {kind or 'without an ending'} ({why.get(kind, other)})"
        for kind, count in sorted(passed.items())
    ]


def _table_texts(files: Sequence[Path], source: str) -> Iterator[str | None]:
    """Return the column `text` of Parquet files, some rows at a time; raises UserError at once if one has none."""
    for path in files:
        try:
            schema = parquet.read_schema(path)
        except (pyarrow.ArrowInvalid, OSError) as error:
            raise UserError(f"data.source={source}: {path} is no Parquet file ({str(error)[:100]})") from error
        if "text" not in schema.names or schema.field("text").type not in (pyarrow.string(), pyarrow.large_string()):
            raise _no_text(source, str(path), schema.names)
    tables = map(parquet.ParquetFile, files)
    batches = (batch for table in tables for batch in table.iter_batches(ROWS_AT_ONCE, columns=["text"]))
    return (text for batch in batches for text in batch["text"].to_pylist())


def _row_texts(path: Path, source: str) -> Iterator[str | None]:
    """Yield what rows of JSON or CSV hold as `text`, one by one; raises UserError at the first that has none."""
    listed = path.suffix.lower() in sheets.JSON
    for number, row in sheets.objects(path) if listed else sheets.named(path):
        named = {**{key.lower(): cell for key, cell in row.items()}, **row} if isinstance(row, dict) else {"text": row}
        if not isinstance(text := named.get("text", named), str | None):
            where = f"{path}, line {number}," if listed else f"{path}: its first row, which names the columns,"
            raise _no_text(source, where, row if isinstance(row, dict) else ())
        yield text


def _written(
    found: "datasets.Dataset | datasets.DatasetDict", source: str, stories: Path, test: Path
) -> tuple[list[Path], list[Path]]:
    """Write a dataset's training part, and its own test split, if any, to text files; return the files of each."""
    splits = {} if isinstance(found, datasets.Dataset) else found
    own = next((splits[split] for split in TEST_SPLITS if split in splits), None)
    written = [story_blocks.write(stories, _texts(splits.get("train", found), source))]
    return written, [] if own is None else [story_blocks.write(test, _texts(own, source))]


def _texts(dataset: "datasets.Dataset | datasets.DatasetDict", source: str) -> Iterator[str | None]:
    """Return the column `text`, read a few rows at a time; raises UserError at once if there is none."""
    if getattr(dataset, "features", {}).get("text") not in (datasets.Value("string"), datasets.Value("large_string")):
        names = dataset.keys() if isinstance(dataset, dict) else dataset.column_names
        raise _no_text(source, "a dataset's split `train`", names)
    return (text for batch in dataset.select_columns("text").iter(ROWS_AT_ONCE) for text in batch["text"])


def _no_text(source: str, what: str, names: Iterable[str]) -> UserError:
    has = printable(", ".join(names), 200) or "none"
    needed = f"{what} needs a column `text` of strings; it has {has}"
    return UserError(f"data.source={source}: {needed}; rename one, or give another source")


def _download(name: str) -> datasets.DatasetDict:
    offline = datasets.config.HF_HUB_OFFLINE
    try:
        # Without a network the library retries for minutes; in its offline mode it still finds earlier downloads.
        datasets.config.HF_HUB_OFFLINE = offline or not _hub_answers()
        return datasets.load_dataset(name)
    except Exception as error:  # the libraries on the way to the network raise a dozen unrelated types
        what = f"data.source={name} is not a file or folder here, and cannot be loaded as a Hugging Face dataset"
        instead = "leave data.source out for the embedded stories, or give a text file or a folder of .txt files"
        why = " ".join(str(error).split())[:300]
        raise UserError(f"{what}: {why}. Without a network, {instead}") from error
    finally:
        datasets.config.HF_HUB_OFFLINE = offline


def _hub_answers() -> bool:
    """Return whether the hub answers a single request within PATIENCE seconds."""
    answered: list[bool] = []

    def ask() -> None:
        try:
            urllib.request.urlopen(urllib.request.Request(datasets.config.HF_ENDPOINT, method="HEAD"), timeout=PATIENCE)
            answered.append(True)
        except OSError as error:
            # A refusal is an answer, and so is a certificate: the libraries have a list of their own to judge it by.
            wrong_certificate = isinstance(getattr(error, "reason", None), ssl.SSLError)
            answered.append(isinstance(error, urllib.error.HTTPError) or wrong_certificate)

    # In a thread, because looking up a name has no time limit of its own.
    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    asking.join(PATIENCE)
    return answered == [True]
