"""Files of candles: finding the file of a coin and reading CSV, JSON, Parquet, Feather and archives of them."""

import csv
import functools
import gzip
import io
import json
import zipfile
import zlib
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING

from common.errors import UserError, as_user_error
from models.market.candle_tables import RULES, FileName, canonical, file_name
from models.market.candles import VALUES, Candles
from pipelines.workloads.crypto.candles.cells import select
from pipelines.workloads.crypto.candles.checks import check, timeframe_of

if TYPE_CHECKING:
    import pandas as pd

Paths = Path | Sequence[Path]
Find = Callable[[str, str], list[Path]]  # (coin, timeframe) -> its files
SUFFIXES = (".csv", ".json", ".json.gz", ".parquet", ".feather", ".zip")
KLINES = 12  # columns of Binance's public klines, which may lack a header; Kraken's table has 7, the last counts trades
NAMED = 3  # files named in a line on those passed over
MOST_BYTES = 2**31  # of a file once it is decompressed
TIMEFRAME = functools.cache(lambda path, changed: timeframe_of(_table(path, "", True)[0], ""))  # read once


def finder(folder: Path | str) -> Find:
    """Return a function that finds the files of coins in a folder, which is listed once.

    It returns the file of a coin and timeframe, see `named`, or its parts of a month or a day each, in order of time.
    Raises UserError if the folder or the file is missing, or if several whole files match.
    """
    files, by_coin = in_folder(Path(folder))[0], defaultdict[str, list[tuple[Path, FileName]]](list)
    for path, name in files:
        by_coin[name.coin].append((path, name))

    def find(symbol: str, timeframe: str) -> list[Path]:
        wanted, where = canonical(symbol), f"{symbol}: data.folder={folder}"
        found = [(path, name) for path, name in by_coin[wanted] if name.timeframe == timeframe]
        if len(found) == 1 or (found and all(name.part for _, name in found)):
            return sorted(path for path, _ in found)
        if found:
            names = ", ".join(path.name for path, _ in found)
            raise UserError(f"{where} holds {names} for {timeframe}; keep only one of them there")
        others = ", ".join(path.name for path, _ in files[:5]) or "no file of candles"
        own = sorted(name.timeframe for _, name in by_coin[wanted])
        way = f"give data.timeframe={own[0]}" if own else f"name it like {wanted}-{timeframe}.csv"
        raise UserError(f"{where} has no file of its {timeframe} candles; {way} (found: {others})")

    return find


def coins(folder: Path | str, timeframe: str) -> list[str]:
    """Return the coins with candles of this timeframe in the folder. Raises UserError if there are none."""
    files, passed_over = in_folder(Path(folder))
    if not (found := sorted({name.coin for _, name in files if name.timeframe == timeframe})):
        others = sorted({name.timeframe for _, name in files})
        none = f"holds no {timeframe} candles (found there: {', '.join(others) or 'no file of candles'})"
        other = f"data.timeframe={others[0]}" if len(others) == 1 else "another data.timeframe"
        way = f"name the files like BTCUSDT-{timeframe}.csv, or give {other}"
        raise UserError("\n".join([f"data.folder={folder} {none}; {way}", *passed_over]))
    return found


def in_folder(folder: Path, timeframe: str | None = None) -> tuple[list[tuple[Path, FileName]], list[str]]:
    """Return the files of candles in a folder, and a line for each reason for which others are passed over.

    With a `timeframe`, files of other timeframes are, too. Raises UserError if there is no such folder.
    """
    if not folder.is_dir():
        raise UserError(f"data.folder={folder}: no such folder; give the one that holds the files of candles")
    found, kinds = [], defaultdict[str, list[str]](list)
    names = {path: named(path) for path in sorted(folder.iterdir()) if not path.name.startswith(".")}
    certain = {own[:2] for path, own in names.items() if not (own.reason or file_name(path.stem).reason)}
    for path, name in names.items():
        if name[:2] in certain and file_name(path.stem).reason:
            name = FileName(reason=f"no timeframe in the name, where another file of {name.coin} says {name.timeframe}")
        if not name.reason and timeframe not in (None, name.timeframe):
            name = FileName(reason=f"{name.timeframe} candles, where {timeframe} are wanted")
        if name.reason:
            kinds[name.reason].append(path.name)
        else:
            found.append((path, name))
    more = {reason: f" and {len(names) - NAMED} more" * (len(names) > NAMED) for reason, names in kinds.items()}
    first = {reason: ", ".join(names[:NAMED]) for reason, names in kinds.items()}
    return found, [f"passed over in {folder}: {first[reason]}{more[reason]}: {reason}" for reason in kinds]


def named(path: Path) -> FileName:
    """Return coin and timeframe by a file's name, a missing timeframe by its rows; or why it is not read."""
    suffix = max((each for each in SUFFIXES if path.name.lower().endswith(each)), key=len, default=None)
    if path.is_dir():
        return FileName(reason="folders are not looked into")
    if suffix is None:
        kind = path.suffix.lower()
        return FileName(reason=RULES.reasons.get(kind, f"{kind or 'files without an ending'}: no format of candles"))
    name = file_name(stem := path.name[: -len(suffix)])
    if name.reason == RULES.reasons["timeframe"]:
        try:
            if path.stat().st_size:
                name = file_name(f"{stem} {TIMEFRAME(path, path.stat().st_mtime_ns)}")
        except (UserError, OSError) as error:
            name = FileName(reason=f"cannot be read: {str(error).removeprefix(f'{path}: ').strip(': ')}")
    return name


def read(
    paths: Paths, symbol: str, timeframe: str, *, now: int | None = None, minimum_rows: int, growing: bool = False
) -> tuple[Candles, dict[str, object]]:
    """Return the candles of a file, or of its parts, and the counts of all checks, see `check`.

    `now` (ms) is the latest time at which a candle can have opened, by default the clock's. Of a `growing` CSV a last
    line without an end is left out, as it may be half written. Raises UserError for a file that cannot be read or
    trusted, naming the file, the coin and the row.
    """
    import pandas as pd

    paths = [paths] if isinstance(paths, Path) else list(paths)
    tables, num_repeated_headers = zip(*(_table(path, symbol, growing) for path in paths), strict=True)
    if len({tuple(each.columns) for each in tables}) > 1:  # such as months with and without a header
        tables = tuple(select(each, f"{path}: {symbol}") for each, path in zip(tables, paths, strict=True))
    table = tables[0] if len(tables) == 1 else pd.concat(tables)
    shown = str(paths[0]) if len(paths) == 1 else f"{paths[0]} and {len(paths) - 1} more"
    written = int(paths[-1].stat().st_mtime * 1000)
    candles, facts = check(table, symbol, timeframe, shown, now, minimum_rows, written=written)
    names = paths[0].name if len(paths) == 1 else [path.name for path in paths]
    return candles, {"file": names, "repeated_headers": sum(num_repeated_headers), **facts}


def _table(path: Path, symbol: str, growing: bool = False) -> tuple["pd.DataFrame", int]:
    """Return the rows of a file, counted from 1, and how many times its header is repeated."""
    readers = {".csv": _csv, ".json": _json, ".gz": _json, ".parquet": _arrow, ".feather": _arrow, ".zip": _zipped}
    if path.suffix.lower() not in readers:
        raise UserError(f"{path}: {symbol}: {path.suffix} files cannot be read; give {', '.join(SUFFIXES)}")
    with as_user_error(f"{path}: {symbol}: ", of=UserError), as_user_error("cannot be read: ", of=OSError):
        if not path.stat().st_size:
            raise UserError("the file is empty; download it again")
        if growing and path.suffix.lower() == ".csv":
            text = path.read_bytes()
            return _csv(io.BytesIO(text[: max(text.rfind(b"\n"), text.rfind(b"\r")) + 1] or b"\n"))
        return readers[path.suffix.lower()](path)


def _zipped(path: Path) -> tuple["pd.DataFrame", int]:
    unusable = (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError, zlib.error)
    with as_user_error("this is no readable zip file: ", of=unusable), zipfile.ZipFile(path) as archive:
        inside = [each for each in archive.infolist() if each.filename.lower().endswith(".csv")]
        if len(inside) != 1:
            raise UserError(f"there are {len(inside)} CSV files in it; one is needed")
        with archive.open(inside[0]) as file:
            return _csv(io.BytesIO(_limited(file)))


def _limited(file: IO[bytes] | gzip.GzipFile) -> bytes:
    """Return a compressed file's content. Raises UserError for more than MOST_BYTES, which no candles take."""
    if len(found := file.read(MOST_BYTES + 1)) > MOST_BYTES:
        raise UserError(f"it holds more than {MOST_BYTES} bytes; unpack it if that is right")
    return found


def _csv(source: Path | io.BytesIO) -> tuple["pd.DataFrame", int]:
    """Return the cells as text, indexed by line of the file, and how many times the header is repeated."""
    import pandas as pd

    try:
        with source.open("rb") if isinstance(source, Path) else source as file:
            skipped, first = _beginning(file)
            file.seek(0)
            separator = max(";\t,", key=first.count)  # the first of equals: each cell may have a decimal comma
            cells = [cell.strip() for cell in next(csv.reader(first.splitlines(), delimiter=separator), [""])]
            table = pd.read_csv(
                file, header=None, skiprows=skipped, names=range(len(cells)), index_col=False, dtype=str, sep=separator,
                skip_blank_lines=False, keep_default_na=False, na_values=[""], encoding="utf-8-sig",
            )  # fmt: skip
    except UnicodeDecodeError as error:
        raise UserError("this is not UTF-8 text; save it as UTF-8; if it is an archive, unpack it first") from error
    except (csv.Error, pd.errors.ParserError) as error:
        raise UserError(f"this is not a table: {' '.join(str(error).split())}; repair or remove that line") from error
    table.index += 1 + skipped
    table = table.dropna(how="all")
    if not len(table):
        raise UserError("the file holds no rows; download it again")
    if not first:
        raise UserError("no line has several columns, separated by commas, semicolons or tabs; save it as CSV")
    if cells[0][:1].isdigit():
        moment = ["date", "time"] if ":" in "".join(cells[1:2]) else ["time"]  # MetaTrader's are two columns
        if (further := len(cells) - len(moment) - len(VALUES)) not in (0, 1, KLINES - 1 - len(VALUES)):
            found = f"line {table.index[0]} has {len(cells)} columns and there is no header"
            raise UserError(f"{found}; add this first line: {','.join([*moment, *VALUES])}")
        table.columns = [*moment, *VALUES, "close_time" if further > 1 else "trades", *range(further - 1)][: len(cells)]
        return table, 0
    below = table[1:3].fillna("")  # pandas' further levels of a header end with the name of the index alone
    alone = below[(below.iloc[:, 1:] == "").all(axis=1) & ~below[0].str[:1].isin(["", *"0123456789"])]
    if len(alone):
        cells, table = [alone.iloc[0, 0].strip(), *cells[1:]], table.loc[alone.index[0] :]
    cell_text = table.fillna("")
    headers = (cell_text == cell_text.iloc[0]).all(axis=1)  # joining files with cat repeats the header
    table.columns = cells
    return table[~headers], int(headers.sum()) - 1


def _beginning(file: IO[bytes]) -> tuple[int, str]:
    """Return how many lines of comment a table begins with, and the first line of the table itself.

    A comment begins with # or Excel's sep=, or has no separator, such as the address of the site that the file is from.
    """
    for number, line in enumerate(file):
        text = line.decode("utf-8-sig" if not number else "utf-8").strip()
        if any(separator in text for separator in ",;\t") and not text.startswith(("#", "sep=")):
            return number, text
    return 0, ""


def _json(path: Path) -> tuple["pd.DataFrame", int]:
    import pandas as pd

    bad = as_user_error("this is not JSON: ", "", (ValueError, RecursionError, EOFError, zlib.error, gzip.BadGzipFile))
    with bad, path.open("rb") as file, gzip.open(file) if path.suffix.lower() == ".gz" else file as unpacked:
        rows = json.loads(_limited(unpacked).decode("utf-8-sig"))
    width, wanted = len(VALUES) + 1, "[time, open, high, low, close, volume]"
    if isinstance(rows, list) and rows and all(isinstance(row, dict) for row in rows):
        table = pd.DataFrame(rows, dtype=object)
    elif not (isinstance(rows, list) and all(isinstance(row, list) and len(row) >= width for row in rows)):
        raise UserError(f"this must be an array of rows {wanted}, or of objects with these names")
    elif any(len(row) == 8 for row in rows):  # Kraken has its average price where Bitget has the volume
        raise UserError(f"rows of 8 may have an average price before the volume; give rows {wanted}")
    else:
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
