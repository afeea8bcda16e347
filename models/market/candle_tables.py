"""Names of the columns and files of candles, as exchanges, tools and people write them.

A page follows the same steps (common/browser/signals.js) by the same RULES, and both are held to the same cases.
"""

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from models.market.candles import VALUES

# Of columns, as `plain` writes them, the best first. Without any of these, the first name that begins with VOLUME_OF is
# the volume: of "Volume BTC" and "Volume USDT" that counts coins.
COLUMN_NAMES = {
    "time": (
        *(
            "open_time",
            "opentime",
            "timestamp",
            "unix",
            "unix_timestamp",
            "date",
            "datetime",
            "time",
            "index",
            "ts",
            "t",
        ),
        *("start", "start_time", "start_at", "time_open", "index_level_0"),
    ),
    **{name: (name, name[0], f"{name}_price", f"price_{name}") for name in VALUES},
    "volume": ("volume", "v", "vol", "base_volume", "volume_base", "volumefrom"),
    "close_time": ("close_time",),
}
VOLUME_OF = "volume_"
ENDING = "_(utc|gmt|ms|s)$"  # of the name of a time
COPY = r"\(\d+\)"  # appended by a browser
FIRST, LAST = "(?<![A-Za-z0-9])", "(?![A-Za-z0-9])"  # around what stands by itself
DATE = rf"{FIRST}20\d\d(-?\d\d){{0,2}}{LAST}"
TIMEFRAME = rf"{FIRST}(\d{{1,4}})[ _-]?(minutes?|mins?|m|hours?|hrs?|h|days?|d){LAST}"
WORD = rf"{FIRST}()(minute|hourly|hour|daily|day|d){LAST}"  # of one
BARE = r"[ _,-](1|3|5|15|30|60|120|240|360|480|720|1440)()$"  # minutes
LENGTHS = ("1m", "3m", "5m", "15m", "30m", "1h", "2h", "4h", "6h", "8h", "12h", "1d")
MINUTES = {"": 1, "m": 1, "h": 60, "d": 1440}  # by the first letter of a unit
OTHER = rf"{FIRST}(funding|mark|markprice|premium|premiumindex|trades|aggtrades|orderbook|liquidations?){LAST}"
QUOTES = (
    *("USDT", "USDC", "FDUSD", "BUSD", "TUSD", "USDP", "DAI", "USD", "EUR", "GBP", "JPY", "TRY", "BRL", "AUD", "KRW"),
    *("CHF", "CAD", "BTC", "XBT", "ETH", "BNB"),
)
CONTRACTS = ("PERP", "SWAP", "PERPETUAL")  # after a pair
REASONS = {
    "other": "funding rates, mark prices or trades by the name, no candles",
    "timeframe": "no timeframe such as 15m in the name",
    "month": "candles of a month each, whose lengths differ",
    "pair": "no pair such as BTCUSDT in the name",
}
RULES: dict[str, object] = {  # as a page takes them
    "columns": COLUMN_NAMES,
    "volume_of": VOLUME_OF,
    "ending": ENDING,
    "copy": COPY,
    "date": DATE,
    "timeframes": (TIMEFRAME, WORD, BARE),
    "lengths": LENGTHS,
    "minutes": MINUTES,
    "other": OTHER,
    "quotes": QUOTES,
    "contracts": CONTRACTS,
    "reasons": REASONS,
}


class FileName(NamedTuple):
    """The meaning of the name of a file of candles."""

    coin: str = ""  # letters and digits
    timeframe: str = ""  # such as 15m
    part: bool = False  # of a month, a day or a year
    reason: str = ""  # why the file is not read


def file_name(stem: str) -> FileName:
    """Return the pair, the timeframe and the date that a file's name, without its ending, holds somewhere."""
    rest = re.sub(DATE, " ", re.sub(COPY, " ", stem)).strip(" _,-")
    if re.search(OTHER, rest, re.IGNORECASE):
        return FileName(reason=REASONS["other"])
    found = next((each for rule in (TIMEFRAME, WORD, BARE) if (each := re.search(rule, rest, re.IGNORECASE))), None)
    if found is None:
        return FileName(reason=REASONS["timeframe"])
    if found[0] == "1M":
        return FileName(reason=REASONS["month"])
    minutes = int(found[1] or 1) * MINUTES[found[2][:1].lower()]
    known = {int(name[:-1]) * MINUTES[name[-1]]: name for name in LENGTHS}
    timeframe = known.get(minutes, f"{found[1]}{found[2][:1].lower() or 'm'}")
    before, after = rest[: found.start()], rest[found.end() :]
    coin = _pair(re.findall("[A-Z0-9]+", f"{before} {after}".upper()))
    if not coin and re.search("[-_]$", before):  # a name of any kind before the timeframe
        coin = re.sub("[^A-Z0-9]", "", before.upper())
    if not coin:
        return FileName(reason=REASONS["pair"])
    return FileName(coin, timeframe, re.search(DATE, stem) is not None)


def _pair(words: Sequence[str]) -> str:
    """Return the last pair among words, such as BTCUSDT, or XRP USDT USDT of a future; empty if there is none."""
    for place in range(len(words) - 1, -1, -1):
        word, after = words[place], words[place + 1 : place + 2]
        contract = after[0] if after and after[0] in CONTRACTS else ""
        if word in QUOTES and place:
            first = place - 2 if words[place - 1] == word and place > 1 else place - 1
            return "".join(words[first : place + 1]) + contract
        if any(word.endswith(quote) and len(word) > len(quote) + 1 for quote in QUOTES):
            return word + contract
    return ""


def plain(name: str) -> str:
    """Return the name of a column in small letters, with _ for all else than letters and digits."""
    return re.sub("[^a-z0-9]+", "_", name.lower()).strip("_")


def columns_of(names: Sequence[str]) -> Mapping[str, int]:
    """Return the places of the columns of COLUMN_NAMES among `names`. Raises ValueError for one that is there twice."""
    found = {}
    for ours, known in COLUMN_NAMES.items():
        exact = [plain(name) for name in names]
        trimmed = [re.sub(ENDING, "", name) for name in exact] if ours == "time" else exact
        for alias in known:
            places = [written.index(alias) for written in (exact, trimmed) if alias in written]
            if places and exact.count(alias) > 1:
                raise ValueError(f"there are {exact.count(alias)} columns {alias}; keep only one of them")
            if places:
                found[ours] = places[0]
                break
        else:
            if ours == "volume" and (own := [name for name in exact if name.startswith(VOLUME_OF)]):
                found[ours] = exact.index(own[0])
    return found
