"""Parsers of names of coins, timeframes, columns and files of candles, as exchanges, tools and people write them.

Pages take the same steps (common/browser/signals.js) by the same rules, and tests hold both to the same cases.
"""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from common.errors import UserError


class Rules(NamedTuple):
    """The rules of names in candle_names.json."""

    # Names of columns, as `plain` writes them, the best first; else the first of `volume_of` finds the volume in coins.
    columns: dict[str, list[str]]
    zone: str  # hint where to write the zone that a column's name has, such as "Time (UTC+1)"
    volume_of: list[str]
    alike: list[str]  # columns with one value in all rows
    ending: str  # suffix of a time column's name
    times: dict[str, str]  # 20240131, which is no number since 1970; dates alone, and times of day in column `clock`
    plain: dict[str, str]  # pattern -> replacement, such as +01:00 for a zone GMT+1
    dates: list[str]  # formats of strptime beside ISO 8601
    hours: list[str]  # formats of the time of day after these
    missing: list[str]  # words for a missing value
    copy: str  # suffix that browsers append to a copy
    date: str
    timeframes: list[str]
    lengths: list[str]
    minutes: dict[str, int]  # by the first letter of a unit
    marks: dict[str, str]  # decimal mark -> numbers with it, and with the other mark between thousands
    units: dict[str, str]  # suffix of a volume -> power of ten
    faults: dict[str, str]  # kind of broken rows -> description in messages
    other: str  # in names of files that hold no candles
    quotes: list[str]
    contracts: list[str]  # after a pair
    reasons: dict[str, str]


RULES = Rules(**json.loads(Path(__file__).with_name("candle_names.json").read_text()))

MINUTE = 60_000
# Weeks and months are left out: their candles do not open at multiples of their length since 1970.
TIMEFRAMES = {name: int(name[:-1]) * RULES.minutes[name[-1]] * MINUTE for name in RULES.lengths}
SYMBOL = re.compile(r"[A-Za-z0-9]+([/_:-][A-Za-z0-9]+)*")


class FileName(NamedTuple):
    """The parsed name of a file of candles."""

    coin: str = ""  # letters and digits
    timeframe: str = ""  # such as 15m
    part: bool = False  # the file is one of a day, a month or a year
    reason: str = ""  # why the file is not read


def file_name(stem: str) -> FileName:
    """Find the pair, the timeframe and a date anywhere in a file's name without its ending."""
    rest = re.sub(RULES.date, " ", re.sub(RULES.copy, " ", stem)).strip(" _,-")
    if re.search(RULES.other, rest, re.IGNORECASE):
        return FileName(reason=RULES.reasons["other"])
    found = next((each for rule in RULES.timeframes if (each := re.search(rule, rest, re.IGNORECASE))), None)
    if found is None:
        return FileName(reason=RULES.reasons["timeframe"])
    if found[0] == "1M":
        return FileName(reason=RULES.reasons["month"])
    minutes = int(found[1] or 1) * RULES.minutes[found[2][:1].lower()]
    known = {int(name[:-1]) * RULES.minutes[name[-1]]: name for name in RULES.lengths}
    timeframe = known.get(minutes, f"{found[1]}{found[2][:1].lower() or 'm'}")
    before, after = rest[: found.start()], rest[found.end() :]
    coin = _pair(re.findall("[A-Z0-9]+", f"{before} {after}".upper()))
    if not coin and re.search("[-_]$", before):  # a name of any kind before the timeframe
        coin = re.sub("[^A-Z0-9]", "", before.upper())
    if not coin:
        return FileName(reason=RULES.reasons["pair"])
    return FileName(coin, timeframe, re.search(RULES.date, stem) is not None)


def _pair(words: Sequence[str]) -> str:
    """Return the last pair among words, such as BTCUSDT, or XRP USDT USDT of a future; empty if there is none."""
    for place in range(len(words) - 1, -1, -1):
        word, after = words[place], words[place + 1 : place + 2]
        contract = after[0] if after and after[0] in RULES.contracts else ""
        if word in RULES.quotes and place:
            first = place - 2 if words[place - 1] == word and place > 1 else place - 1
            return "".join(words[first : place + 1]) + contract
        if any(word.endswith(quote) and len(word) > len(quote) + 1 for quote in RULES.quotes):
            return word + contract
    return ""


def plain(name: str) -> str:
    """Return a column's name in lower case, with _ for all but letters and digits."""
    return re.sub("[^a-z0-9]+", "_", name.lower()).strip("_")


def columns_of(names: Sequence[str], where: str) -> Mapping[str, int]:
    """Return the index in `names` of each known column. Raises UserError for one that occurs twice."""
    found, exact = dict[str, int](), [plain(name) for name in names]
    for ours, known in RULES.columns.items():
        trimmed = [re.sub(RULES.ending, "", name) for name in exact] if ours == "time" else exact
        alias = next((each for each in known if each in exact or each in trimmed), None)
        if alias is not None:
            if exact.count(alias) > 1:
                raise UserError(f"{where}: there are {exact.count(alias)} columns {alias}; keep only one of them")
            found[ours] = (exact if alias in exact else trimmed).index(alias)
        elif ours == "volume" and (own := [name for form in RULES.volume_of for name in exact if re.match(form, name)]):
            found[ours] = exact.index(own[0])
    return found


def milliseconds(timeframe: str) -> int:
    """Return the length of a candle. Raises UserError for an unknown timeframe."""
    if timeframe not in TIMEFRAMES:
        raise UserError(f"data.timeframe={timeframe} is not known; give one of {', '.join(TIMEFRAMES)}")
    return TIMEFRAMES[timeframe]


def timeframe_name(length_ms: int) -> str:
    """Return "15m" for 900,000, and "45 min" or "17 s" for a length that no timeframe has."""
    other = f"{length_ms / 1000:g} s" if length_ms % MINUTE else f"{length_ms // MINUTE} min"
    return next((name for name, length in TIMEFRAMES.items() if length == length_ms), other)


def canonical(symbol: str, key: str = "data.symbols") -> str:
    """Return BTCUSDT for btc_usdt, BTC/USDT and the like. Raises UserError for a name that no coin can have."""
    if not isinstance(symbol, str) or not SYMBOL.fullmatch(symbol):
        raise UserError(f"{key}: {symbol!r} is not the name of a coin; give one like BTCUSDT or BTC/USDT")
    return letters_and_digits(symbol)


def letters_and_digits(name: str) -> str:
    """Return the name in capitals without separators, so that different spellings compare equal."""
    return re.sub(r"[^A-Z0-9]", "", name.upper())


def minute(time_ms: int | np.integer) -> str:
    """Return a time in ms since 1970 as 2024-01-31 13:45, of any year."""
    return str(np.datetime_as_string(np.datetime64(int(time_ms), "ms"), unit="m")).replace("T", " ")


def iso(time_ms: int | np.integer) -> str:
    """Return a time in ms since 1970 as 2024-01-31T13:45:00Z."""
    return f"{np.datetime_as_string(np.datetime64(int(time_ms), 'ms'), unit='s')}Z"
