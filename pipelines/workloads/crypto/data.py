"""Candles made ready for training: per coin a table of candles, features and labels, and a page of facts.

<folder>/BTCUSDT-15m/       Arrow: time, open, high, low, close, volume, a column per feature (not scaled), label
<folder>/BTCUSDT-15m.json   the features in order, the rows of each fold's parts, scalers, class counts, checks
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from common.errors import UserError
from common.files import write_text
from pipelines.workloads.crypto import candles as feed
from pipelines.workloads.crypto import features as indicators
from pipelines.workloads.crypto import labels as outcomes
from pipelines.workloads.crypto import market, splits
from pipelines.workloads.crypto.candles import VALUES, Candles
from pipelines.workloads.crypto.splits import PARTS, Fold, Scaler

SOURCES = ("simulate", "files", "ccxt")
DOWNLOADED_DAYS = 365
COLUMNS = ("time", *VALUES)


@dataclass(frozen=True)
class Coin:
    """One coin's prepared data, N rows."""

    candles: Candles
    names: tuple[str, ...]  # F features, in the order of the columns
    features: np.ndarray  # (N, F) float32, not scaled, NaN where a row is not used
    labels: np.ndarray  # (N,) int8, row numbers of labels.CLASSES or -1
    folds: tuple[dict[str, np.ndarray], ...]  # {part: rows at which windows end}
    scalers: tuple[Scaler, ...]  # of each fold, fitted on its training rows
    lookback: int
    facts: Mapping[str, Any]

    def scaled(self, fold: int) -> np.ndarray:
        """Features (N, F) float32 as that fold's training rows have them: mean 0, deviation 1."""
        return self.scalers[fold].transform(self.names, self.features)


def prepare(config: Any, folder: Path) -> Mapping[str, Any]:
    """Write every coin that can be used; returns facts for the manifest, those that cannot under "failed".

    Raises UserError for settings that cannot be, and if no coin can be used.
    """
    import datasets

    datasets.disable_progress_bars()
    data = config.data
    source, wanted = source_of(data), symbols(data)
    _check_settings(data, source)
    failed: dict[str, str] = {}
    coins: dict[str, Coin] = {}
    simulated = {}
    if source == "simulate":
        simulated = market.simulate(wanted, data.simulated_candles, data.timeframe, data.seed, data.signal)
    for symbol in wanted:
        try:
            candles, checks = _obtain(data, source, symbol, simulated)
            coins[symbol] = _coin(data, candles, checks)
        except UserError as error:
            failed[symbol] = str(error)
    folds = _divide(data, coins, failed)
    if not coins:
        reasons = "\n".join(f"  {reason}" for reason in list(failed.values())[:10])
        raise UserError(f"none of the {len(wanted)} coins can be used:\n{reasons}")
    finished = {symbol: _finish(coin, [fold.indices[symbol] for fold in folds]) for symbol, coin in coins.items()}
    for symbol, coin in finished.items():
        _save(coin, folder / f"{symbol}-{data.timeframe}")
    return {
        "source": source,
        "symbols": list(finished),
        "failed": failed,
        "features": list(next(iter(finished.values())).names),
        "memory": indicators.memory(data.features),
        "classes": list(outcomes.CLASSES),
        "folds": [dict(zip((*(f"{part}_from" for part in PARTS), "end"), fold.cuts, strict=True)) for fold in folds],
        "coins": {symbol: coin.facts for symbol, coin in finished.items()},
    }


def source_of(data: Any) -> str:
    """Where candles come from: data.source, or the user's folder, or the simulated market."""
    source = data.source or ("files" if data.folder else "simulate")
    if source not in SOURCES:
        raise UserError(f"data.source={source} is not known; give one of {', '.join(SOURCES)}")
    if source == "files" and not data.folder:
        raise UserError("data.source=files needs data.folder, the folder of the files of candles")
    if source != "files" and data.folder:
        raise UserError(f"data.folder={data.folder} has no meaning with data.source={source}; leave one of them out")
    return source


def symbols(data: Any) -> list[str]:
    """The coins asked for, as BTCUSDT: those of data.symbols_file if it is given, else data.symbols.

    Raises UserError for a file that cannot be read, and for no coin or one that comes twice.
    """
    key, names = "data.symbols", data.symbols
    if data.symbols_file:
        key, path = f"data.symbols_file={data.symbols_file}", Path(data.symbols_file)
        try:
            names = json.loads(path.read_text(encoding="utf-8-sig"))
        except OSError as error:
            raise UserError(f"{key}: cannot be read: {error.strerror}") from error
        except (ValueError, RecursionError) as error:
            raise UserError(f"{key}: this is not JSON: {error}") from error
        names = names.get("symbols") if isinstance(names, dict) else names
        if not isinstance(names, list):
            raise UserError(f'{key} must hold ["BTCUSDT", ...] or {{"symbols": ["BTCUSDT", ...]}}')
    found = [feed.canonical(name) for name in names]
    twice = next((name for name in found if found.count(name) > 1), None)
    if twice or not found:
        raise UserError(f"{key} names " + (f"{twice} twice; once is enough" if twice else "no coin; give BTCUSDT, say"))
    return found


def inputs(data: Any) -> list[Path]:
    """The user's files that the data come from, those of coins that could not be used too; what is missing is not."""
    paths = []
    if data.symbols_file:
        paths.append(Path(data.symbols_file))
    if source_of(data) == "files":
        for symbol in symbols(data):
            try:
                paths.append(feed.find(data.folder, symbol, data.timeframe))
            except UserError:  # `prepare` has reported it
                continue
    return paths


def _check_settings(data: Any, source: str) -> None:
    """What is wrong for every coin is said once, not once for each."""
    feed.milliseconds(data.timeframe)
    indicators.memory(data.features)
    outcomes.check_rule(data.label, data.horizon, data.threshold)
    if data.lookback < 1:
        raise UserError(f"data.lookback={data.lookback} must be 1 or more candles")
    if data.split not in splits.KINDS:
        raise UserError(f"data.split={data.split} is not known; give one of {', '.join(splits.KINDS)}")
    if source == "files" and not Path(data.folder).is_dir():
        raise UserError(f"data.folder={data.folder}: there is no such folder; give the one that holds the files")


def _obtain(data: Any, source: str, symbol: str, simulated: Mapping[str, Candles]) -> tuple[Candles, Mapping[str, Any]]:
    if source == "files":
        path = feed.find(data.folder, symbol, data.timeframe)
        return feed.read(path, symbol, data.timeframe, minimum_rows=data.minimum_rows)
    if source == "ccxt":
        days = getattr(data, "days", DOWNLOADED_DAYS)
        return feed.download(symbol, data.timeframe, days, minimum_rows=data.minimum_rows)
    candles = simulated[symbol]
    if len(candles) < data.minimum_rows:
        raise UserError(
            f"{symbol}: data.simulated_candles={data.simulated_candles} left {len(candles)} candles, fewer than "
            f"data.minimum_rows={data.minimum_rows}; give more of them"
        )
    return candles, feed.describe(candles)


def _coin(data: Any, candles: Candles, checks: Mapping[str, Any]) -> Coin:
    """Features and labels of a coin, before time is divided; its only "fold" is all rows at which a window can end."""
    table, names = indicators.compute(candles, data.features)
    table = table.astype(np.float32)
    labels = outcomes.label(candles, data.label, data.horizon, data.threshold)
    ends = splits.usable(candles, table, labels, data.lookback)
    if not len(ends):
        needed = indicators.memory(data.features) + data.lookback - 1 + data.horizon
        longest = max(segment.stop - segment.start for segment in candles.segments())
        raise UserError(
            f"{candles.symbol}: no window fits: {needed} candles without a gap are needed (data.features, "
            f"data.lookback={data.lookback}, data.horizon={data.horizon}), the longest stretch of {len(candles)} "
            f"candles with {checks['gaps']} gaps has {longest}; give more complete files"
        )
    facts = {
        "symbol": candles.symbol,
        "timeframe": data.timeframe,
        "lookback": data.lookback,
        "label": {"rule": data.label, "horizon": data.horizon, "threshold": data.threshold},
        "checks": dict(checks),
        "hash": candles.digest(),
        "windows": len(ends),
        "rows_without_features": int((~np.isfinite(table).all(1)).sum()),
        "rows_without_label": int((labels == outcomes.UNKNOWN).sum()),
    }
    return Coin(candles, names, table, labels, ({"all": ends},), (), data.lookback, facts)


def _divide(data: Any, coins: dict[str, Coin], failed: dict[str, str]) -> list[Fold]:
    """Folds in which every coin has all parts. Coins that have not move from `coins` to `failed`, shortest first."""
    step = feed.milliseconds(data.timeframe)
    while coins:
        times = {symbol: coin.candles.time[coin.folds[0]["all"]] for symbol, coin in coins.items()}
        folds = splits.divide(times, data.split, data.folds, data.horizon, data.lookback, step)
        short = {
            symbol: (part, *fold.span(part))
            for fold in folds
            for symbol, parts in fold.indices.items()
            for part, indices in parts.items()
            if not len(indices)
        }
        if not short:
            return folds
        symbol = min(short, key=lambda name: (len(times[name]), name))
        part, start, stop = short[symbol]
        failed[symbol] = (
            f"{symbol}: none of its {len(times[symbol])} windows ({feed.iso(times[symbol][0])} to "
            f"{feed.iso(times[symbol][-1])}) is in the {part} part from {feed.iso(start)} to {feed.iso(stop)}; give "
            "candles over the time of the other coins, more of them, or fewer folds"
        )
        del coins[symbol]
    return []


def _finish(coin: Coin, folds: list[dict[str, np.ndarray]]) -> Coin:
    """With the rows of each part, the scaler of each fold, and the count of each class in each part."""
    ends = coin.folds[0]["all"]
    rows = tuple({part: ends[parts[part]] for part in PARTS} for parts in folds)
    scalers = tuple(Scaler.fit(coin.names, coin.features, parts["train"], coin.lookback) for parts in rows)
    counts = [
        {
            part: dict(zip(outcomes.CLASSES, np.bincount(coin.labels[each], minlength=3).tolist(), strict=True))
            for part, each in parts.items()
        }
        for parts in rows
    ]
    return replace(coin, folds=rows, scalers=scalers, facts={**coin.facts, "classes": counts})


def _save(coin: Coin, path: Path) -> None:
    import datasets
    import pyarrow as pa

    columns = {name: getattr(coin.candles, name) for name in COLUMNS}
    columns |= {name: coin.features[:, number] for number, name in enumerate(coin.names)}
    table = pa.table({**columns, "label": coin.labels})
    # With a fingerprint of our own the same candles give the same bytes.
    datasets.Dataset(table, fingerprint=coin.facts["hash"][:16]).save_to_disk(path)
    page = {
        **coin.facts,
        "features": list(coin.names),
        "scalers": [scaler.to_dict() for scaler in coin.scalers],
        "folds": [{part: runs(rows) for part, rows in parts.items()} for parts in coin.folds],
    }
    write_text(path.with_name(path.name + ".json"), json.dumps(page, allow_nan=False) + "\n")


def load(folder: Path, symbol: str) -> Coin:
    """A prepared coin. Raises UserError if it is not there, or if its candles are not those that were prepared."""
    import datasets

    datasets.disable_progress_bars()
    symbol = feed.canonical(symbol)
    pages = [page for page in sorted(folder.glob("*.json")) if page.stem.rpartition("-")[0] == symbol]
    if not pages:
        known = ", ".join(page.stem for page in sorted(folder.glob("*-*.json"))) or "none"
        raise UserError(f"{folder}: {symbol} is not among the prepared coins ({known}); see manifest.json for why")
    page = json.loads(pages[0].read_text())
    names = tuple(page.pop("features"))
    table = datasets.load_from_disk(pages[0].with_suffix("")).data
    # Copies: torch warns of arrays that cannot be written, as those of a mapped file are.
    columns = {name: np.array(table.column(name)) for name in (*COLUMNS, *names, "label")}
    step = feed.milliseconds(page["timeframe"])
    candles = Candles(symbol, step, **{name: columns[name] for name in COLUMNS})
    if candles.digest() != page["hash"]:
        raise UserError(f"{pages[0].with_suffix('')}: these are not the candles that were prepared; delete {folder}")
    return Coin(
        candles=candles,
        names=names,
        features=np.stack([columns[name] for name in names], 1),
        labels=columns["label"],
        folds=tuple({part: rows_of(each) for part, each in parts.items()} for parts in page.pop("folds")),
        scalers=tuple(map(Scaler.from_dict, page.pop("scalers"))),
        lookback=page["lookback"],
        facts=page,
    )


def runs(rows: np.ndarray) -> list[list[int]]:
    """Ascending row numbers as [first, last + 1] stretches."""
    cuts = np.flatnonzero(np.diff(rows) != 1) + 1
    return [[int(part[0]), int(part[-1]) + 1] for part in np.split(rows, cuts) if len(part)]


def rows_of(stretches: list[list[int]]) -> np.ndarray:
    """Row numbers (n,) int64 of what `runs` wrote."""
    return np.concatenate([np.arange(0), *(np.arange(first, stop) for first, stop in stretches)])
