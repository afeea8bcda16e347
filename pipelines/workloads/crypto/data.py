"""Preparation of candles for training: for each coin a table of candles, features and labels, and a page of facts.

<folder>/BTCUSDT-15m/       Arrow: time, open, high, low, close, volume, one column per feature (not scaled), label
<folder>/BTCUSDT-15m.json   the order of the features, the rows of each fold's parts, scalers, class counts, checks

All coins are cut into parts at the same times. When files have changed, what was prepared of other coins is taken over
as it is, with its cuts; a coin whose candles now reach further moves on by itself: its own longer time is divided.
"""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from common.disk.files import write_text
from common.disk.prepared import MANIFEST
from common.errors import UserError
from models.market import candle_features as indicators
from models.market.candles import COLUMNS, Candles
from pipelines.workloads.crypto import labels as outcomes
from pipelines.workloads.crypto import renewal, splits
from pipelines.workloads.crypto.candles import exchange, files
from pipelines.workloads.crypto.candles import simulated as market
from pipelines.workloads.crypto.candles.names import canonical, describe, filled, milliseconds
from pipelines.workloads.crypto.splits import PARTS, Fold, Scaler

if TYPE_CHECKING:
    from pipelines.workloads.crypto import Config, Data

SOURCES = ("simulate", "files", "ccxt")
MOST_NAMED = 5  # coins in a sentence
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

    def newest(self, window: int | None) -> "Coin":
        """Return the coin with the last `window` rows of training alone, of each fold."""
        if window is None:
            return self
        trained = [parts["train"] for parts in self.folds]
        newest = [rows[rows > rows[-1] - window] for rows in trained]
        folds = zip(self.folds, newest, strict=True)
        return replace(self, folds=tuple({**parts, "train": rows} for parts, rows in folds))

    def scaled(self, fold: int) -> np.ndarray:
        """Return features (N, F) float32, scaled to mean 0 and deviation 1 over the training rows of that fold."""
        return self.scalers[fold].transform(self.names, self.features)


def prepare(config: "Config", folder: Path, earlier: Path | None = None) -> Mapping[str, Any]:
    """Write every coin that can be used; return facts for the manifest, with the unusable coins under "failed".

    What is in the folder `earlier`, prepared by the same settings, is taken over for coins whose files are the same or
    gone. Raises UserError for settings that are not allowed, and if no coin can be used.
    """
    import datasets

    datasets.disable_progress_bars()
    data = config.data
    source, wanted = source_of(data), symbols(data)
    _check_settings(data, source)
    known = json.loads((earlier / MANIFEST).read_text()) if earlier else None
    kept = renewal.unchanged(data, wanted, known) if known and source == "files" else []
    failed: dict[str, str] = {}
    coins: dict[str, Coin] = {}
    ends: dict[str, np.ndarray] = {}
    simulated: Mapping[str, Candles] = {}
    if source == "simulate":
        simulated = market.simulate(wanted, data.simulated_candles, data.timeframe, data.seed, data.signal)
    for symbol in (symbol for symbol in wanted if symbol not in kept):
        try:
            candles, checks = _obtain(data, source, symbol, simulated)
            candles, num_filled = filled(candles, data.fill)
            coins[symbol], ends[symbol] = _coin(data, candles, {**checks, "filled": num_filled})
        except UserError as error:
            failed[symbol] = str(error)
    divided, short = _divide(data, {symbol: coins[symbol].candles.time[ends[symbol]] for symbol in coins}, known)
    failed |= short
    coins = {symbol: coin for symbol, coin in coins.items() if symbol not in short}
    if not coins and not kept:
        reasons = "\n".join(f"  {reason}" for reason in list(failed.values())[:10])
        which = f"none of the {len(wanted)} coins can be used" if len(wanted) > 1 else "the only coin cannot be used"
        raise UserError(f"{which}:\n{reasons}")
    facts = {symbol: known["coins"][symbol] for symbol in kept} if known else {}
    for symbol, coin in coins.items():
        finished = _finish(coin, divided[symbol], ends[symbol])
        _save(finished, folder / f"{symbol}-{data.timeframe}")
        facts[symbol] = finished.facts
    for symbol in kept:
        renewal.take_over(earlier, folder, f"{symbol}-{data.timeframe}")
    in_order = [symbol for symbol in dict.fromkeys([*wanted, *kept]) if symbol in facts]
    return {
        "source": source,
        "note": _simulated_note(in_order) if source == "simulate" else "",
        "symbols": in_order,
        "failed": failed,
        "features": list(indicators.SETS[data.features]),
        "memory": indicators.memory(data.features),
        "classes": list(outcomes.CLASSES),
        "folds": known["folds"] if known else [_named(fold.cuts) for fold in divided[in_order[0]]],
        "coins": {symbol: facts[symbol] for symbol in in_order},
    }


def _simulated_note(symbols: Sequence[str]) -> str:
    """Say that candles are simulated, whatever the names of the coins, and how to give real ones."""
    names = ", ".join(symbols) if len(symbols) <= MOST_NAMED else f"all {len(symbols)} coins"
    return (
        f"the candles of {names} are simulated, no market's; data.folder=FOLDER takes files of real ones, "
        "data.source=ccxt downloads them"
    )


def _named(cuts: Sequence[int]) -> dict[str, int]:
    return dict(zip((*(f"{part}_from" for part in PARTS), "end"), cuts, strict=True))


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
    return files.coins(data.folder, data.timeframe)


def inputs(data: "Data") -> list[Path]:
    """Return the user's existing files that the data come from, including those of coins that cannot be used."""
    paths = []
    if data.symbols_file:
        paths.append(Path(data.symbols_file))
    if source_of(data) == "files":
        with suppress(UserError):  # reported by `prepare`
            for symbol in symbols(data):
                with suppress(UserError):
                    paths += files.find(data.folder, symbol, data.timeframe)
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
        paths = files.find(data.folder, symbol, data.timeframe)
        return files.read(paths, symbol, data.timeframe, minimum_rows=data.minimum_rows)
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


def _divide(
    data: "Data", times: Mapping[str, np.ndarray], known: Mapping[str, Any] | None
) -> tuple[dict[str, list[Fold]], dict[str, str]]:
    """Return the folds of each coin, and why coins have none; `times` (n,) are those at which its windows end."""
    step = milliseconds(data.timeframe)

    def divide(times: Mapping[str, np.ndarray], span: tuple[int, int] | None = None) -> list[Fold]:
        return splits.divide(times, data.split, data.folds, data.horizon, data.lookback, step, span)

    if known is None:
        return splits.together(times, divide)
    return splits.one_by_one(times, divide, known["folds"][0]["train_from"], known["folds"][-1]["end"], step)


def _finish(coin: Coin, divided: Sequence[Fold], ends: np.ndarray) -> Coin:
    """Return the coin with its folds, the scaler of each, and the count of each class in each part."""
    symbol = coin.candles.symbol
    folds = [{part: ends[at] for part, at in fold.indices[symbol].items()} for fold in divided]
    scalers = tuple(Scaler.fit(coin.names, coin.features, parts["train"], coin.lookback) for parts in folds)
    counts = [
        {
            part: dict(zip(outcomes.CLASSES, np.bincount(coin.labels[each], minlength=3).tolist(), strict=True))
            for part, each in parts.items()
        }
        for parts in folds
    ]
    facts = {**coin.facts, "classes": counts, "cuts": [list(fold.cuts) for fold in divided]}
    return replace(coin, folds=tuple(folds), scalers=scalers, facts=facts)


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
