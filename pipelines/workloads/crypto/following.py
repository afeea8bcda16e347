"""Candles as they close, from files or an exchange, for `pipelines/follow.py`."""

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import numpy as np

from common.disk.files import explained, write_whole
from common.errors import UserError
from models.market.candle_tables import milliseconds, minute
from models.market.candles import COLUMNS, Candles
from models.market.inputs import CLASSES
from models.market.labels import UNKNOWN
from models.market.other_candles import beside
from models.market.own_features import labelled
from models.market.signal_model import SignalModel, most_used
from pipelines.engine.workload import Moment
from pipelines.workloads.crypto.candles import exchange, files
from pipelines.workloads.crypto.candles.cells import NEWEST
from pipelines.workloads.crypto.config import Config, Data
from pipelines.workloads.crypto.input_files import as_input

FAR = 5.0  # deviations at which a feature is clipped
MARGIN = 20  # candles that are downloaded again
LONGEST = 64  # looks after which an exchange without new candles is asked again at the latest
SETTLING = 0.5  # seconds in which a file that was changed may still be written to
PATIENCE = 10.0  # seconds of changes without a pause, after which a file is read all the same

Read = Callable[[str, int], Candles]  # (coin, now in ms) -> all its candles, in order of time


class CandleFeed:
    """Closed candles of coins; `read` may also return open ones, or ones from the future."""

    def __init__(self, config: Config, folder: Path, read: Read):
        self.data, self.folder, self.read = config.data, folder, read
        self.series, self.step, self.every = self.data.coins(), milliseconds(self.data.timeframe), 1.0
        self.settings = {"now": "newest"}  # this feed decides which candles have closed
        kept = {"source": "files", "folder": str(folder), "symbols": tuple(self.series)}
        self.config = config.model_copy(update={"data": self.data.model_copy(update=kept)})
        self.closed: dict[str, Candles] = {}
        self.known: dict[str, Candles] = {}  # at times at which the context has candles, too
        self.used, self.fill = 0, 0  # candles of an input; largest gap that is filled

    def fit(self, models: Mapping[str, object]) -> None:
        """Extend inputs to the candles that signals of these models depend on, and fill gaps as their training did."""
        own = [each for each in models.values() if isinstance(each, SignalModel)]
        self.used, self.fill = max(self.used, most_used(own)), max([0, *(each.config.fill for each in own)])

    def new(self, series: str, after: int | None, now: int) -> Iterator[Moment]:
        """Yield newly closed candles, each with those before it that models use, back to the newest gap.

        Gaps that the models' training filled are filled, but have no answers of their own.
        """
        horizon, used = self.data.horizon, self.used
        read = {coin: self.read(coin, now) for coin in dict.fromkeys([*self.data.context, series])}
        self.closed |= {coin: each.rows(each.time + self.step <= now) for coin, each in read.items()}
        whole = {coin: self.closed[coin].filled(self.fill) for coin in read}
        self.known[series] = known = beside(whole[series], {coin: whole[coin] for coin in self.data.context})
        first = max(len(known) - 1, 0) if after is None else int(np.searchsorted(known.time, after, "right"))
        if after is not None and not first and (known.time[:1] > after + self.step).any():
            span = f"the candles between {minute(after)} and {minute(known.time[0])} UTC"
            print(f"{series}: {span} are gone, and get no answer", file=sys.stderr, flush=True)
        start = max(first - 2 * used - horizon, 0)  # a label needs a past, too
        part = known.rows(slice(start, len(known)))
        labels = labelled(part, self.data.label, horizon, self.data.threshold)
        real = np.flatnonzero(np.isin(part.time, self.closed[series].time))
        for segment in part.segments():
            for row in real[(real >= max(segment.start, first - start)) & (real < segment.stop)].tolist():
                seen = part.rows(slice(max(segment.start, row + 1 - used), row + 1))
                outcome = labels[row - horizon] if row - horizon >= segment.start else UNKNOWN
                learnt = None if outcome == UNKNOWN else (int(part.time[row - horizon]), CLASSES[outcome])
                yield Moment(int(part.time[row]), as_input(seen), learnt)

    def strangeness(self, model: object, series: str, after: int, until: int) -> dict[int, float]:
        """Return {time: mean square of the scaled features} of candles; those without features are left out."""
        assert isinstance(model, SignalModel)
        known, past = self.known[series], model.candles_needed - model.config.lookback
        first, last = np.searchsorted(known.time, [after, until], "right")
        part, found = known.rows(slice(max(first - past, 0), last)), dict[int, float]()
        for rows in (part.rows(segment) for segment in part.segments()):
            if len(rows) > past:
                squares = (model.scaled(rows).double().numpy().clip(-FAR, FAR) ** 2).mean(1)
                found.update(zip(rows.time[past:].tolist(), squares.round(4).tolist(), strict=True))
        return {when: value for when, value in found.items() if when > after}

    def save(self) -> None:
        """Write the closed candles for training, which would refuse files that grow while it reads them."""
        for candles in self.closed.values():
            write(candles, self.folder, self.data.timeframe)


class Downloads:
    """Candles of an exchange; those in `folder` are not downloaded again."""

    def __init__(self, config: Config, folder: Path):
        self.data, self.folder, self.every = config.data, folder, 1.0  # seconds
        self.kept: dict[str, Candles] = {}
        self.waits: dict[str, tuple[float, float]] = {}  # coin -> when to ask again, and how long to wait then

    def __call__(self, coin: str, now: int) -> Candles:
        """Return kept and new candles; an exchange without new ones is asked ever less often."""
        data, old, since = self.data, self.kept.get(coin), None
        if old is None:
            with suppress(UserError):  # there is none, or it is damaged
                path = self.folder / f"{coin}-{data.timeframe}.feather"
                old, _ = files.read(path, coin, data.timeframe, now=NEWEST, minimum_rows=1)
        again, wait = self.waits.get(coin, (0.0, self.every))
        if old is not None:
            self.kept[coin], since = old, int(old.time[-MARGIN:][0])
            if now < old.time[-1] + 2 * old.timeframe_ms or time.monotonic() < again:
                return old
        fresh, _ = exchange.download(coin, data.timeframe, data.days, data.exchange, minimum_rows=1, since=since)
        parts = [fresh] if old is None else [old.rows(old.time < fresh.time[0]), fresh]
        columns = {name: np.concatenate([getattr(part, name) for part in parts]) for name in COLUMNS}
        self.kept[coin] = known = Candles(coin, fresh.timeframe_ms, **columns)
        self.waits.pop(coin, None)
        if old is None:
            write(known, self.folder, data.timeframe)
        elif known.time[-1] == old.time[-1]:
            self.waits[coin] = time.monotonic() + wait, min(2 * wait, LONGEST * self.every)
        return known


class Growing:
    """Candles of files that others append to; only complete lines are read."""

    def __init__(self, data: Data):
        self.data = data
        self.kept: dict[str, tuple[object, Candles]] = {}  # coin -> what was read, and its candles
        self.look: int | None = None  # at which the folder was listed
        self.find: files.Find
        self.restless: dict[str, float] = {}  # coin -> when its files began to change in every look

    def __call__(self, coin: str, now: int) -> Candles:
        """Return the candles as of when the files last were at rest; UserError if some of these are gone."""
        if now != self.look:
            self.find, self.look = files.finder(self.data.candles_folder), now
        paths = self.find(coin, self.data.timeframe)
        state = [(path, path.stat().st_mtime_ns, path.stat().st_size) for path in paths]
        before, old = self.kept.get(coin, (None, None))
        if old is not None and state == before:
            return old
        settling = old is not None and 0 <= time.time() - max(changed for _, changed, _ in state) / 1e9 < SETTLING
        if settling and time.monotonic() - self.restless.setdefault(coin, time.monotonic()) < PATIENCE:
            return self.kept[coin][1]
        self.restless.pop(coin, None)
        found, _ = files.read(paths, coin, self.data.timeframe, now=NEWEST, minimum_rows=1, growing=True)
        known = old.time[old.time + old.timeframe_ms <= now] if old is not None else found.time
        if len(lost := known[known > found.time[-1]]):
            what = f"{len(lost)} candles, {minute(lost[0])} to {minute(lost[-1])} UTC"
            raise UserError(f"{paths[-1]} has lost {what}; it is read again once it has newer ones")
        self.kept[coin] = state, found
        return found


def write(candles: Candles, folder: Path, timeframe: str) -> None:
    """Write a coin's candles to its file in the folder."""
    import pyarrow as pa
    from pyarrow import feather

    buffer = pa.BufferOutputStream()
    feather.write_feather(pa.table(candles.columns()), buffer)
    with explained(folder):
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(folder / f"{candles.symbol}-{timeframe}.feather", memoryview(buffer.getvalue()))


def feed(config: Config, folder: Path) -> CandleFeed:
    """Return the feed of a run's coins, which stores candles in `folder`; UserError for a simulated market."""
    if config.data.origin == "simulate":
        ccxt = "data.source=ccxt with data.symbols=[BTCUSDT,...] and data.exchange"
        raise UserError(f"a simulated market has no new candles; give data.folder=FOLDER, whose files grow, or {ccxt}")
    own = folder / "candles"
    return CandleFeed(config, own, Downloads(config, own) if config.data.origin == "ccxt" else Growing(config.data))
