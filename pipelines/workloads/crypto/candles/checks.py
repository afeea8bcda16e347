"""Checks of a table of candles, which is repaired or refused.

Nothing in the table is trusted, and every check leaves a count in the facts that `check` returns.
"""

import time as clock
from contextlib import suppress
from typing import TYPE_CHECKING

import numpy as np

from common.errors import UserError
from models.market.candle_tables import RULES, TIMEFRAMES, canonical, iso, milliseconds, timeframe_name
from models.market.candles import VALUES, Candles
from pipelines.workloads.crypto.candles.cells import OLDEST, numbers, select, times_of, with_points

if TYPE_CHECKING:
    import pandas as pd

JUMP = 2.0  # factor between consecutive closes above which a rename or a split is likelier than a trade
LONGER = "give more candles or a lower data.minimum_rows"
BROKEN_SHARE = 0.001  # of rows; a feed with more broken rows is likely to be wrong elsewhere too


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
    times, units, num_naive = times_of(table["time"], where)
    table = with_points(table, where)
    values = {name: numbers(table[name], name, where) for name in VALUES}
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
    """Return the commonest time between rows, such as 15m; "" if all differ. Raises UserError."""
    times = np.unique(times_of(select(table, where)["time"], where)[0])
    lengths, counts = np.unique(np.diff(times), return_counts=True)
    return timeframe_name(int(lengths[counts.argmax()])) if counts.max(initial=0) > 1 else ""


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
    with suppress(KeyError, UserError):  # a missing or unreadable closing time is ignored, as nothing else needs it
        stated = int(times_of(last["close_time"], "")[0][0])
        return opens <= stated < closes - 1000  # exchanges state the last second, the last millisecond or the end
    return False


def describe(candles: Candles) -> dict[str, object]:
    """Return counts, range and hash of candles that have passed the checks."""
    missing = np.diff(candles.time) // candles.timeframe_ms - 1
    flat = (candles.volume == 0) & (candles.high == candles.low) & (np.diff(candles.close, prepend=np.nan) == 0)
    return {
        "candles": len(candles),
        "first": iso(candles.time[0]),
        "last": iso(candles.time[-1]),
        "zero_volume": int((candles.volume == 0).sum()),
        "longest_still": int(np.diff(np.flatnonzero(~np.pad(flat, 1))).max()) - 1,  # candles at the last close
        "jumps": int((np.abs(np.diff(np.log(candles.close))) > np.log(JUMP)).sum()),
        "gaps": int((missing > 0).sum()),
        "missing_candles": int(missing.sum()),
        "longest_gap": int(missing.max(initial=0)),
        "hash": candles.digest(),
    }
