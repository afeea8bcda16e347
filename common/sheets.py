"""The rows of spreadsheets in .xlsx files."""

import zipfile
from pathlib import Path

from common.errors import UserError


def rows(path: Path) -> list[tuple[int, list[object]]]:
    """Return (number, cells) of each row of the first sheet that is not blank, formulas as the values saved for them.

    Raises UserError for a file that is none, and where openpyxl is missing.
    """
    try:
        import openpyxl
    except ImportError as error:
        raise UserError(f"{path}: needs openpyxl (pip install openpyxl); or save the sheet as CSV") from error
    try:
        book = openpyxl.load_workbook(path, read_only=True, data_only=True)
        cells = [list(row) for row in book.worksheets[0].iter_rows(values_only=True)]
        book.close()
    except (zipfile.BadZipFile, KeyError, ValueError, IndexError, OSError) as error:
        kind = type(error).__name__
        raise UserError(f"{path}: not an .xlsx file, or a damaged one ({kind}); save it again") from error
    return [(number, row) for number, row in enumerate(cells, 1) if any(str(cell or "").strip() for cell in row)]
