"""Candles of one coin: found, read, checked, and repaired or refused.

A file of candles is trusted in nothing: every check leaves a count in the facts that `read` returns.
"""

import hashlib
import json
import re
import time as clock
from collections.abc import Iterable
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from common.errors import UserError

if TYPE_CHECKING:
    import pandas as pd

MINUTE = 60_000
MINUTES = {"m": (1, 3, 5, 15, 30), "h": (60, 120, 240, 360, 480, 720), "d": (1440,)}
# Weeks and months are left out: their candles do not open at multiples of their length since 1970.
TIMEFRAMES = {
    f"{minutes // unit}{letter}": minutes * MINUTE
    for (letter, lengths), unit in zip(MINUTES.items(), (1, 60, 1440), strict=True)
    for minutes in lengths
}
SUFFIXES = (".csv", ".json", ".parquet", ".feather")
VALUES = ("open", "high", "low", "close", "volume")
ALIASES = {
    "time": ("open_time", "opentime", "timestamp", "unix", "date", "datetime", "time", "index", "__index_level_0__"),
    **{name: (name, name[0]) for name in VALUES},
    "close_time": ("close_time",),
}
KLINES = 12  # columns of Binance's public klines, which may come without a header
MISSING = ("", "nan", "null", "none")
BROKEN_SHARE = 0.001  # of rows; a feed that is wrong more often than this is wrong elsewhere too
MINIMUM_ROWS = 500
JUMP = 2.0  # factor between consecutive closes from which a coin was likelier renamed or split than traded
OLDEST = 1_230_940_800_000  # 2009-01-03, Bitcoin's first block
NEWEST = 4_102_444_800_000  # 2100-01-01
UNITS = {"s": 1e-3, "ms": 1.0, "us": 1e3, "ns": 1e6}  # per millisecond; between 2009 and 2100 they cannot be confused
SYMBOL = re.compile(r"[A-Za-z0-9]+([/_:-][A-Za-z0-9]+)*")
QUOTES = ("USDT", "USDC", "FDUSD", "BUSD", "TUSD", "USD", "EUR", "BTC", "ETH", "BNB")
DAY = 86_400_000
BATCH = 1000  # candles an exchange gives at once


@dataclass(frozen=True)
class Candles:
    """Candles of one coin in order of time, N rows; what is missing is a gap, never a row made up."""

    symbol: str
    timeframe_ms: int
    time: np.ndarray  # (N,) int64, when the candle opens, ms since 1970 UTC
    open: np.ndarray  # (N,) float64, as all below
    high: np.ndarray
    low: np.ndarray
    close: np.ndarray
    volume: np.ndarray

    def __len__(self) -> int:
        return len(self.time)

    def rows(self, chosen: Any) -> "Candles":
        """The candles that a slice, a mask or row numbers choose."""
        columns = {name: getattr(self, name)[chosen] for name in ("time", *VALUES)}
        return Candles(self.symbol, self.timeframe_ms, **columns)

    def segments(self) -> list[slice]:
        """The stretches of rows without a gap, in order."""
        cuts = np.flatnonzero(np.diff(self.time) != self.timeframe_ms) + 1
        edges = [0, *cuts.tolist(), len(self)]
        return [slice(start, stop) for start, stop in pairwise(edges) if stop > start]

    def digest(self) -> str:
        """SHA-256 of coin, timeframe and all columns."""
        total = hashlib.sha256(f"{self.symbol} {self.timeframe_ms}".encode())
        for field in fields(self)[2:]:
            total.update(np.ascontiguousarray(getattr(self, field.name)).tobytes())
        return total.hexdigest()


def milliseconds(timeframe: str) -> int:
    """Length of a candle. Raises UserError for a timeframe that is not known."""
    if timeframe not in TIMEFRAMES:
        raise UserError(f"data.timeframe={timeframe} is not known; give one of {', '.join(TIMEFRAMES)}")
    return TIMEFRAMES[timeframe]


def canonical(symbol: str) -> str:
    """BTCUSDT for btc_usdt, BTC/USDT and the like. Raises UserError for what cannot be the name of a coin."""
    if not isinstance(symbol, str) or not SYMBOL.fullmatch(symbol):
        raise UserError(f"data.symbols: {symbol!r} is not the name of a coin; give one like BTCUSDT or BTC/USDT")
    return re.sub(r"[^A-Z0-9]", "", symbol.upper())


def find(folder: Path | str, symbol: str, timeframe: str) -> Path:
    """The file of a coin: BTCUSDT-15m.csv, BTC_USDT-15m.feather, BTCUSDT_15m.parquet and the like.

    Raises UserError if there is no such folder, no such file or more than one.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise UserError(f"data.folder={folder}: there is no such folder; give the one that holds the files of candles")
    files = sorted(path for path in folder.iterdir() if path.suffix.lower() in SUFFIXES and path.is_file())
    wanted = canonical(symbol)
    found = [path for path in files if _named(path) == (wanted, timeframe)]
    if len(found) == 1:
        return found[0]
    if found:
        names = ", ".join(path.name for path in found)
        raise UserError(f"{symbol}: data.folder={folder} holds {names} for {timeframe}; keep one of them there")
    example = f"{wanted}-{timeframe}.csv"
    parts = [path for path in files if path.name.upper().startswith(f"{wanted}-{timeframe}-".upper())]
    if parts:
        raise UserError(
            f"{symbol}: data.folder={folder} holds {len(parts)} parts, {parts[0].name} and so on; join them: "
            f"cd {folder} && cat {wanted}-{timeframe}-*{parts[0].suffix} > {example}"
        )
    others = ", ".join(path.name for path in files[:5]) or "no file of candles"
    raise UserError(
        f"{symbol}: there is no file of its {timeframe} candles in data.folder={folder}; name it like {example} "
        f"(there: {others})"
    )


def _named(path: Path) -> tuple[str, str]:
    name, _, timeframe = path.stem.replace("_", "-").rpartition("-")
    return re.sub(r"[^A-Z0-9]", "", name.upper()), timeframe


def read(
    path: Path | str, symbol: str, timeframe: str, *, now: int | None = None, minimum_rows: int = MINIMUM_ROWS
) -> tuple[Candles, dict[str, Any]]:
    """Candles of a file (CSV, JSON, Parquet or Feather) and the counts of all checks, see `check`.

    CSV: with a header, or Binance's 12 columns, or time, open, high, low, close, volume. JSON: an array of
    [time, open, high, low, close, volume]. Time: s, ms, us or ns since 1970 by magnitude, or ISO 8601.
    `now` (ms) is the time up to which candles can exist, by default the clock's.

    Raises UserError for what cannot be read or trusted, naming the file, the coin and the row.
    """
    path = Path(path)
    if not path.is_file():
        raise UserError(f"{symbol}: there is no file {path}; give the folder of the files as data.folder")
    if not path.stat().st_size:
        raise UserError(f"{path}: {symbol}: the file is empty; download it again")
    readers = {".csv": _csv, ".json": _json, ".parquet": _arrow, ".feather": _arrow}
    if path.suffix.lower() not in readers:
        raise UserError(f"{path}: {symbol}: {path.suffix} is not read; give {', '.join(SUFFIXES)}")
    try:
        table, repeated_headers = readers[path.suffix.lower()](path)
    except OSError as error:
        raise UserError(f"{path}: {symbol}: cannot be read: {error.strerror or error}") from error
    except UserError as error:
        raise UserError(f"{path}: {symbol}: {error}") from error
    candles, facts = check(
        table, symbol, timeframe, str(path), now, minimum_rows, written=int(path.stat().st_mtime * 1000)
    )
    return candles, {"file": path.name, "repeated_headers": repeated_headers, **facts}


def _csv(path: Path) -> tuple["pd.DataFrame", int]:
    """Text cells, indexed by line of the file, and how many times the header came again."""
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
        raise UserError("this is no UTF-8 text; if it is an archive, unpack it first") from error
    except pd.errors.ParserError as error:
        raise UserError(f"this is not a table: {' '.join(str(error).split())}; repair or remove that line") from error
    table.index += 1
    table = table.dropna(how="all")
    if not len(table):
        raise UserError("the file holds no rows; download it again")
    if cells[0][:1].isdigit():
        if len(cells) not in (len(VALUES) + 1, KLINES):
            raise UserError(
                f"line {table.index[0]} has {len(cells)} columns and there is no header; put one in the first line: "
                "time,open,high,low,close,volume"
            )
        table.columns = ["time", *VALUES, "close_time", *range(len(cells) - 7)][: len(cells)]
        return table, 0
    cell_text = table.fillna("")
    headers = (cell_text == cell_text.iloc[0]).all(axis=1)  # files joined with cat bring theirs along
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
        raise UserError(f"this is no {path.suffix[1:]} file: {' '.join(str(error).split())}") from error
    frame.index += 1
    return frame, 0


def check(
    table: "pd.DataFrame",
    symbol: str,
    timeframe: str,
    source: str,
    now: int | None = None,
    minimum_rows: int = MINIMUM_ROWS,
    written: int | None = None,
) -> tuple[Candles, dict[str, Any]]:
    """Candles of a table whose index counts its rows, and the counts of all checks.

    Sorted, and counted: rows out of order. Dropped, and counted: rows that come twice, the last candle if it was still
    open at `now` or when the file was `written` (ms), and rows with missing or infinite numbers, prices that are not
    positive, a high or low that does not enclose the candle, or a time off the grid, up to 0.1 % of all rows together.
    Counted only: candles without volume, gaps, jumps of the price, times without a zone (taken as UTC).

    Raises UserError for everything else, beginning with `source` and the coin.
    """
    where, step = f"{source}: {symbol}", milliseconds(timeframe)
    now = int(clock.time() * 1000) if now is None else now
    table = _columns(table, where)
    if len(table) < max(minimum_rows, 2):
        raise UserError(
            f"{where}: {len(table)} rows are too few, {max(minimum_rows, 2)} are needed; "
            "give a longer file or a lower data.minimum_rows"
        )
    times, units, naive = _times(table["time"], where)
    values = {name: _numbers(table[name], name, where) for name in VALUES}
    _check_range(times, table, now, where)
    _check_step(times, step, where)

    prices = np.stack([values[name] for name in VALUES[:4]])
    known = (times != 0) & np.isfinite(prices).all(0) & np.isfinite(values["volume"])
    positive = (prices > 0).all(0) & (values["volume"] >= 0)
    enclosed = (values["high"] == prices.max(0)) & (values["low"] == prices.min(0))
    faults = {
        "missing or infinite numbers": ~known,
        "prices that are not positive or a negative volume": known & ~positive,
        "a high below or a low above the candle's other prices": known & positive & ~enclosed,
        f"times that are not multiples of {timeframe}": known & positive & enclosed & (times % step != 0),
    }
    broken = np.logical_or.reduce(list(faults.values()))
    if broken.mean() > BROKEN_SHARE:
        what, mask = max(faults.items(), key=lambda item: int(item[1].sum()))
        first = int(np.flatnonzero(mask)[0])
        shown = ", ".join(f"{name} {values[name][first]:g}" for name in VALUES)
        raise UserError(
            f"{where}: {int(mask.sum())} of {len(table)} rows have {what}, first row {table.index[first]} "
            f"({iso(times[first])}: {shown}); more than {BROKEN_SHARE:.1%} of rows are broken, so none is trusted: "
            "download the file again"
        )
    counts = dict(zip(("not_finite", "not_positive", "inconsistent", "off_grid"), faults.values(), strict=True))

    kept = np.flatnonzero(~broken)
    unsorted = int((times[kept] < np.maximum.accumulate(times[kept])).sum())
    kept = kept[np.argsort(times[kept], kind="stable")]
    candles = Candles(
        canonical(symbol), step, np.ascontiguousarray(times[kept]), **{name: values[name][kept] for name in VALUES}
    )
    twice = np.concatenate([[False], candles.time[1:] == candles.time[:-1]])
    for row in np.flatnonzero(twice):
        for name in VALUES:
            one, other = getattr(candles, name)[row - 1], getattr(candles, name)[row]
            if one != other:
                raise UserError(
                    f"{where}: rows {table.index[kept[row - 1]]} and {table.index[kept[row]]} both open at "
                    f"{iso(candles.time[row])} but differ ({name} {one:g} and {other:g}); remove the wrong one"
                )
    last = kept[-1:]
    kept, candles = kept[~twice], candles.rows(~twice)
    still_open = _still_open(candles, table, last, now, written)
    candles = candles.rows(slice(0, len(candles) - still_open))
    if len(candles) < minimum_rows:
        raise UserError(
            f"{where}: {len(candles)} candles are left of {len(table)} rows, {minimum_rows} are needed; "
            "give a longer file or a lower data.minimum_rows"
        )
    return candles, {
        "rows": len(table),
        "time_units": units,
        "naive_times": naive,
        "unsorted": unsorted,
        "duplicates": int(twice.sum()),
        **{name: int(mask.sum()) for name, mask in counts.items()},
        "open_candle": int(still_open),
        **describe(candles),
    }


def describe(candles: Candles) -> dict[str, Any]:
    """Counts, range and hash of candles that have passed the checks."""
    missing = np.diff(candles.time) // candles.timeframe_ms - 1
    moves = np.abs(np.diff(np.log(candles.close)))
    return {
        "candles": len(candles),
        "first": iso(candles.time[0]),
        "last": iso(candles.time[-1]),
        "zero_volume": int((candles.volume == 0).sum()),
        "jumps": int((moves > np.log(JUMP)).sum()),
        "gaps": int((missing > 0).sum()),
        "missing_candles": int(missing.sum()),
        "longest_gap": int(missing.max(initial=0)),
        "hash": candles.digest(),
    }


def _columns(table: "pd.DataFrame", where: str) -> "pd.DataFrame":
    """The columns that count, under our names."""
    names = [re.sub(r"\W+", "_", str(name).strip().lower()) for name in table.columns]
    chosen = {}
    for ours, aliases in ALIASES.items():
        known = [alias for alias in aliases if alias in names]
        if known and names.count(known[0]) > 1:
            raise UserError(f"{where}: there are {names.count(known[0])} columns {known[0]}; keep one of them")
        if known:
            chosen[names.index(known[0])] = ours
        elif ours != "close_time":
            raise UserError(
                f"{where}: there is no column for {ours} (columns: {', '.join(map(str, table.columns))}); "
                f"name it {aliases[0]}"
            )
    table = table.iloc[:, list(chosen)]
    table.columns = list(chosen.values())
    return table


def _numbers(column: "pd.Series", name: str, where: str) -> np.ndarray:
    """(N,) float64; missing cells become NaN, text is refused."""
    import pandas as pd

    values = pd.to_numeric(column, errors="coerce")
    unread = column[values.isna() & column.notna()]
    text = unread[~unread.astype(str).str.strip().str.lower().isin(MISSING)]
    if len(text):
        raise UserError(f"{where}: row {text.index[0]}, column {name}: {text.iloc[0]!r} is not a number; repair it")
    return values.to_numpy(np.float64, na_value=np.nan)


def _times(column: "pd.Series", where: str) -> tuple[np.ndarray, list[str], int]:
    """(N,) int64 ms, 0 where missing; the units found; how many times had no zone."""
    import pandas as pd

    if isinstance(column.dtype, pd.DatetimeTZDtype) or np.issubdtype(
        getattr(column.dtype, "type", object), np.datetime64
    ):
        naive = 0 if isinstance(column.dtype, pd.DatetimeTZDtype) else int(column.notna().sum())
        return _to_ms(pd.to_datetime(column, utc=True)), ["datetime"], naive
    present = column[column.notna()]
    if not len(present):
        raise UserError(f"{where}: the time column is empty")
    if not np.isnan(pd.to_numeric(present.iloc[:1], errors="coerce").iloc[0]):
        return _epochs(_numbers(column, "time", where), column, where)
    text = column.astype("str").str.strip().str.replace(r" ?UTC$", "+00:00", regex=True)
    times = pd.to_datetime(text, utc=True, format="ISO8601", errors="coerce")
    unread = present[times[present.index].isna()]
    unread = unread[~unread.astype(str).str.strip().str.lower().isin(MISSING)]
    if len(unread):
        raise UserError(
            f"{where}: row {unread.index[0]}, column time: {unread.iloc[0]!r} is not a time; "
            "give one like 2024-01-31 13:45:00, or numbers since 1970"
        )
    aware = text.str.contains(r"(?:[zZ]|[+-]\d\d:?(?:\d\d)?)$", regex=True) & text.str.contains(":")
    return _to_ms(times), ["text"], int((~aware.fillna(False).astype(bool) & times.notna()).sum())


def _to_ms(times: "pd.Series") -> np.ndarray:
    missing = times.isna().to_numpy()
    times = times.dt.tz_localize(None).astype("datetime64[ms]").to_numpy().astype(np.int64)
    return np.where(missing, 0, times)


def _epochs(values: np.ndarray, column: "pd.Series", where: str) -> tuple[np.ndarray, list[str], int]:
    """Each time by its own magnitude: Binance's files changed from ms to us with the year 2025."""
    times = np.zeros(len(values), np.int64)
    found = []
    for unit, per_ms in UNITS.items():
        within = (values >= OLDEST * per_ms) & (values <= NEWEST * per_ms)
        if within.any():
            found.append(unit)
            times[within] = np.rint(values[within] / per_ms).astype(np.int64)
    unknown = (times == 0) & ~np.isnan(values)
    if unknown.any():
        first = int(np.flatnonzero(unknown)[0])
        raise UserError(
            f"{where}: row {column.index[first]}: time {column.iloc[first]} is neither s, ms, us nor ns since 1970 "
            "in the years 2009 to 2100; give one of these"
        )
    return times, found, 0


def _check_range(times: np.ndarray, table: "pd.DataFrame", now: int, where: str) -> None:
    wrong = (times != 0) & ((times < OLDEST) | (times > now))
    if wrong.any():
        first = int(np.flatnonzero(wrong)[0])
        raise UserError(
            f"{where}: row {table.index[first]} opens at {iso(times[first])}, which is "
            + ("in the future; is its time zone UTC?" if times[first] > now else "before there were coins to trade")
        )


def _check_step(times: np.ndarray, step: int, where: str) -> None:
    distinct = np.unique(times[times != 0])
    found = int(np.median(np.diff(distinct))) if len(distinct) > 1 else 0
    if found != step:
        name = _length(found) if found else "0 (all rows open at the same time)"
        hint = f"; give data.timeframe={name}" if name in TIMEFRAMES else ""
        raise UserError(f"{where}: its candles are {name} apart, not {_length(step)}{hint}")


def _length(milliseconds: int) -> str:
    names = {length: name for name, length in TIMEFRAMES.items()}
    return names.get(milliseconds, f"{milliseconds / 1000:g} s")


def _still_open(candles: Candles, table: "pd.DataFrame", last: np.ndarray, now: int, written: int | None) -> bool:
    """Whether the last candle had not closed: by the clock, by the file's time, or by its own time of closing."""
    if not len(candles):
        return False
    opens = int(candles.time[-1])
    closes = opens + candles.timeframe_ms
    if closes > now or (written is not None and opens <= written < closes):
        return True
    if "close_time" not in table.columns:
        return False
    try:
        stated = int(_times(table["close_time"].iloc[last], "")[0][0])
    except UserError:  # it is no column that we need
        return False
    return opens <= stated < closes - 1000  # some write the last second, some the last millisecond, some the end


def iso(milliseconds: int | np.integer) -> str:
    """2024-01-31T13:45:00Z for ms since 1970."""
    return datetime.fromtimestamp(int(milliseconds) / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def download(
    symbol: str, timeframe: str, days: int, *, exchange: str = "binance", minimum_rows: int = MINIMUM_ROWS
) -> tuple[Candles, dict[str, Any]]:
    """The last `days` of candles from an exchange through ccxt, checked as a file is.

    Raises UserError if ccxt is not installed, the exchange or the coin is not known, or the network fails.
    """
    import pandas as pd

    try:
        import ccxt
    except ImportError as error:
        raise UserError("data.source=ccxt needs the package ccxt: .venv/bin/pip install ccxt") from error
    if exchange not in ccxt.exchanges:
        raise UserError(f"{symbol}: ccxt knows no exchange {exchange!r}; give one like binance")
    client = getattr(ccxt, exchange)({"enableRateLimit": True})
    try:
        market = _market(symbol, client.load_markets())
        now = int(client.milliseconds())
        rows = _pages(client, market, timeframe, now - days * DAY, now)
    except ccxt.BaseError as error:
        reason = " ".join(str(error).split())[:200]
        raise UserError(
            f"{symbol}: {exchange} did not answer: {reason}; try again later, or give files: data.source=files "
            "data.folder=FOLDER"
        ) from error
    table = pd.DataFrame(rows, columns=["time", *VALUES], dtype=object)
    table.index += 1
    candles, facts = check(table, symbol, timeframe, exchange, now, minimum_rows)
    return candles, {"exchange": exchange, "market": market, **facts}


def _market(symbol: str, markets: Iterable[str]) -> str:
    wanted = canonical(symbol)
    # Of BTC/USDT and BTC/USDT:USDT, a future, the shorter is the spot market.
    found = [name for name in sorted(markets, key=len) if re.sub(r"[^A-Z0-9]", "", name.upper()) == wanted]
    if not found:
        quote = next((quote for quote in QUOTES if wanted.endswith(quote) and wanted != quote), "")
        base = wanted.removesuffix(quote)
        raise UserError(f"{symbol}: the exchange does not trade {f'{base}/{quote}' if quote else wanted}")
    return found[0]


def _pages(client: Any, market: str, timeframe: str, since: int, now: int) -> list[list[Any]]:
    rows: list[list[Any]] = []
    while since <= now:
        page = client.fetch_ohlcv(market, timeframe, since=since, limit=BATCH)
        page = [row for row in page if row[0] >= since]
        if not page:
            break
        rows += page
        since = int(page[-1][0]) + 1
    return rows
