"""Stories for training: read, split by story, and cut into the tokens of a byte-level BPE."""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import datasets
import numpy as np
import pyarrow as pa
import tokenizers
from tokenizers import decoders, models, pre_tokenizers, trainers

from common.errors import UserError
from common.prepared import MANIFEST
from models.tiny_transformer import PIECES, SPECIAL_TOKENS
from pipelines.workloads.tinystories import stories as generator

if TYPE_CHECKING:
    from pipelines.workloads.tinystories import Config, Data

MARKER, UNKNOWN = SPECIAL_TOKENS
SPLITS = ("train", "held_out")
FEWEST_STORIES = 20  # with fewer blocks of text than this, the text is a book
HELD_OUT = 10  # one story in so many
DATASET_ID = re.compile(r"\w[\w.-]*/\w[\w.-]*(?<!\.txt)", re.ASCII)
# Where a passage may end, best first.
PASSAGE_ENDS = (re.compile(r"[.!?][\"')\]\u2019\u201d]*\n"), re.compile(r"\n"), re.compile(r" "))
SCHEMA = pa.schema({"text": pa.string(), "tokens": pa.list_(pa.uint16())})
TEXTS_AT_ONCE = 1000
WAYS = (
    "give a text file, a folder of .txt files or the id of a Hugging Face dataset (owner/name), "
    "or leave data.source out for the embedded stories"
)


def prepare(config: "Config", folder: Path) -> Mapping[str, Any]:
    """Write the splits "train" and "held_out" (text, tokens) and tokenizer.json; returns facts for the manifest.

    Both the tokenizer and the vocabulary know the training split only. Raises UserError for a source that cannot be
    read, for text too short to hold a story out, and for a vocabulary that the text does not allow.
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
        "files": [path.name for path in config.data.inputs()],
        "split": how,
        "duplicates_removed": duplicates,
        "nul_characters_removed": sum(text.count("\0") for text in texts),
        **{name: _sizes(parts[name], table) for name, table in tables.items()},
        "vocabulary": bpe.get_vocab_size(),
        "alphabet": len(alphabet(parts["train"])),
    }


def _sizes(texts: Sequence[str], table: pa.Table) -> dict[str, Any]:
    tokens, _ = _flat(table)
    characters = sum(map(len, texts))
    return {
        "stories": len(texts),
        "characters": characters,
        "bytes": sum(len(text.encode()) for text in texts),
        "tokens": len(tokens),
        "unknown_bytes": int((tokens == 1).sum()),
        "characters_per_token": characters / len(tokens),
    }


def read(data: "Data") -> tuple[str, list[str]]:
    """What `data.source` is, in words, and its texts as they are found: a story each, or several between markers.

    Raises UserError for what is missing or cannot be read as text.
    """
    if data.source is None:
        return f"embedded story generator, seed {data.seed}", generator.generate(data.seed, data.generated_characters)
    path, files = Path(data.source), source_files(data.source)
    if _is_dataset(path):
        saved = datasets.load_from_disk(path)
        saved = saved if isinstance(saved, datasets.Dataset) else saved.get("train", saved)
        return f"dataset {path}", _text_column(saved, data.source)
    if path.is_dir():
        if not files:
            raise UserError(
                f"data.source={data.source}: there are no .txt files in this folder (folders below it are not read); "
                "give the folder that holds them"
            )
        return f"folder {path}, .txt files: {len(files)}", [text for file in files for text in _blocks(_decode(file))]
    if path.exists():
        return f"file {path}", _blocks(_decode(path))
    if DATASET_ID.fullmatch(data.source):
        return f"Hugging Face dataset {data.source}, split train", _download(data.source)
    raise UserError(f"data.source={data.source}: there is no such file or folder; {WAYS}")


def source_files(source: str) -> list[Path]:
    """The files that `source` stands for: itself, the .txt files directly in it, or a saved dataset's tables."""
    path = Path(source)
    if _is_dataset(path):
        return sorted(path.rglob("*.arrow"))
    if path.is_dir():
        return sorted(file for file in path.glob("*.txt") if file.is_file())
    return [path] if path.is_file() else []


def _is_dataset(path: Path) -> bool:
    return (path / "dataset_dict.json").is_file() or (path / "state.json").is_file()


def _decode(path: Path) -> str:
    try:
        return path.read_bytes().decode().removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        raise UserError(
            f"{path} is not UTF-8: byte {error.start} is 0x{error.object[error.start]:02x}; "
            f"convert it first, as in: iconv -f latin1 -t utf-8 {path} > utf8.txt"
        ) from error
    except OSError as error:
        raise UserError(f"cannot read data.source={path}: {error.strerror}; {WAYS}") from error


def _blocks(text: str) -> list[str]:
    """A file's text as a whole if markers separate its stories, else cut at blank lines."""
    return [text] if MARKER in text else re.split(r"\n[ \t]*(?=\n)", _line_ends(text))


def _download(name: str) -> list[str]:
    try:
        loaded = datasets.load_dataset(name, split="train")
    except Exception as error:  # the libraries between here and the network raise a dozen unrelated types
        raise UserError(
            f"data.source={name} is no file or folder here, and as a Hugging Face dataset it cannot be loaded: "
            f"{' '.join(str(error).split())[:300]}. Without a network, leave data.source out for the embedded stories, "
            "or give a text file or a folder of .txt files"
        ) from error
    return _text_column(loaded, name)


def _text_column(dataset: Any, source: str) -> list[str]:
    if getattr(dataset, "features", {}).get("text") not in (datasets.Value("string"), datasets.Value("large_string")):
        names = ", ".join(dataset.keys() if isinstance(dataset, dict) else dataset.column_names)
        raise UserError(
            f"data.source={source}: a dataset with a split `train` and in it a column `text` of strings is needed, "
            f"this one has {names}; rename them, or give another dataset"
        )
    return [text for text in dataset["text"][:] if text is not None]


def clean(text: str) -> list[str]:
    """The stories of a text: cut at markers, with one kind of line end, stripped, without NUL characters."""
    stories = _line_ends(text).replace("\0", "").split(MARKER)
    return [stripped for story in stories if (stripped := story.strip())]


def _line_ends(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n")


def split(blocks: Sequence[str], data: "Data", source: str) -> tuple[dict[str, list[str]], str, int]:
    """{split: texts}, how they were split, and the number of duplicates removed before.

    Stories are put into an order that depends on nothing but (seed, text), and every tenth is held out; so a story
    never changes sides with `percent` or the order of files, and a smaller `percent` takes fewer of the same. Fewer
    than 20 blocks are a book: cut into passages whose last tenth is held out. Raises UserError where that would hold
    nothing out.
    """
    unique = list(dict.fromkeys(blocks))
    duplicates = len(blocks) - len(unique)
    if len(unique) < FEWEST_STORIES:
        passages = [passage for block in unique for passage in cut(block, data.passage_characters)]
        unique = list(dict.fromkeys(passages))
        duplicates += len(passages) - len(unique)
        if len(unique) < HELD_OUT:
            more = "raise data.generated_characters" if data.source is None else "give a longer text"
            raise UserError(
                f"{source}: of {len(unique)} passages of up to {data.passage_characters} characters none can be held "
                f"out, {HELD_OUT} are needed; {more}, or lower data.passage_characters={data.passage_characters}"
            )
        end = len(unique) - len(unique) // HELD_OUT
        train, held_out = unique[:end], unique[end:]
        how = f"passages of up to {data.passage_characters} characters in their order, the last tenth held out"
    else:
        unique.sort(key=lambda text: hashlib.sha256(f"{data.seed} {text}".encode()).digest())
        held_out = unique[HELD_OUT - 1 :: HELD_OUT]
        train = [text for place, text in enumerate(unique) if place % HELD_OUT != HELD_OUT - 1]
        how = f"by story, every tenth held out in the order of a hash of seed {data.seed} and text"
    if data.percent < 100:
        how += f"; the first {data.percent} % of each part"
    parts = {"train": train, "held_out": held_out}
    return {name: texts[: -(-len(texts) * data.percent // 100)] for name, texts in parts.items()}, how, duplicates


def cut(block: str, characters: int) -> list[str]:
    """`block` in passages of half of `characters` to all, save the last; the end of a sentence and a line is best.

    Else a passage ends at any line end, else at a blank, else wherever its length is reached.
    """
    passages, start = [], 0
    while len(block) - start > characters:
        window = (block, start + characters // 2, start + characters)
        ends = ([match.end() for match in pattern.finditer(*window)] for pattern in PASSAGE_ENDS)
        end = next((found[-1] for found in ends if found), start + characters)
        passages.append(block[start:end])
        start = end
    return [passage for passage in map(str.strip, [*passages, block[start:]]) if passage]


def alphabet(texts: Sequence[str]) -> set[int]:
    """The bytes that occur."""
    return set().union(*(text.encode() for text in texts))


def train_tokenizer(texts: Sequence[str], vocabulary: int) -> tokenizers.Tokenizer:
    """A byte-level BPE of exactly `vocabulary` tokens: the two special ones, the bytes of `texts`, and merges.

    To it, the names of the special tokens within a text are text. Raises UserError if the vocabulary is too small for
    the bytes, or larger than all merges of the text give.
    """
    num_bytes = len(alphabet(texts))
    if vocabulary < num_bytes + 2:
        raise UserError(
            f"model.vocabulary={vocabulary} is too small: the {num_bytes} different bytes of the training text and two "
            f"special tokens need {num_bytes + 2}; give model.vocabulary={num_bytes + 2 + num_bytes % 2} or more"
        )
    tokenizer = tokenizers.Tokenizer(models.BPE(unk_token=UNKNOWN, fuse_unk=False, byte_fallback=False))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(tokenizers.Regex(PIECES), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False, trim_offsets=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    # The most frequent pair is merged first, so pairs that occur once are merged only where the others do not suffice.
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary, min_frequency=1, special_tokens=[MARKER, UNKNOWN], show_progress=False
    )
    tokenizer.train_from_iterator(texts, trainer)
    largest = tokenizer.get_vocab_size()
    if largest < vocabulary:
        raise UserError(
            f"model.vocabulary={vocabulary} is more than the training text has: with all pairs merged it gives "
            f"{largest} tokens; give model.vocabulary={largest - largest % 2} or less, or more text"
        )
    tokenizer.encode_special_tokens = True
    return tokenizer


def encode(tokenizer: tokenizers.Tokenizer, texts: Sequence[str]) -> pa.Table:
    """A table of `text` and its `tokens`, without markers."""
    batches = []
    for start in range(0, len(texts), TEXTS_AT_ONCE):
        some = list(texts[start : start + TEXTS_AT_ONCE])
        tokens = [encoding.ids for encoding in tokenizer.encode_batch_fast(some)]
        batches.append(pa.record_batch([pa.array(some, pa.string()), pa.array(tokens, SCHEMA[1].type)], schema=SCHEMA))
    return pa.Table.from_batches(batches, SCHEMA)


def facts(folder: Path) -> dict[str, Any]:
    """The manifest of prepared data."""
    return json.loads((folder / MANIFEST).read_text())


def tokenizer(folder: Path) -> dict[str, Any]:
    """The tokenizer as the library `tokenizers` writes it, which leaves out `encode_special_tokens`."""
    return json.loads((folder / "tokenizer.json").read_text())


def check_tokenizer(folder: Path, trained_with: Mapping[str, Any]) -> None:
    """Raise UserError if the prepared data have other tokens than a model was trained with."""
    if tokenizer(folder) != trained_with:
        raise UserError(
            f"the model was trained on other tokens than those of {folder}: its source, or what the embedded generator "
            "tells, has changed since; bring the old source back and delete that folder, or train another --name"
        )


def stories(folder: Path, split: str) -> list[str]:
    """The texts of a split."""
    return datasets.load_from_disk(folder)[split]["text"][:]


def tokens(folder: Path, split: str) -> tuple[np.ndarray, np.ndarray]:
    """The stream of a split's tokens (N,) int64, a 0 before and after each story, and the story of each (N,) int64."""
    values, lengths = _flat(datasets.load_from_disk(folder)[split].data)
    story = np.repeat(np.arange(len(lengths)), lengths + 2)
    ends = np.cumsum(lengths + 2)
    is_text = np.ones(len(story), bool)
    is_text[ends - 1] = is_text[ends - lengths - 2] = False
    stream = np.zeros(len(story), np.int64)
    stream[is_text] = values
    return stream, story


def _flat(table: Any) -> tuple[np.ndarray, np.ndarray]:
    """All tokens of a table (T,) uint16, and how many each story has (n,) int64."""
    chunks = table.column("tokens").chunks
    values = [chunk.flatten().to_numpy() for chunk in chunks]
    lengths = [chunk.value_lengths().to_numpy() for chunk in chunks]
    return np.concatenate(values), np.concatenate(lengths).astype(np.int64)
