"""The columns of a user's table: what each of them holds, as the config says or as it is usually called."""

import csv
import io
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from common.errors import UserError
from common.foreign_text import unguarded
from models.images.comparator.interface import ENDINGS

# What a column holds, and its usual names, without case, spaces and signs; the first one present counts.
USUAL = {
    "image": (
        *("image", "img", "file", "filename", "imagename", "imagepath", "path", "name", "imageid", "photo", "distimg"),
    ),
    "score": ("score", "mos", "meanopinionscore", "dmos", "mean", "rating", "quality", "value", "averagerating"),
    "group": ("group", "scene", "reference", "refimg", "content", "subject"),
    "first": ("img1", "image1", "first", "left", "imagea", "a", "file1", "filename1", "image0uid"),
    "second": ("img2", "image2", "second", "right", "imageb", "b", "file2", "filename2", "image1uid"),
    "score1": ("score1", "firstscore", "mos1", "rating1"),
    "score2": ("score2", "secondscore", "mos2", "rating2"),
    "label": (
        *("label", "answer", "choice", "preference", "preferred", "response"),
        *("winner", "better", "chosen", "bestimageuid"),
    ),
    "winner": ("winner", "better", "chosen", "won", "preferredimage"),
    "loser": ("loser", "worse", "rejected", "lost", "otherimage"),
    "tie": ("tie", "istie", "draw", "equal"),
    "rater": ("rater", "raterid", "user", "userid", "annotator", "observer", "worker", "workerid", "judge"),
    "std": ("std", "sd", "stddev", "standarddeviation", "mosstd", "scorestd", "sigma"),
    "count": ("count", "n", "votes", "numvotes", "numratings", "ratings", "voters", "ctotal"),
}
# The kinds of table, by the columns that each needs; the first that fits is taken.
LAYOUTS = {
    "scored pairs": ("first", "second", "score1", "score2", "label"),
    "pairs": ("first", "second", "label"),
    "choices": ("winner", "loser"),
    "images": ("image", "score"),
}
EXTRA = {
    "scored pairs": ("rater", "count"),
    "pairs": ("rater", "count"),
    "choices": ("tie", "rater", "count"),
    "images": ("group", "rater", "std", "count"),
}
NEEDED = (
    "image,score (and group, rater, std, count); img1,img2,label; winner,loser (and tie); or "
    "img1,img2,score1,score2,label"
)
ANSWERS = "answers are img1,img2,label; img1,img2,winner; or winner,loser (and tie)"
SEPARATORS = ",;\t|"  # or else spaces
# Lists without a header, by the first row: names of images (N) and numbers (D), as of PIPAL and of TID2013.
HEADERLESS = {"ND": ["image", "score"], "DN": ["score", "image"]}
VERSION = r"(.+?)_\d+_\d+\.\w+"  # in these, the name of a distorted version of an image
LONGEST_HEADER = 100_000  # characters
RENAMED = "rename them"  # where no config can name the columns
BY_CONFIG = (
    "other names are given as data.columns.image=NAME data.columns.score=NAME; of pairs, as data.columns.first=NAME "
    "data.columns.second=NAME data.columns.label=NAME"
)


def assigned(
    table: str, header: Sequence[str], given: Mapping[str, str] | None
) -> tuple[str, dict[str, str], list[str]]:
    """Return a table's layout, its columns by what they hold and notes on guesses; UserError for missing ones."""
    advice = f"{ANSWERS}; {RENAMED}" if given is None else f"it must have {NEEDED}; {BY_CONFIG}"
    given = given or {}
    for holds, column in given.items():
        if column not in header:
            raise UserError(
                f"data.columns.{holds}={column}: {table} has no such column; it has {', '.join(header) or 'none'}"
            )
    plain = {re.sub(r"[^0-9a-z]", "", column.lower()): column for column in reversed(header)}
    free = {name: column for name, column in plain.items() if column not in given.values()}
    guessed = {
        holds: next(free[name] for name in names if name in free)
        for holds, names in USUAL.items()
        if holds not in given and any(name in free for name in names)
    }
    found = {**guessed, **given}
    layout = next((name for name, needed in LAYOUTS.items() if all(holds in found for holds in needed)), None)
    if layout is None:
        columns = f"the columns {', '.join(header)}" if header else "no columns, as it is an empty file"
        raise UserError(f"{table} has {columns}; {advice}")
    used = {holds: found[holds] for holds in (*LAYOUTS[layout], *EXTRA[layout]) if holds in found}
    notes = [
        f"{holds} is read from the column {column!r}"
        for holds, column in used.items()
        if holds not in given and column not in (holds, USUAL[holds][0])  # a guess other than the documents' name
    ]
    ignored = [column for column in header if column not in used.values()]
    return layout, used, notes + ([f"not used: the columns {', '.join(ignored)}"] if ignored else [])


def rows_of(table: Path) -> tuple[list[str], list[tuple[int, dict[str, str]]]]:
    """Return a table's columns and (line, {column: value}) of each row; the header's commonest separator is taken."""
    try:
        text = table.read_text(encoding="utf-8-sig")
        separator = _separator(text)
        reader = csv.reader(io.StringIO(text, newline=""), strict=True, delimiter=separator)
        rows = [(reader.line_num, [unguarded(value.strip()) for value in row]) for row in reader if row]
        columns = headed(rows[0][1]) if rows else []
    except UnicodeDecodeError as error:
        raise UserError(f"{table} is not UTF-8 (byte {error.start}); save it as CSV in UTF-8") from error
    except OSError as error:
        raise UserError(f"cannot read {table}: {error.strerror}") from error
    except csv.Error as error:
        raise UserError(f"{table}, line {reader.line_num}: this is not CSV: {error}") from error
    if rows and columns == rows[0][1]:
        del rows[0]
    elif rows and all(len(row) == 2 and re.fullmatch(VERSION, row[columns.index("image")]) for _, row in rows):
        rows = [(line, [*row, re.sub(VERSION, r"\1", row[columns.index("image")])]) for line, row in rows]
        columns = [*columns, "group"]
    wrong = next(((line, row) for line, row in rows if len(row) != len(columns)), None)
    if wrong or len(set(columns)) < len(columns):
        raise UserError(
            f"{table}: the header names {len(columns)} columns ({', '.join(columns)})"
            + (f", but line {wrong[0]} has {len(wrong[1])} values" if wrong else ", one of them twice")
        )
    if separator != ",":  # such files often write decimals with a comma
        rows = [(line, [re.sub(r"^(-?\d+),(\d+)$", r"\1.\2", value) for value in row]) for line, row in rows]
    return columns, [(line, dict(zip(columns, row, strict=True))) for line, row in rows]


def headed(first: Sequence[str]) -> list[str]:
    """Return the columns that a table's first row names, or else those that its values are of."""
    cells = [cell.strip() for cell in first]
    kinds = [
        "N" if cell.lower().endswith(ENDINGS) else "D" if re.fullmatch(r"-?\d[\d.,]*", cell) else "?" for cell in cells
    ]
    return HEADERLESS.get("".join(kinds), cells)


def _separator(text: str) -> str:
    header = text.split("\n", 1)[0]
    return max(SEPARATORS, key=header.count) if any(each in header for each in SEPARATORS) else " "


def layout_of(table: Path, columns: Mapping[str, str] | None) -> tuple[str, dict[str, str], str]:
    """Return a table's layout and columns by its first line; for what is no table an empty layout, and why."""
    try:
        with table.open(encoding="utf-8-sig", errors="replace") as file:
            text = file.readline(LONGEST_HEADER)
    except OSError as error:
        raise UserError(f"cannot read {table}: {error.strerror}") from error
    header = headed(next(csv.reader([text], delimiter=_separator(text)), []))
    try:
        layout, used, _ = assigned(str(table), [column.strip() for column in header], columns)
    except UserError as error:
        return "", {}, str(error)
    return layout, used, ""
