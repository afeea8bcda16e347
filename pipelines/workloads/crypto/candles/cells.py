"""Reads the cells of a table of candles: columns by their usual names, numbers, and times with their units.

Whether they make sense together is for `checks`.
"""

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from common.errors import UserError
from models.market.candle_tables import RULES, columns_of
from models.market.candles import VALUES

if TYPE_CHECKING:
    import pandas as pd

OLDEST = 1_230_940_800_000  # 2009-01-03, Bitcoin's first block
NEWEST = 4_102_444_800_000  # 2100-01-01
UNITS = {"s": 1e-3, "ms": 1.0, "us": 1e3, "ns": 1e6}  # per millisecond; between 2009 and 2100 their ranges are disjoint
DATES = [day + hour + zone for day in RULES.dates for hour in RULES.hours for zone in ("", "%z")]


def select(table: "pd.DataFrame", where: str) -> "pd.DataFrame":
    """Return the known columns under our names, a date and a time of day together; `close_time` may be missing.

    Raises UserError, beginning with `where`, for a column that is missing or present twice.
    """
    names = [str(name) for name in table.columns]
    found = columns_of(names, where)
    for ours, known in RULES.columns.items():
        if ours not in found and ours not in ("close_time", "clock"):
            way = known[0] + RULES.zone * (ours == "time")
            raise UserError(f"{where}: there is no column for {ours} (columns: {', '.join(names)}); name it {way}")
    for cells in (cells for name, cells in table.items() if str(name).strip().lower() in RULES.alike):
        kinds = cells.dropna().astype("str").drop_duplicates().str.replace("[^A-Za-z0-9]", "", regex=True)
        if len(several := sorted({*kinds.str.upper()} - {""})) > 1:
            raise UserError(f"{where}: {cells.name} is {' and '.join(several[:3])}; write the rows of each into a file")
    table = table.iloc[:, list(found.values())]
    table.columns = list(found)
    if "clock" in found and found["clock"] != found["time"]:
        days, hours = (table[name].astype("str").fillna("").str.strip() for name in ("time", "clock"))
        if len(_present(hours)) and _present(days).str.fullmatch(RULES.times["days"]).all():
            if not len(wrong := hours[~hours.str.fullmatch(RULES.times["clock"])]):
                table = table.assign(time=days + " " + hours)
            elif days.duplicated().any():  # else the dates are the times, and the other column is no clock
                cell = f"row {wrong.index[0]}, column {names[found['clock']]}: {wrong.iloc[0]!r}"
                raise UserError(f"{where}: {cell} is no time of day; give one like 13:45:00 or 01:45 PM")
    return table


def with_points(table: "pd.DataFrame", where: str) -> "pd.DataFrame":
    """Return the table with 41,718.2, 42.000,50 and a volume of 1.2M as 41718.2, 42000.50 and 1.2e6.

    Raises UserError if all commas may be either decimal ones or separators of thousands.
    """
    import pandas as pd

    columns = [table[name][table[name].notna()] for name in VALUES]
    if all(pd.to_numeric(column, errors="coerce").notna().all() for column in columns):
        return table
    cells = table[list(VALUES)].astype("str").apply(lambda column: column.str.strip())
    for unit, power in RULES.units.items():
        cells["volume"] = cells["volume"].str.replace(f"(?<=[0-9]) ?{unit}$", power, case=False, regex=True)
    known = _present(cells.stack().dropna())
    fit = [mark for mark, form in RULES.marks.items() if known.str.fullmatch(form, case=False).all()]
    if len(fit) > 1 and len(either := known[known.str.contains(",", regex=False)]):
        (row, name), cell = either.index[0], either.iloc[0]
        ways = f"{cell.replace(',', '')} or {cell.replace(',', '.')}"
        raise UserError(f"{where}: row {row}, column {name}: {cell!r} may be {ways}; write numbers without thousands")
    thousands = {",": "."}.get(fit[0], ",") if fit else ""
    plain = cells.apply(lambda column: column.str.replace(thousands, "").str.replace(",", "."))
    return table.assign(**plain) if fit else table


def numbers(column: "pd.Series", name: str, where: str) -> np.ndarray:
    """Return (N,) float64, NaN for missing cells. Raises UserError for text and JSON's true."""
    import pandas as pd

    values = pd.to_numeric(column, errors="coerce").where(~column.map(type).isin([bool]))  # pandas takes true for 1
    if len(text := _present(column[values.isna() & column.notna()])):
        raise UserError(f"{where}: row {text.index[0]}, column {name}: {text.iloc[0]!r} is not a number; repair it")
    # numpy reads text to the last bit; pandas before 3.1 does not.
    return np.asarray(column.where(values.notna()).astype(np.float64))


def times_of(column: "pd.Series", where: str) -> tuple[np.ndarray, list[str], int]:
    """Return (N,) int64 ms, 0 where missing; the units found; and the number of times without a zone.

    Dates such as 31.01.2024 or 01/31/24 are read if one form alone fits all of them, or one alone without future dates.
    Raises UserError for cells that are not times.
    """
    import pandas as pd

    if pd.api.types.is_datetime64_any_dtype(column):
        num_naive = 0 if isinstance(column.dtype, pd.DatetimeTZDtype) else int(column.notna().sum())
        return _to_ms(pd.to_datetime(column, utc=True)), ["datetime"], num_naive
    if not len(present := column[column.notna()]):
        raise UserError(f"{where}: the time column is empty")
    first = present.iloc[:1].astype("str").str.strip()
    if not (pd.to_numeric(first, errors="coerce").isna().all() or first.str.fullmatch(RULES.times["day"]).all()):
        return _epochs(numbers(column, "time", where), column, where)
    text = column.astype("str").str.strip()
    read = partial(pd.to_datetime, utc=True, errors="coerce")
    parsed = read(text, format="ISO8601")
    if parsed[present.index].isna().any():
        for form, plain in RULES.plain.items():
            text = text.str.replace(form, plain, case=False, regex=True)
        parsed = read(text, format="ISO8601")
    fit = [form for form in DATES if parsed.isna().all() and read(text[first.index], format=form).notna().all()]
    if len(found := [each for form in fit if (each := read(text, format=form))[present.index].notna().all()]) > 1:
        found = [each for each in found if each.max() <= pd.Timestamp.now("UTC")]
    parsed = found[0] if len(found) == 1 else parsed
    if len(unread := _present(present[parsed[present.index].isna()])):
        wrong = f"row {unread.index[0]}, column time: {unread.iloc[0]!r} is not a time, or may be several"
        raise UserError(f"{where}: {wrong}; give one like 2024-01-31 13:45:00, or numbers since 1970")
    aware = text.str.contains(r"(?:[zZ]|[+-]\d\d:?(?:\d\d)?)$", regex=True) & text.str.contains(":")
    return _to_ms(parsed), ["text"], int((~aware.fillna(False).astype(bool) & parsed.notna()).sum())


def _present(cells: "pd.Series") -> "pd.Series":
    """Return the cells that hold more than a word for a missing value."""
    return cells[~cells.astype(str).str.strip().str.lower().isin(RULES.missing)]


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
    if (unknown := (result == 0) & ~np.isnan(values)).any():
        first = int(np.flatnonzero(unknown)[0])
        wrong = f"row {column.index[first]}: time {column.iloc[first]} is neither s, ms, us nor ns since 1970"
        raise UserError(f"{where}: {wrong} between the years 2009 and 2100; give one of these")
    return result, found, 0
