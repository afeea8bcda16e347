"""The columns of a user's table: what each holds, by the config or by its usual names."""

import csv
import itertools
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from common import sheets
from common.errors import UserError, as_user_error
from common.foreign_text import other_encoding, printable
from models.images.inputs import ENDINGS

FORMS = json.loads(Path(__file__).with_suffix(".json").read_text())
# What a column holds, and its usual names, without case, spaces and signs; the first one present counts.
USUAL: dict[str, list[str]] = FORMS["usual"]
# The kinds of table, by the columns that each needs, and those that it may have; the first that fits is taken.
LAYOUTS: dict[str, tuple[list[str], list[str]]] = FORMS["layouts"]
NEEDED = (
    "image,score (and group, rater, std, count); img1,img2,label; winner,loser (and tie); or "
    "img1,img2,score1,score2,label"
)
ANSWERS = "answers are img1,img2,label; img1,img2,winner; or winner,loser (and tie)"
SHEET = ".xlsx"
WHOLE = (SHEET, *sheets.JSON)  # tables that are read whole to know their columns
# Lists without a header, by the first row: names of images (N) and numbers (D), as of PIPAL, of TID2013 and of AVA.
HEADERLESS: dict[str, list[str]] = FORMS["headerless"]
VOTES = r"(?:c|n|count|votes?|ratings|scores)?[ _]?(\d+)"  # a column of the number of votes for a score
COUNTED = ["score", "std", "count"]  # columns computed from those of votes
VERSION = r"(.+?)_\d+_\d+\.\w+"  # name of a distorted version of an image in lists without a header
RENAMED = "rename them, or name them as in data.columns.winner=NAME data.columns.loser=NAME"  # of answers
LONGEST_HEADER = 100_000  # characters
BY_CONFIG = (
    "other names are given as data.columns.image=NAME data.columns.score=NAME; of pairs, as data.columns.first=NAME "
    "data.columns.second=NAME data.columns.label=NAME; several ratings of an image are a row each"
)


def assigned(
    table: str, header: Sequence[str], given: Mapping[str, str] | None
) -> tuple[str, dict[str, str], list[str]]:
    """Return a table's layout, its columns by what they hold and notes on guesses; UserError for missing ones."""
    advice = f"{ANSWERS}; {RENAMED}" if given is None else f"it must have {NEEDED}; {BY_CONFIG}"
    given = given or {}
    for holds, column in given.items():
        if column not in header:
            there = ", ".join(header) or "none"
            raise UserError(f"data.columns.{holds}={column}: {table} has no such column; it has {there}")
    known = {plain(column): column for column in reversed(header)}
    free = {name: column for name, column in known.items() if column not in given.values()}
    usual = {holds: [free[name] for name in names if name in free] for holds, names in USUAL.items()}
    guessed = {holds: columns[0] for holds, columns in usual.items() if columns and holds not in given}
    found = {**guessed, **given}
    layout = next((name for name, (needed, _) in LAYOUTS.items() if all(holds in found for holds in needed)), None)
    if layout is None:
        columns = f"the columns {printable(', '.join(header), 300)}" if header else "no columns, as it is an empty file"
        raise UserError(f"{table} has {columns}; {advice}")
    used = {holds: found[holds] for holds in itertools.chain(*LAYOUTS[layout]) if holds in found}
    notes = [
        f"{holds} is read from the column {column!r}"
        for holds, column in used.items()
        if holds not in given and column not in (holds, USUAL[holds][0])  # a guess other than the documents' name
    ]
    votes = levels_of(header[: -len(COUNTED)]) if [*header[-len(COUNTED) :]] == COUNTED else {}
    ignored = [column for column in header if column not in (*used.values(), *votes)]
    return layout, used, notes + ([f"not used: the columns {', '.join(ignored)}"] if ignored else [])


def plain(column: str) -> str:
    """Return a column's name without case, spaces and signs."""
    return re.sub(r"[^0-9a-z]", "", column.lower())


def rows_of(table: Path) -> tuple[list[str], list[tuple[int, dict[str, str]]]]:
    """Return a table's columns and (line, {column: value}) of each row, split at the header's commonest separator.

    A folder of lists without a header is one table.
    """
    if table.is_dir():
        parts = [rows_of(each) for each in lists_in(table)]
        return parts[0][0], [row for _, rows in parts for row in rows]
    rows, separator = _cells(table)
    columns = headed(rows[0][1]) if rows else []
    if rows and columns == rows[0][1]:
        del rows[0]
    elif rows and all(len(row) == 2 and re.fullmatch(VERSION, row[columns.index("image")]) for _, row in rows):
        rows = [(line, [*row, re.sub(VERSION, r"\1", row[columns.index("image")])]) for line, row in rows]
        columns = [*columns, "group"]
    wrong = next(((line, row) for line, row in rows if len(row) != len(columns)), None)
    if wrong or len(set(columns)) < len(columns):
        but = f"but line {wrong[0]} has {len(wrong[1])} values" if wrong else "one of them twice"
        named = printable(", ".join(columns), 300)
        raise UserError(f"{table}: the header names {len(columns)} columns ({named}), {but}")
    if separator != ",":  # such files often write decimals with a comma
        rows = [(line, [re.sub(r"^(-?\d+),(\d+)$", r"\1.\2", value) for value in row]) for line, row in rows]
    found = [(line, dict(zip(columns, row, strict=True))) for line, row in rows]
    if levels := levels_of(columns):
        columns = [*columns, *COUNTED]
        for line, row in found:
            row |= _counted(table, line, {level: row[name] for name, level in levels.items()})
    return columns, found


def _cells(table: Path) -> tuple[list[tuple[int, list[str]]], str]:
    """Return (line, values) of each row of a file, and what separates them."""
    if table.suffix.lower() in WHOLE:
        found = sheets.rows(table) if table.suffix.lower() == SHEET else _objects(table)
        return [(line, ["" if cell is None else str(cell).strip() for cell in row]) for line, row in found], ","
    return sheets.cells(table, " ")


def _objects(table: Path) -> list[tuple[int, list[object]]]:
    """Return the objects of a JSON file as rows, under their keys as the header."""
    found = list(sheets.objects(table))
    if len(objects := {line: row for line, row in found if isinstance(row, dict)}) < len(found):
        raise UserError(f'{table}: its rows are not objects; give some such as {{"image": "a.png", "score": 3}}')
    columns = list(dict.fromkeys(key for row in objects.values() for key in row))
    return [(0, columns), *((line, [row.get(key) for key in columns]) for line, row in objects.items())]


def levels_of(columns: Sequence[str]) -> dict[str, int]:
    """Return the columns of votes per score, from 0 or 1 up, as {column: score}; {} if there are none."""
    found = {name: int(level[1]) for name in columns if (level := re.fullmatch(VOTES, name.lower()))}
    first, scored = min(found.values(), default=0), any(plain(name) in USUAL["score"] for name in columns)
    whole = sorted(found.values()) == list(range(first, first + len(found)))
    return found if len(found) > 2 and whole and first < 2 and not scored else {}


def _counted(table: Path, line: int, votes: Mapping[int, str]) -> dict[str, str]:
    """Return the mean, the deviation and the number of the votes for each score."""
    if not all(count.isdecimal() for count in votes.values()) or not any(map(int, votes.values())):
        raise UserError(f"{table}, line {line}: the votes are {', '.join(votes.values())}; give counts, not all 0")
    counts = {level: int(count) for level, count in votes.items()}
    number = sum(counts.values())
    mean = sum(level * count for level, count in counts.items()) / number
    square = sum((level - mean) ** 2 * count for level, count in counts.items()) / max(1, number - 1)
    return dict(zip(COUNTED, (f"{mean:.6f}", f"{square**0.5:.6f}", str(number)), strict=True))


def lists_in(folder: Path) -> list[Path]:
    """Return the text files in a folder that are lists without a header, if all of them are of one form."""
    headers = {path: headed(_first_row(path)) for path in sorted(folder.glob("*.txt")) if path.is_file()}
    found = {path: tuple(columns) for path, columns in headers.items() if columns in HEADERLESS.values()}
    return list(found) if len(set(found.values())) == 1 else []


def headed(first: Sequence[str]) -> list[str]:
    """Return the columns that a table's first row names or, in a list without a header, those that its values imply."""
    cells = [cell.strip() for cell in first]
    kinds = ["N" if c.lower().endswith(ENDINGS) else "D" if re.fullmatch(r"-?\d[\d.,]*", c) else "?" for c in cells]
    return HEADERLESS.get("".join(kinds), cells)


def layout_of(table: Path, columns: Mapping[str, str] | None) -> tuple[str, dict[str, str], str]:
    """Return a table's layout and columns by its first line; an empty layout and the reason if it is no table."""
    header = headed(_first_row(next(iter(lists_in(table)), table) if table.is_dir() else table))
    header = header + COUNTED if levels_of(header) else header
    try:
        layout, used, _ = assigned(str(table), header, columns)
    except UserError as error:
        return "", {}, str(error)
    return layout, used, ""


def _first_row(table: Path) -> list[str]:
    if table.suffix.lower() in WHOLE:
        try:
            return next((row for _, row in _cells(table)[0]), [])
        except UserError:
            return []  # damaged; another table may lie beside it
    unreadable = as_user_error(f"cannot read {table}: ", of=OSError)
    with unreadable, table.open(encoding=other_encoding(table) or "utf-8-sig", errors="replace") as file:
        text = re.sub(r"\A\s*(?:sep=.*\s*)?", "", file.read(LONGEST_HEADER)).partition("\n")[0]
    return next(csv.reader([text], delimiter=sheets.divider(text, " ")), [])
