"""Data sets with images in a column of parquet files, as they come from the hub of Hugging Face."""

import contextlib
import glob
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow
from pyarrow import parquet

from common.errors import UserError
from pipelines.workloads.lmol.sources.tables import Rows


def files(source: Path) -> list[Path]:
    """Return a parquet file, or those with images in a folder or one below it; [] if there are none."""
    if source.is_file():
        return [source] if source.suffix.lower() == ".parquet" else []
    found = []
    for path in sorted([*source.glob("*.parquet"), *source.glob("*/*.parquet")]):
        with contextlib.suppress(pyarrow.ArrowException, OSError):  # of other files
            found += [path] if _of_images(parquet.read_schema(path)) else []
    return found


def _of_images(schema: pyarrow.Schema) -> list[str]:
    """Return the columns of images: of bytes, with a path or without, as the hub and others store them."""
    kinds = (pyarrow.types.is_binary, pyarrow.types.is_large_binary)
    return [each.name for each in schema if any(kind(each.type) for kind in kinds) or "<bytes:" in str(each.type)]


def opened(source: Path, column: str | None, cache: str) -> tuple[str, Rows, Callable[[str], bytes]]:
    """Return the column of images, the rows of all files with images named row-N, and a function that reads one."""
    import datasets

    datasets.disable_progress_bars()
    try:
        whole = datasets.Dataset.from_parquet([glob.escape(str(path)) for path in files(source)], cache_dir=cache)
    except Exception as error:  # the library raises its own for files without rows, of several schemas, damaged
        reason = " ".join(str(error.__cause__ or error).split())[:300]
        raise UserError(f"data.source={source}: its parquet files are no data set of one schema: {reason}") from error
    images = _of_images(whole.data.schema)
    if (column := column or next(iter(images), "the data set")) not in images:
        such = ", ".join(images) or "none"
        raise UserError(f"data.source={source}: {column} has no image bytes; columns with such: {such}")
    others = whole.remove_columns(images).to_list()
    texts = [{key: "" if value is None else str(value) for key, value in row.items()} for row in others]
    rows = [(n, {column: f"row-{n}", **text}) for n, text in enumerate(texts)]
    numbers = {row[column]: n for n, row in rows}
    return column, rows, partial(_file, whole.cast_column(column, datasets.Image(decode=False)), column, numbers)


def _file(whole: Any, column: str, numbers: Mapping[str, int], name: str) -> bytes:
    """Return the bytes of an image's file; ValueError for an unknown name, or if only a path is stored."""
    if (content := (whole[numbers[name]][column] or {}).get("bytes") if name in numbers else None) is None:
        raise ValueError("the data set has no bytes of it; save it with its images")
    return bytes(content)
