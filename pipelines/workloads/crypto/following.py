"""Candles as they close, from files or an exchange, for `pipelines/follow.py`."""

import json
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np

from common.disk.files import write_text
from common.errors import UserError
from models.market import candle_features
from models.market.candle_tables import milliseconds
from models.market.candles import COLUMNS, Candles
from models.market.inputs import CLASSES
from models.market.labels import UNKNOWN, label
from models.market.recalibration import WINDOW, reach
from models.market.signal_model import SignalModel
from pipelines.engine.feed import Moment
from pipelines.workloads.crypto.candles import exchange, files
from pipelines.workloads.crypto.candles.checks import NEWEST
from pipelines.workloads.crypto.config import Config

FAR = 5.0  # deviations, beyond which a feature is no stranger
LONGEST = 64  # looks that an exchange without anything new is left alone at most
MARGIN = 20  # candles that are downloaded again, and must be the same

Read = Callable[[str, int], Candles]  # (coin, now in ms) -> all that is known of it, in order of time


class CandleFeed:
    """Candles of coins; `read` may also return such that are not yet closed, or from the future."""

    def __init__(self, config: Config, coins: Sequence[str], read: Read, every: float = 1.0):
        self.config, self.series, self.read, self.every = config, coins, read, every
        self.step = milliseconds(config.data.timeframe)
        data, self.settings = config.data, {"now": "newest"}  # what has closed is decided here
        self.context = candle_features.MEMORY + data.lookback + reach(WINDOW, data.horizon)  # candles of an input
        self.known: dict[str, Candles] = {}

    def new(self, series: str, after: int | None, now: int) -> list[Moment]:
        """Return the candles that have closed, each with those before it up to the newest gap."""
        known = self.read(series, now)
        self.known[series] = known = known.rows(known.time + self.step <= now)
        data, found = self.config.data, []
        first = len(known) - 1 if after is None else int(np.searchsorted(known.time, after, "right"))
        if first == len(known) or not len(known):
            return []
        start = max(first - self.context, 0)
        part = known.rows(slice(start, len(known)))
        labels = label(part, data.label, data.horizon, data.threshold)
        for segment in part.segments():
            for row in range(max(segment.start, first - start, 0), segment.stop):
                begin = max(segment.start, row + 1 - self.context)
                columns = {name: getattr(part, name)[begin : row + 1].tolist() for name in COLUMNS}
                past = row - data.horizon
                outcome = labels[past] if past >= segment.start else UNKNOWN
                learnt = (int(part.time[past]), CLASSES[outcome]) if outcome != UNKNOWN else None
                found.append(Moment(int(part.time[row]), {"coin": series, "candles": columns}, learnt))
        return found

    def strangeness(self, model: object, series: str, after: int, until: int) -> dict[int, float]:
        """Return the mean square of the scaled features of candles, those without features left out."""
        assert isinstance(model, SignalModel)
        known, past = self.known[series], candle_features.MEMORY - 1
        first, last = np.searchsorted(known.time, [after, until], "right")
        part, found = known.rows(slice(max(first - past, 0), last)), dict[int, float]()
        for segment in part.segments():
            if segment.stop - segment.start > past:
                rows = part.rows(segment)
                squares = (model.scaled(rows).double().numpy().clip(-FAR, FAR) ** 2).mean(1)
                found.update(zip(rows.time[past:].tolist(), squares.round(4).tolist(), strict=True))
        return {when: value for when, value in found.items() if when > after}

    def save(self) -> None:
        """Write nothing: training reads the same files."""


class ExchangeFeed(CandleFeed):
    """Candles of an exchange, kept in a folder of files from which training learns."""

    def __init__(self, config: Config, folder: Path):
        self.folder, self.source, self.waits = folder, config.data, dict[str, tuple[float, float]]()
        super().__init__(config, config.data.coins(), self.downloaded)
        own = {"source": "files", "folder": str(folder), "symbols": tuple(self.series), "symbols_file": None}
        self.config = config.model_copy(update={"data": config.data.model_copy(update=own)})
        self.kept: dict[str, Candles] = {}

    def downloaded(self, coin: str, now: int) -> Candles:
        """Return the candles kept and what is new; an exchange that has nothing new is asked ever more seldom."""
        data, old, since = self.source, self.kept.get(coin), None
        if old is None and self._file(coin).is_file():
            with suppress(UserError):  # a damaged file is downloaded again
                old, _ = files.read(self._file(coin), coin, data.timeframe, now=NEWEST, minimum_rows=1)
        again, wait = self.waits.get(coin, (0.0, self.every))
        if old is not None:
            self.kept[coin], since = old, int(old.time[-MARGIN:][0])
            if now < old.time[-1] + 2 * self.step or time.monotonic() < again:
                return old
        fresh, _ = exchange.download(coin, data.timeframe, data.days, data.exchange, minimum_rows=1, since=since)
        parts = [fresh] if old is None else [old.rows(old.time < fresh.time[0]), fresh]
        columns = {name: np.concatenate([getattr(part, name) for part in parts]) for name in COLUMNS}
        self.kept[coin] = Candles(coin, self.step, **columns)
        if old is None:
            self._write(coin)
        elif fresh.time[-1] > old.time[-1]:
            self.waits.pop(coin, None)
        else:
            self.waits[coin] = time.monotonic() + wait, min(2 * wait, LONGEST * self.every)
        return self.kept[coin]

    def save(self) -> None:
        """Write the candles of all coins."""
        for coin in self.kept:
            self._write(coin)

    def _file(self, coin: str) -> Path:
        return self.folder / f"{coin}-{self.source.timeframe}.json"

    def _write(self, coin: str) -> None:
        columns = (getattr(self.kept[coin], name).tolist() for name in COLUMNS)
        write_text(self._file(coin), json.dumps(list(zip(*columns, strict=True))))


def feed(config: Config, folder: Path) -> CandleFeed:
    """Return the candles of a run's coins; those of an exchange are kept in `folder`. UserError for simulated ones."""
    data = config.data
    if data.origin == "simulate":
        raise UserError(
            "a simulated market has no new candles; give data.folder=FOLDER, whose files grow, or data.source=ccxt "
            "with data.symbols=[BTCUSDT,...] and data.exchange"
        )
    if data.origin == "ccxt":
        return ExchangeFeed(config, folder / "candles")
    read: dict[str, tuple[object, Candles]] = {}

    def from_files(coin: str, now: int) -> Candles:
        paths = files.find(data.candles_folder, coin, data.timeframe)
        state = [(path, path.stat().st_mtime_ns, path.stat().st_size) for path in paths]
        if coin not in read or read[coin][0] != state:
            read[coin] = state, files.read(paths, coin, data.timeframe, now=NEWEST, minimum_rows=1)[0]
        return read[coin][1]

    return CandleFeed(config, data.coins(), from_files)
