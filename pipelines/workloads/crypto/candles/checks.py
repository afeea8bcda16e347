"""Checks of a table of candles, whose columns are found by their usual names, and which is repaired or refused.

Nothing in the table is trusted, and every check leaves a count in the facts that `check` returns.
"""

import time as clock
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from common.errors import UserError
from models.market.candle_tables import RULES, TIMEFRAMES, canonical, columns_of, iso, milliseconds, timeframe_name
from models.market.candles import VALUES, Candles

if TYPE_CHECKING:
    import pandas as pd

JUMP = 2.0  # factor between consecutive closes above which a rename or a split is likelier than a trade
LONGER = "give more candles or a lower data.minimum_rows"
BROKEN_SHARE = 0.001  # of rows; a feed with more broken rows is likely to be wrong elsewhere too
OLDEST = 1_230_940_800_000  # 2009-01-03, Bitcoin's first block
NEWEST = 4_102_444_800_000  # 2100-01-01
UNITS = {"s": 1e-3, "ms": 1.0, "us": 1e3, "ns": 1e6}  # per millisecond; between 2009 and 2100 their ranges are disjoint
DATES = [day + hour + zone for day in RULES.dates for hour in RULES.hours for zone in ("", "%z")]


def check(
    table: "pd.DataFrame",
    symbol: str,
    timeframe: str,
    source: str,
    now: int | None,
    minimum_rows: int,
    written: int | None = None,
) -> tuple[Candles, dict[str, object]]:
    """Return the candles of a table whose index counts its rows, and the counts of all checks.

    Sorted and counted: rows out of order. Dropped and counted: duplicate rows, the last candle if it was still open at
    `now` or when the file was `written` (ms), and, up to 0.1 % of all rows together, rows with missing or infinite
    numbers, prices that are not positive, a high or low that does not enclose the candle, or a time off the grid.
    Only counted: candles without volume, gaps, jumps of the price, times without a zone (taken as UTC).

    Raises UserError for everything else, beginning with `source` and the coin.
    """
    where, step = f"{source}: {symbol}", milliseconds(timeframe)
    now = int(clock.time() * 1000) if now is None else now
    table = select(table, where)
    if len(table) < max(minimum_rows, 2):
        raise UserError(f"{where}: {len(table)} rows are too few, {max(minimum_rows, 2)} are needed; {LONGER}")
    times, units, num_naive = _times(table["time"], where)
    table = _with_points(table, where)
    values = {name: _numbers(table[name], name, where) for name in VALUES}
    if len(wrong := np.flatnonzero((times != 0) & ((times < OLDEST) | (times > now)))):
        time = times[wrong[0]]
        why = "in the future; is its time zone UTC?" if time > now else "before there were coins to trade"
        raise UserError(f"{where}: row {table.index[wrong[0]]} opens at {iso(time)}, which is {why}")
    _check_step(times, step, where)
    faults = _faults(times, values, step)
    if (broken := np.logical_or.reduce(list(faults.values()))).mean() > BROKEN_SHARE:
        raise UserError(f"{where}: {_worst(faults, table.index, times, values, timeframe)}")

    kept = np.flatnonzero(~broken)
    num_unsorted = int((times[kept] < np.maximum.accumulate(times[kept])).sum())
    kept = kept[np.argsort(times[kept], kind="stable")]
    candles = Candles(
        canonical(symbol), step, np.ascontiguousarray(times[kept]), **{name: values[name][kept] for name in VALUES}
    )
    repeated = _repeated(candles, table.index[kept], where)
    candles = candles.rows(~repeated)
    still_open = _is_open(candles, table.iloc[kept[-1:]], now, written)
    candles = candles.rows(slice(0, len(candles) - still_open))
    if len(candles) < minimum_rows:
        left = f"{len(candles)} candles are left of {len(table)} rows"
        raise UserError(f"{where}: {left}, {minimum_rows} are needed; {LONGER}")
    return candles, {
        "rows": len(table),
        "time_units": units,
        "naive_times": num_naive,
        "unsorted": num_unsorted,
        "duplicates": int(repeated.sum()),
        **{name: int(mask.sum()) for name, mask in faults.items()},
        "open_candle": int(still_open),
        **describe(candles),
    }


def timeframe_of(table: "pd.DataFrame", where: str) -> str:
    """Return the time from most rows to the next, such as 15m; "" where all differ. Raises UserError."""
    lengths, counts = np.unique(np.diff(np.unique(_times(select(table, where)["time"], where)[0])), return_counts=True)
    return timeframe_name(int(lengths[counts.argmax()])) if counts.max(initial=0) > 1 else ""


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
            elif days.duplicated().any():  # else a day says it all, whatever stands beside it
                cell = f"row {wrong.index[0]}, column {names[found['clock']]}: {wrong.iloc[0]!r}"
                raise UserError(f"{where}: {cell} is no time of day; give one like 13:45:00 or 01:45 PM")
    return table


def _with_points(table: "pd.DataFrame", where: str) -> "pd.DataFrame":
    """Return the table with 41,718.2, 42.000,50 and a volume of 1.2M as 41718.2, 42000.50 and 1.2e6.

    Raises UserError where all commas may be decimal ones and may divide thousands.
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


def _numbers(column: "pd.Series", name: str, where: str) -> np.ndarray:
    """Return (N,) float64, NaN for missing cells. Raises UserError for text and JSON's true."""
    import pandas as pd

    values = pd.to_numeric(column, errors="coerce").where(~column.map(type).isin([bool]))  # pandas takes true for 1
    text = _present(column[values.isna() & column.notna()])
    if len(text):
        raise UserError(f"{where}: row {text.index[0]}, column {name}: {text.iloc[0]!r} is not a number; repair it")
    # numpy reads text to the last bit; pandas before 3.1 does not.
    return np.asarray(column.where(values.notna()).astype(np.float64))


def _times(column: "pd.Series", where: str) -> tuple[np.ndarray, list[str], int]:
    """Return (N,) int64 ms, 0 where missing; the units found; and the number of times without a zone.

    Dates such as 31.01.2024 or 01/31/24 are read where one form fits all of them, and no other of the past.
    Raises UserError for cells that are not times.
    """
    import pandas as pd

    if pd.api.types.is_datetime64_any_dtype(column):
        num_naive = 0 if isinstance(column.dtype, pd.DatetimeTZDtype) else int(column.notna().sum())
        return _to_ms(pd.to_datetime(column, utc=True)), ["datetime"], num_naive
    present = column[column.notna()]
    if not len(present):
        raise UserError(f"{where}: the time column is empty")
    first = present.iloc[:1].astype("str").str.strip()
    if not (pd.to_numeric(first, errors="coerce").isna().all() or first.str.fullmatch(RULES.times["day"]).all()):
        return _epochs(_numbers(column, "time", where), column, where)
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
    unread = _present(present[parsed[present.index].isna()])
    if len(unread):
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


def _check_step(times: np.ndarray, step: int, where: str) -> None:
    distinct = np.unique(times[times != 0])
    found = int(np.median(np.diff(distinct))) if len(distinct) > 1 else 0
    if found != step:
        name = timeframe_name(found) if found else "0 (all rows open at the same time)"
        other = f"; only candles of {', '.join(TIMEFRAMES)} can be used" if found else ""
        hint = f"; give data.timeframe={name}" if name in TIMEFRAMES else other
        raise UserError(f"{where}: its candles are {name} apart, not {timeframe_name(step)}{hint}")


def _faults(times: np.ndarray, values: dict[str, np.ndarray], step: int) -> dict[str, np.ndarray]:
    """Return the rows (N,) bool with each of the rules' faults; a row counts for the first one it has."""
    prices = np.stack([values[name] for name in VALUES[:4]])
    known = (times != 0) & np.isfinite(prices).all(0) & np.isfinite(values["volume"])
    positive = (prices > 0).all(0) & (values["volume"] >= 0)
    enclosed = (values["high"] == prices.max(0)) & (values["low"] == prices.min(0))
    masks = (~known, known & ~positive, known & positive & ~enclosed, known & positive & enclosed & (times % step != 0))
    return dict(zip(RULES.faults, masks, strict=True))


def _worst(
    faults: dict[str, np.ndarray], names: "pd.Index", times: np.ndarray, values: dict[str, np.ndarray], timeframe: str
) -> str:
    """Return the most frequent fault in words, with its first row."""
    name, mask = max(faults.items(), key=lambda item: int(item[1].sum()))
    first = int(np.flatnonzero(mask)[0])
    shown = ", ".join(f"{column} {values[column][first]:g}" for column in VALUES)
    broken = f"{int(mask.sum())} of {len(names)} rows have {RULES.faults[name].format(timeframe=timeframe)}, first row"
    many = f"more than {BROKEN_SHARE:.1%} of rows are broken, so none is trusted: name columns, or download it again"
    return f"{broken} {names[first]} ({iso(times[first])}: {shown}); {many}"


def _repeated(candles: Candles, row_names: "pd.Index", where: str) -> np.ndarray:
    """Return the candles (N,) bool that repeat the one before. Raises UserError where the two differ."""
    repeated = np.concatenate([[False], candles.time[1:] == candles.time[:-1]])
    for row in np.flatnonzero(repeated):
        for name in VALUES:
            one, other = getattr(candles, name)[row - 1], getattr(candles, name)[row]
            if one != other:
                both = f"rows {row_names[row - 1]} and {row_names[row]} both open at {iso(candles.time[row])}"
                wrong = f"{name} {one:g} and {other:g}"
                raise UserError(f"{where}: {both} but differ ({wrong}); remove one, or write times in UTC")
    return repeated


def _is_open(candles: Candles, last: "pd.DataFrame", now: int, written: int | None) -> bool:
    """Return whether the last candle was still open, by the clock, the file's time or its own closing time."""
    opens = int(candles.time[-1])
    closes = opens + candles.timeframe_ms
    if closes > now or (written is not None and opens <= written < closes):
        return True
    with suppress(KeyError, UserError):  # a missing or unreadable closing time tells nothing, and nothing else needs it
        stated = int(_times(last["close_time"], "")[0][0])
        return opens <= stated < closes - 1000  # exchanges give the last second, the last millisecond or the end
    return False


def describe(candles: Candles) -> dict[str, object]:
    """Return counts, range and hash of candles that have passed the checks."""
    missing = np.diff(candles.time) // candles.timeframe_ms - 1
    return {
        "candles": len(candles),
        "first": iso(candles.time[0]),
        "last": iso(candles.time[-1]),
        "zero_volume": int((candles.volume == 0).sum()),
        "jumps": int((np.abs(np.diff(np.log(candles.close))) > np.log(JUMP)).sum()),
        "gaps": int((missing > 0).sum()),
        "missing_candles": int(missing.sum()),
        "longest_gap": int(missing.max(initial=0)),
        "hash": candles.digest(),
    }
