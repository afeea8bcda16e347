"""Files of candles: finding the file of a coin and reading CSV, JSON, Parquet and Feather."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from common.errors import UserError
from pipelines.workloads.crypto.candle_checks import check
from pipelines.workloads.crypto.candles import MINIMUM_ROWS, VALUES, Candles, canonical, letters_and_digits

if TYPE_CHECKING:
    import pandas as pd

SUFFIXES = (".csv", ".json", ".parquet", ".feather")
KLINES = 12  # columns of Binance's public klines, which may lack a header


def find(folder: Path | str, symbol: str, timeframe: str) -> Path:
    """Return the file of a coin: BTCUSDT-15m.csv, BTC_USDT-15m.feather, BTCUSDT_15m.parquet and the like.

    Raises UserError if the folder or the file is missing, or if several files match.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise UserError(f"data.folder={folder}: no such folder; give the one that holds the files of candles")
    files = sorted(path for path in folder.iterdir() if path.suffix.lower() in SUFFIXES and path.is_file())
    wanted = canonical(symbol)
    found = [path for path in files if _coin_and_timeframe(path) == (wanted, timeframe)]
    if len(found) == 1:
        return found[0]
    if found:
        names = ", ".join(path.name for path in found)
        raise UserError(f"{symbol}: data.folder={folder} holds {names} for {timeframe}; keep only one of them there")
    example = f"{wanted}-{timeframe}.csv"
    parts = [path for path in files if path.name.upper().startswith(f"{wanted}-{timeframe}-".upper())]
    if parts:
        raise UserError(
            f"{symbol}: data.folder={folder} holds {len(parts)} parts, starting with {parts[0].name}; join them: "
            f"cd {folder} && cat {wanted}-{timeframe}-*{parts[0].suffix} > {example}"
        )
    others = ", ".join(path.name for path in files[:5]) or "no file of candles"
    raise UserError(
        f"{symbol}: data.folder={folder} has no file of its {timeframe} candles; name it like {example} "
        f"(found there: {others})"
    )


def _coin_and_timeframe(path: Path) -> tuple[str, str]:
    name, _, timeframe = path.stem.replace("_", "-").rpartition("-")
    return letters_and_digits(name), timeframe


def read(
    path: Path | str, symbol: str, timeframe: str, *, now: int | None = None, minimum_rows: int = MINIMUM_ROWS
) -> tuple[Candles, dict[str, Any]]:
    """Return the candles of a file (CSV, JSON, Parquet or Feather) and the counts of all checks, see `check`.

    CSV: with a header, or Binance's 12 columns, or time, open, high, low, close, volume. JSON: an array of
    [time, open, high, low, close, volume]. Times are s, ms, us or ns since 1970, told apart by magnitude, or ISO 8601.
    `now` (ms) is the latest time at which a candle can have opened, by default the clock's.

    Raises UserError for a file that cannot be read or trusted, naming the file, the coin and the row.
    """
    path = Path(path)
    if not path.is_file():
        raise UserError(f"{symbol}: there is no file {path}; give the folder of the files as data.folder")
    if not path.stat().st_size:
        raise UserError(f"{path}: {symbol}: the file is empty; download it again")
    readers = {".csv": _csv, ".json": _json, ".parquet": _arrow, ".feather": _arrow}
    if path.suffix.lower() not in readers:
        raise UserError(f"{path}: {symbol}: {path.suffix} files cannot be read; give {', '.join(SUFFIXES)}")
    try:
        table, num_repeated_headers = readers[path.suffix.lower()](path)
    except OSError as error:
        raise UserError(f"{path}: {symbol}: cannot be read: {error.strerror or error}") from error
    except UserError as error:
        raise UserError(f"{path}: {symbol}: {error}") from error
    candles, facts = check(
        table, symbol, timeframe, str(path), now, minimum_rows, written=int(path.stat().st_mtime * 1000)
    )
    return candles, {"file": path.name, "repeated_headers": num_repeated_headers, **facts}


def _csv(path: Path) -> tuple["pd.DataFrame", int]:
    """Return the cells as text, indexed by line of the file, and how many times the header is repeated."""
    import pandas as pd

    try:
        with path.open(encoding="utf-8-sig") as file:
            first = next((line.strip() for line in file if line.strip()), "")
        separator = max(",;\t", key=first.count)
        cells = [cell.strip().strip('"') for cell in first.split(separator)]
        table = pd.read_csv(
            path, header=None, names=range(len(cells)), index_col=False, dtype=str, sep=separator,
            skip_blank_lines=False, keep_default_na=False, na_values=[""], encoding="utf-8-sig", on_bad_lines="error",
        )  # fmt: skip
    except UnicodeDecodeError as error:
        raise UserError("this is not UTF-8 text; if it is an archive, unpack it first") from error
    except pd.errors.ParserError as error:
        raise UserError(f"this is not a table: {' '.join(str(error).split())}; repair or remove that line") from error
    table.index += 1
    table = table.dropna(how="all")
    if not len(table):
        raise UserError("the file holds no rows; download it again")
    if cells[0][:1].isdigit():
        if len(cells) not in (len(VALUES) + 1, KLINES):
            raise UserError(
                f"line {table.index[0]} has {len(cells)} columns and there is no header; add this first line: "
                "time,open,high,low,close,volume"
            )
        table.columns = ["time", *VALUES, "close_time", *range(len(cells) - 7)][: len(cells)]
        return table, 0
    cell_text = table.fillna("")
    headers = (cell_text == cell_text.iloc[0]).all(axis=1)  # joining files with cat repeats the header
    table.columns = cells
    return table[~headers], int(headers.sum()) - 1


def _json(path: Path) -> tuple["pd.DataFrame", int]:
    import pandas as pd

    try:
        rows = json.loads(path.read_text(encoding="utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise UserError(f"this is not JSON: {error}") from error
    width = len(VALUES) + 1
    good = isinstance(rows, list) and all(isinstance(row, list) and len(row) >= width for row in rows)
    if not good:
        raise UserError("this must be an array of rows [time, open, high, low, close, volume]")
    table = pd.DataFrame([row[:width] for row in rows], columns=["time", *VALUES], dtype=object)
    table.index += 1
    return table, 0


def _arrow(path: Path) -> tuple["pd.DataFrame", int]:
    import pyarrow as pa
    from pyarrow import feather, parquet

    try:
        table = (feather if path.suffix.lower() == ".feather" else parquet).read_table(path)
        frame = table.to_pandas(ignore_metadata=True)
    except pa.ArrowException as error:
        raise UserError(f"this is not a {path.suffix[1:]} file: {' '.join(str(error).split())}") from error
    frame.index += 1
    return frame, 0
