"""Data sets of Hugging Face's `datasets` with images in a column: parquet files, or what `save_to_disk` wrote."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from common.errors import UserError
from pipelines.workloads.lmol.sources.tables import Rows

SAVED = ("dataset_info.json", "dataset_dict.json")  # what `save_to_disk` writes, of one part or of several


def files(source: Path) -> list[Path]:
    """Return the files of a data set, in a folder or one below it; [] for what is none."""
    parquet = [source] if source.suffix == ".parquet" else [*source.glob("*.parquet"), *source.glob("*/*.parquet")]
    return sorted(source.rglob("*.arrow") if _saved(source) else parquet)


def _saved(source: Path) -> bool:
    return any((source / name).is_file() for name in SAVED)


def opened(source: Path, column: str | None, cache: str) -> tuple[str, Rows, Callable[[str], bytes]]:
    """Return the column of images, the rows of all parts, whose images are called row-N, and what reads those."""
    import datasets

    datasets.disable_progress_bars()
    if _saved(source):
        found = datasets.load_from_disk(source)
    else:
        found = datasets.load_dataset("parquet", data_files=list(map(str, files(source))), cache_dir=cache)
    whole = datasets.concatenate_datasets(list(found.values())) if isinstance(found, dict) else found
    images = [name for name, kind in whole.features.items() if isinstance(kind, datasets.Image)]
    column = column or next(iter(images), "the data set")
    if column not in images:
        raise UserError(f"data.source={source}: {column} has no images; of type Image is {', '.join(images) or 'none'}")
    others = [
        {k: "" if v is None else str(v) for k, v in row.items()} for row in whole.remove_columns(images).to_list()
    ]
    rows = [(n, {column: f"row-{n}", **other}) for n, other in enumerate(others)]
    return column, rows, partial(_file, whole.cast_column(column, datasets.Image(decode=False)), column)


def _file(whole: Any, column: str, name: str) -> bytes:
    """Return an image's file; ValueError if the data set holds but its path."""
    if (content := whole[int(name.split("-")[1])][column]["bytes"]) is None:
        raise ValueError("the data set has no bytes of it; save it with its images")
    return bytes(content)
