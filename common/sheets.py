"""Rows of users' tables: .xlsx spreadsheets, CSV and JSON."""

import csv
import io
import json
import re
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path

from common.errors import UserError
from common.foreign_text import other_encoding, unguarded

JSON = (".json", ".jsonl", ".ndjson")
DIVIDERS = ",;\t|"
SEP_LINE = re.compile(r'\A(\s*)"?sep=([,;|\t])"?[ \t]*(?=\n)', re.I)  # of Excel; its newline still counts as a line
NUMBERS = re.compile(r"(\d\d?)|(\d{3})|([1-9]\d{0,2}(?:[.,]\d{3})+)|[\d.,]+")  # the third may be thousands
csv.field_size_limit(2**31 - 1)  # a story may be longer than the 131,072 characters that Python allows a cell


def rows(path: Path) -> list[tuple[int, list[object]]]:
    """Return (number, cells) of each row of the first visible sheet that is not blank, formulas by their saved values.

    Raises UserError for any other file, and without openpyxl.
    """
    try:
        import openpyxl
    except ImportError as error:
        raise UserError(f"{path}: needs openpyxl (pip install openpyxl); or save the sheet as CSV") from error
    try:
        book = openpyxl.load_workbook(path, read_only=True, data_only=True)
        sheet = next(each for each in book.worksheets if each.sheet_state == "visible")
        sheet.reset_dimensions()  # some programs state fewer rows than they write; rows are padded below
        cells = [list(row) for row in zip(*zip_longest(*sheet.iter_rows(values_only=True)), strict=True)]
        book.close()
    except Exception as error:  # of openpyxl, or of its libraries for archives and XML
        raise UserError(f"{path}: not an .xlsx file, or damaged ({type(error).__name__}); save it again") from error
    return [(at, row) for at, row in enumerate(cells, 1) if any(cell is not None and str(cell).strip() for cell in row)]


def divider(text: str, lone: str = ",") -> str:
    """Return the commonest delimiter of the first line that is not blank; `lone` if it has none."""
    header = next((line for line in text.splitlines() if line.strip()), "")
    return max(DIVIDERS, key=header.count) if any(each in header for each in DIVIDERS) else lone


def cells(path: Path, lone: str = ",", lines: bool = True) -> tuple[list[tuple[int, list[str]]], str]:
    """Return (number, cells) of each row of a CSV that is not blank, undoing `to_csv`, and the delimiter.

    Numbers count `lines`, or rows as a spreadsheet does. Reads UTF-8, UTF-16 and Windows-1252, and skips Excel's
    line sep=. Raises UserError for any other file, and for 1.234 beside 850, which may be thousands.
    """
    try:
        text = path.read_text(encoding=other_encoding(path) or "utf-8-sig")
        lone = "\t" if path.suffix.lower() == ".tsv" else lone
        between = stated[2] if (stated := SEP_LINE.match(text)) else divider(text, lone)
        reader = csv.reader(io.StringIO(SEP_LINE.sub(r"\1", text), newline=""), delimiter=between, strict=True)
        rows = [(reader.line_num if lines else at, [cell.strip() for cell in row]) for at, row in enumerate(reader, 1)]
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path} cannot be read, or is not UTF-8 ({error}); save it as CSV in UTF-8") from error
    except csv.Error as error:
        raise UserError(f"{path}, line {reader.line_num}: this is not CSV: {error}; save it as CSV again") from error
    for column in zip_longest(*(row for _, row in rows if any(row)), fillvalue="") if between != "," else ():
        numbers = [found for cell in dict.fromkeys(column) if (found := NUMBERS.fullmatch(cell))]
        if {2, 3} <= (kinds := {each.lastindex for each in numbers}) and None not in kinds:
            large = next(each[0] for each in numbers if each.lastindex == 3)
            raise UserError(f"{path}: {large} among whole numbers may be thousands; write numbers without separators")
    return [(number, [*map(unguarded, row)]) for number, row in rows if any(row)], between


def named(path: Path) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield (number, {column: cell}) of each row of a CSV; UserError at the first that its header does not fit."""
    (_, header), *rows = cells(path)[0] or [(0, [])]
    if twice := next((name for name in header if header.count(name) > 1), None):
        raise UserError(f"{path} has two columns named {twice!r}; rename or remove one")
    for number, row in rows:
        if len(row) != len(header):
            has = f"has {len(row)} cells under {len(header)} columns; put quotes around texts with commas"
            raise UserError(f"{path}: line {number} {has}")
        yield number, dict(zip(header, row, strict=True))


def objects(path: Path) -> Iterator[tuple[int, object]]:
    """Yield (number, value) of each line of JSON, one by one, or of each entry of a list in a .json file."""
    with path.open("rb") as file:
        number, listed = 0, path.suffix.lower() == ".json" and file.read(100).lstrip(b"\xef\xbb\xbf\r\n\t ")[:1] == b"["
        file.seek(0)
        try:
            if listed:
                yield from enumerate(json.load(file), 1)
                return
            for number, line in enumerate(file, 1):
                if line.strip():
                    yield number, json.loads(line)
        except (ValueError, RecursionError) as error:
            where = f"line {number} is not JSON ({error})" if number else f"not a JSON list ({error})"
            raise UserError(f"{path}: {where}; give one object per line, or a list of objects") from error
