"""Text for stories, read from where `data.source` points: the generator, files, or a Hugging Face dataset."""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import datasets

from common.errors import UserError
from models.tiny_transformer import SPECIAL_TOKENS
from pipelines.workloads.tinystories import stories

if TYPE_CHECKING:
    from pipelines.workloads.tinystories import Data

MARKER = SPECIAL_TOKENS[0]
DATASET_ID = re.compile(r"\w[\w.-]*/\w[\w.-]*(?<!\.txt)", re.ASCII)
WAYS = (
    "give a text file, a folder of .txt files or the id of a Hugging Face dataset (owner/name), "
    "or leave data.source out for the embedded stories"
)


def read(data: "Data") -> tuple[str, list[str]]:
    """Return a description of `data.source` and its texts as found; a text holds a story, or several between markers.

    Raises UserError if the source is missing or cannot be read as text.
    """
    if data.source is None:
        return f"embedded story generator, seed {data.seed}", stories.generate(data.seed, data.generated_characters)
    path, files = Path(data.source), source_files(data.source)
    if _is_dataset(path):
        saved = datasets.load_from_disk(path)
        saved = saved if isinstance(saved, datasets.Dataset) else saved.get("train", saved)
        return f"dataset {path}", _text_column(saved, data.source)
    if path.is_dir():
        if not files:
            raise UserError(
                f"data.source={data.source}: there are no .txt files in this folder (subfolders are not read); "
                "give the folder that holds them"
            )
        return f"folder {path}, .txt files: {len(files)}", [text for file in files for text in _blocks(_decode(file))]
    if path.exists():
        return f"file {path}", _blocks(_decode(path))
    if DATASET_ID.fullmatch(data.source):
        return f"Hugging Face dataset {data.source}, split train", _download(data.source)
    raise UserError(f"data.source={data.source}: there is no such file or folder; {WAYS}")


def source_files(source: str) -> list[Path]:
    """Return the files behind `source`: itself, the .txt files directly in it, or a saved dataset's Arrow files."""
    path = Path(source)
    if _is_dataset(path):
        return sorted(path.rglob("*.arrow"))
    if path.is_dir():
        return sorted(file for file in path.glob("*.txt") if file.is_file())
    return [path] if path.is_file() else []


def clean(text: str) -> list[str]:
    """Cut a text at markers into stories: stripped, with "\\n" as line end and without NUL characters."""
    found = _line_ends(text).replace("\0", "").split(MARKER)
    return [stripped for story in found if (stripped := story.strip())]


def _is_dataset(path: Path) -> bool:
    return (path / "dataset_dict.json").is_file() or (path / "state.json").is_file()


def _text_column(dataset: Any, source: str) -> list[str]:
    if getattr(dataset, "features", {}).get("text") not in (datasets.Value("string"), datasets.Value("large_string")):
        names = ", ".join(dataset.keys() if isinstance(dataset, dict) else dataset.column_names)
        raise UserError(
            f"data.source={source}: a dataset needs a split `train` with a column `text` of strings; this one has "
            f"{names}; rename them, or give another dataset"
        )
    return [text for text in dataset["text"][:] if text is not None]


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
    """Return a file's text as a whole if markers separate its stories, else cut at blank lines."""
    return [text] if MARKER in text else re.split(r"\n[ \t]*(?=\n)", _line_ends(text))


def _line_ends(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _download(name: str) -> list[str]:
    try:
        loaded = datasets.load_dataset(name, split="train")
    except Exception as error:  # the libraries on the way to the network raise a dozen unrelated types
        raise UserError(
            f"data.source={name} is not a file or folder here, and cannot be loaded as a Hugging Face dataset: "
            f"{' '.join(str(error).split())[:300]}. Without a network, leave data.source out for the embedded stories, "
            "or give a text file or a folder of .txt files"
        ) from error
    return _text_column(loaded, name)
