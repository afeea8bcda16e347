"""Preparation of candles for training: for each coin a table of candles, features and labels, and a page of facts.

<folder>/BTCUSDT-15m/       Arrow: time, open, high, low, close, volume, one column per feature (not scaled), label
<folder>/BTCUSDT-15m.json   the order of the features, the rows of each fold's parts, scalers, class counts, checks
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from common.errors import UserError
from common.files import write_text
from models import candle_features as indicators
from models.candles import COLUMNS, Candles
from pipelines.workloads.crypto import candle_files, exchange, market, splits
from pipelines.workloads.crypto import labels as outcomes
from pipelines.workloads.crypto.candles import canonical, describe, filled, iso, milliseconds
from pipelines.workloads.crypto.splits import PARTS, Fold, Scaler

if TYPE_CHECKING:
    from pipelines.workloads.crypto import Config, Data

SOURCES = ("simulate", "files", "ccxt")
SIMULATED = tuple(f"{3 * letter}USDT" for letter in "ABCDEFGH")


@dataclass(frozen=True)
class Coin:
    """Prepared data of one coin, N rows."""

    candles: Candles
    names: tuple[str, ...]  # of the F features, in the order of the columns
    features: np.ndarray  # (N, F) float32, not scaled, NaN in rows that are not used
    labels: np.ndarray  # (N,) int8, positions in labels.CLASSES, or -1
    folds: tuple[dict[str, np.ndarray], ...]  # {part: rows at which windows end} of each
    scalers: tuple[Scaler, ...]  # one for each fold, fitted on its training rows
    lookback: int
    facts: Mapping[str, Any]

    def scaled(self, fold: int) -> np.ndarray:
        """Return features (N, F) float32, scaled to mean 0 and deviation 1 over the training rows of that fold."""
        return self.scalers[fold].transform(self.names, self.features)


def prepare(config: "Config", folder: Path) -> Mapping[str, Any]:
    """Write every coin that can be used; return facts for the manifest, with the unusable coins under "failed".

    Raises UserError for settings that are not allowed, and if no coin can be used.
    """
    import datasets

    datasets.disable_progress_bars()
    data = config.data
    source, wanted = source_of(data), symbols(data)
    _check_settings(data, source)
    failed: dict[str, str] = {}
    coins: dict[str, Coin] = {}
    ends: dict[str, np.ndarray] = {}
    simulated: Mapping[str, Candles] = {}
    if source == "simulate":
        simulated = market.simulate(wanted, data.simulated_candles, data.timeframe, data.seed, data.signal)
    for symbol in wanted:
        try:
            candles, checks = _obtain(data, source, symbol, simulated)
            candles, num_filled = filled(candles, data.fill)
            coins[symbol], ends[symbol] = _coin(data, candles, {**checks, "filled": num_filled})
        except UserError as error:
            failed[symbol] = str(error)
    folds = _divide(data, coins, ends, failed)
    if not coins:
        reasons = "\n".join(f"  {reason}" for reason in list(failed.values())[:10])
        raise UserError(f"none of the {len(wanted)} coins can be used:\n{reasons}")
    finished = {
        symbol: _finish(coin, [{part: ends[symbol][at] for part, at in fold.indices[symbol].items()} for fold in folds])
        for symbol, coin in coins.items()
    }
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


def source_of(data: "Data") -> str:
    """Return the source of candles: data.source, else files if data.folder is given, else the simulated market."""
    source = data.source or ("files" if data.folder else "simulate")
    if source not in SOURCES:
        raise UserError(f"data.source={source} is not known; give one of {', '.join(SOURCES)}")
    if source == "files" and not data.folder:
        raise UserError("data.source=files needs data.folder, the folder with the files of candles")
    if source != "files" and data.folder:
        raise UserError(f"data.folder={data.folder} has no effect with data.source={source}; leave one of them out")
    return source


def symbols(data: "Data") -> list[str]:
    """Return the coins, as BTCUSDT: of data.symbols_file if it is given, else of data.symbols, else all there are.

    Raises UserError for a file that cannot be read, an empty list and a coin that is named twice.
    """
    key, names = "data.symbols", data.symbols
    if names is None and not data.symbols_file:
        return _all_symbols(data)
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
    found = [canonical(name) for name in names]
    twice = next((name for name in found if found.count(name) > 1), None)
    if twice or not found:
        raise UserError(f"{key} names " + (f"{twice} twice; once is enough" if twice else "no coin; give BTCUSDT, say"))
    return found


def _all_symbols(data: "Data") -> list[str]:
    source = source_of(data)
    if source == "simulate":
        return list(SIMULATED)
    if source == "ccxt":
        raise UserError("data.source=ccxt needs data.symbols=[BTCUSDT,...] or data.symbols_file")
    return candle_files.coins(data.folder, data.timeframe)


def inputs(data: "Data") -> list[Path]:
    """Return the user's existing files that the data come from, including those of coins that cannot be used."""
    paths = []
    if data.symbols_file:
        paths.append(Path(data.symbols_file))
    if source_of(data) == "files":
        for symbol in symbols(data):
            try:
                paths += candle_files.find(data.folder, symbol, data.timeframe)
            except UserError:  # reported by `prepare`
                continue
    return paths


def _check_settings(data: "Data", source: str) -> None:
    """Refuse settings that are wrong for every coin, so that the message comes once and not for each coin."""
    milliseconds(data.timeframe)
    indicators.memory(data.features)
    outcomes.check_rule(data.label, data.horizon, data.threshold)
    if data.lookback < 1:
        raise UserError(f"data.lookback={data.lookback} must be 1 or more candles")
    if data.split not in splits.KINDS:
        raise UserError(f"data.split={data.split} is not known; give one of {', '.join(splits.KINDS)}")
    if source == "files" and not Path(data.folder).is_dir():
        raise UserError(f"data.folder={data.folder}: no such folder; give the one that holds the files of candles")


def _obtain(
    data: "Data", source: str, symbol: str, simulated: Mapping[str, Candles]
) -> tuple[Candles, Mapping[str, Any]]:
    if source == "files":
        paths = candle_files.find(data.folder, symbol, data.timeframe)
        return candle_files.read(paths, symbol, data.timeframe, minimum_rows=data.minimum_rows)
    if source == "ccxt":
        return exchange.download(symbol, data.timeframe, data.days, minimum_rows=data.minimum_rows)
    candles = simulated[symbol]
    if len(candles) < data.minimum_rows:
        raise UserError(
            f"{symbol}: data.simulated_candles={data.simulated_candles} left {len(candles)} candles, fewer than "
            f"data.minimum_rows={data.minimum_rows}; simulate more"
        )
    return candles, describe(candles)


def _coin(data: "Data", candles: Candles, checks: Mapping[str, Any]) -> tuple[Coin, np.ndarray]:
    """Return a coin with features and labels but without folds, and all rows (M,) at which a window can end."""
    table, names = indicators.compute(candles, data.features)
    table = table.astype(np.float32)
    labels = outcomes.label(candles, data.label, data.horizon, data.threshold)
    ends = splits.usable(candles, table, labels, data.lookback)
    if not len(ends):
        needed = indicators.memory(data.features) + data.lookback - 1 + data.horizon
        longest = max(segment.stop - segment.start for segment in candles.segments())
        raise UserError(
            f"{candles.symbol}: no window fits: {needed} candles without a gap are needed (data.features, "
            f"data.lookback={data.lookback}, data.horizon={data.horizon}), but the longest stretch of these "
            f"{len(candles)} candles with {checks['gaps']} gaps has {longest}; give more complete files"
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
    return Coin(candles, names, table, labels, (), (), data.lookback, facts), ends


def _divide(data: "Data", coins: dict[str, Coin], ends: Mapping[str, np.ndarray], failed: dict[str, str]) -> list[Fold]:
    """Return folds in which every coin has all parts; move other coins from `coins` to `failed`, shortest first."""
    step = milliseconds(data.timeframe)
    while coins:
        times = {symbol: coin.candles.time[ends[symbol]] for symbol, coin in coins.items()}
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
            f"{symbol}: none of its {len(times[symbol])} windows ({iso(times[symbol][0])} to {iso(times[symbol][-1])}) "
            f"is in the {part} part from {iso(start)} to {iso(stop)}; give candles of the same period as the other "
            "coins, more of them, or fewer folds"
        )
        del coins[symbol]
    return []


def _finish(coin: Coin, folds: list[dict[str, np.ndarray]]) -> Coin:
    """Return the coin with its folds, the scaler of each, and the count of each class in each part."""
    scalers = tuple(Scaler.fit(coin.names, coin.features, parts["train"], coin.lookback) for parts in folds)
    counts = [
        {
            part: dict(zip(outcomes.CLASSES, np.bincount(coin.labels[each], minlength=3).tolist(), strict=True))
            for part, each in parts.items()
        }
        for parts in folds
    ]
    return replace(coin, folds=tuple(folds), scalers=scalers, facts={**coin.facts, "classes": counts})


def _save(coin: Coin, path: Path) -> None:
    import datasets
    import pyarrow as pa

    columns = {name: getattr(coin.candles, name) for name in COLUMNS}
    columns |= {name: coin.features[:, number] for number, name in enumerate(coin.names)}
    table = pa.table({**columns, "label": coin.labels})
    # Setting the fingerprint makes equal candles give equal bytes.
    datasets.Dataset(table, fingerprint=coin.facts["hash"][:16]).save_to_disk(path)
    page = {
        **coin.facts,
        "features": list(coin.names),
        "scalers": [scaler.to_dict() for scaler in coin.scalers],
        "folds": [{part: runs(rows) for part, rows in parts.items()} for parts in coin.folds],
    }
    write_text(path.with_name(path.name + ".json"), json.dumps(page, allow_nan=False) + "\n")


def load(folder: Path, symbol: str) -> Coin:
    """Return a prepared coin. Raises UserError if it is missing or its candles have changed since."""
    import datasets

    datasets.disable_progress_bars()
    symbol = canonical(symbol)
    pages = [page for page in sorted(folder.glob("*.json")) if page.stem.rpartition("-")[0] == symbol]
    if not pages:
        known = ", ".join(page.stem for page in sorted(folder.glob("*-*.json"))) or "none"
        raise UserError(f"{folder}: {symbol} is not among the prepared coins ({known}); see manifest.json for why")
    page = json.loads(pages[0].read_text())
    names = tuple(page.pop("features"))
    table = datasets.load_from_disk(pages[0].with_suffix("")).data
    # Copied, because torch warns about read-only arrays such as those of a mapped file.
    columns = {name: np.array(table.column(name)) for name in (*COLUMNS, *names, "label")}
    step = milliseconds(page["timeframe"])
    candles = Candles(symbol, step, **{name: columns[name] for name in COLUMNS})
    if candles.digest() != page["hash"]:
        raise UserError(
            f"{pages[0].with_suffix('')}: the candles have changed since they were prepared; delete {folder}"
        )
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
    """Return ascending row numbers as stretches [first, last + 1]."""
    cuts = np.flatnonzero(np.diff(rows) != 1) + 1
    return [[int(part[0]), int(part[-1]) + 1] for part in np.split(rows, cuts) if len(part)]


def rows_of(stretches: list[list[int]]) -> np.ndarray:
    """Return the row numbers (n,) int64 of stretches that `runs` returned."""
    return np.concatenate([np.arange(0), *(np.arange(first, stop) for first, stop in stretches)])
