"""Columns of a table of candles: found by their usual names and read as numbers and times."""

from typing import TYPE_CHECKING

import numpy as np

from common.errors import UserError
from models.market.candle_tables import RULES, columns_of

if TYPE_CHECKING:
    import pandas as pd

MISSING = ("", "nan", "null", "none")
OLDEST = 1_230_940_800_000  # 2009-01-03, Bitcoin's first block
NEWEST = 4_102_444_800_000  # 2100-01-01
UNITS = {"s": 1e-3, "ms": 1.0, "us": 1e3, "ns": 1e6}  # per millisecond; between 2009 and 2100 their ranges are disjoint


def select(table: "pd.DataFrame", where: str) -> "pd.DataFrame":
    """Return the known columns under our names; `close_time` may be missing.

    Raises UserError, beginning with `where`, for a column that is missing or present twice.
    """
    names = [str(name) for name in table.columns]
    try:
        found = columns_of(names)
    except ValueError as error:
        raise UserError(f"{where}: {error}") from error
    for ours, known in RULES.columns.items():
        if ours not in found and ours != "close_time":
            raise UserError(f"{where}: there is no column for {ours} (columns: {', '.join(names)}); name it {known[0]}")
    table = table.iloc[:, list(found.values())]
    table.columns = list(found)
    return table


def numbers(column: "pd.Series", name: str, where: str) -> np.ndarray:
    """Return (N,) float64, NaN for missing cells. Raises UserError for text."""
    import pandas as pd

    values = pd.to_numeric(column, errors="coerce")
    text = _present(column[values.isna() & column.notna()])
    if len(text):
        raise UserError(f"{where}: row {text.index[0]}, column {name}: {text.iloc[0]!r} is not a number; repair it")
    return np.asarray(values.to_numpy(np.float64, na_value=np.nan))


def times(column: "pd.Series", where: str) -> tuple[np.ndarray, list[str], int]:
    """Return (N,) int64 ms, 0 where missing; the units found; and the number of times without a zone.

    Raises UserError for cells that are not times.
    """
    import pandas as pd

    if isinstance(column.dtype, pd.DatetimeTZDtype) or np.issubdtype(
        getattr(column.dtype, "type", object), np.datetime64
    ):
        num_naive = 0 if isinstance(column.dtype, pd.DatetimeTZDtype) else int(column.notna().sum())
        return _to_ms(pd.to_datetime(column, utc=True)), ["datetime"], num_naive
    present = column[column.notna()]
    if not len(present):
        raise UserError(f"{where}: the time column is empty")
    if not np.isnan(pd.to_numeric(present.iloc[:1], errors="coerce").iloc[0]):
        return _epochs(numbers(column, "time", where), column, where)
    text = column.astype("str").str.strip().str.replace(r" ?UTC$", "+00:00", regex=True)
    parsed = pd.to_datetime(text, utc=True, format="ISO8601", errors="coerce")
    unread = _present(present[parsed[present.index].isna()])
    if len(unread):
        raise UserError(
            f"{where}: row {unread.index[0]}, column time: {unread.iloc[0]!r} is not a time; "
            "give one like 2024-01-31 13:45:00, or numbers since 1970"
        )
    aware = text.str.contains(r"(?:[zZ]|[+-]\d\d:?(?:\d\d)?)$", regex=True) & text.str.contains(":")
    return _to_ms(parsed), ["text"], int((~aware.fillna(False).astype(bool) & parsed.notna()).sum())


def _present(cells: "pd.Series") -> "pd.Series":
    """Return the cells that hold more than a word for a missing value."""
    return cells[~cells.astype(str).str.strip().str.lower().isin(MISSING)]


def _to_ms(parsed: "pd.Series") -> np.ndarray:
    missing = parsed.isna().to_numpy()
    parsed = parsed.dt.tz_localize(None).astype("datetime64[ms]").to_numpy().astype(np.int64)
    return np.where(missing, 0, parsed)


def _epochs(values: np.ndarray, column: "pd.Series", where: str) -> tuple[np.ndarray, list[str], int]:
    """Read each time in the unit of its magnitude: Binance's files changed from ms to us in 2025."""
    result = np.zeros(len(values), np.int64)
    found = []
    for unit, per_ms in UNITS.items():
        within = (values >= OLDEST * per_ms) & (values <= NEWEST * per_ms)
        if within.any():
            found.append(unit)
            result[within] = np.rint(values[within] / per_ms).astype(np.int64)
    unknown = (result == 0) & ~np.isnan(values)
    if unknown.any():
        first = int(np.flatnonzero(unknown)[0])
        raise UserError(
            f"{where}: row {column.index[first]}: time {column.iloc[first]} is neither s, ms, us nor ns since 1970 "
            "between the years 2009 and 2100; give one of these"
        )
    return result, found, 0
