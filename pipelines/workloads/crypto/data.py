"""Preparation of candles for training: for each coin a table of candles, features and labels, and a page of facts.

<folder>/BTCUSDT-15m/       Arrow: time, open, high, low, close, volume, those of the context, a column per feature (not
                            scaled), label, and for each fold the number of the part in which a window ends
<folder>/BTCUSDT-15m.json   the order of the features, scalers, class counts, checks

Coins are cut into parts at the same times; those that were listed late or have ended, by their own time. When files
have changed, the prepared data of other coins are taken over with their cuts; a coin whose candles now reach further
is cut by its own, longer time.
"""

import json
import os
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from common.disk.files import sha256, write_text
from common.disk.prepared import MANIFEST
from common.errors import UserError
from models.market import other_candles, own_features
from models.market.candle_tables import TIMEFRAMES, canonical, iso, milliseconds
from models.market.candles import COLUMNS, Candles
from models.market.inputs import CLASSES
from models.market.own_features import Own
from pipelines.workloads.crypto import splits
from pipelines.workloads.crypto.candles import exchange, files, simulated
from pipelines.workloads.crypto.candles.checks import describe
from pipelines.workloads.crypto.config import Config, Data
from pipelines.workloads.crypto.splits import PARTS, Fold, Scaler

BOUNDS = (*(f"{part}_from" for part in PARTS), "end")
Folds = dict[str, list[Fold]]


@dataclass(frozen=True)
class Coin:
    """Prepared data of one coin, N rows."""

    candles: Candles
    names: tuple[str, ...]  # of the F features, in the order of the columns
    features: np.ndarray  # (N, F) float32, not scaled, NaN in rows that are not used
    labels: np.ndarray  # (N,) int8, positions in CLASSES, or -1
    folds: tuple[dict[str, np.ndarray], ...]  # {part: rows at which windows end} of each
    scalers: tuple[Scaler, ...]  # one for each fold, fitted on its training rows
    lookback: int
    facts: Mapping[str, Any]

    def newest(self, window: int | None) -> "Coin":
        """Return the coin with only the last `window` training rows of each fold."""
        if window is None:
            return self
        return self._trained_on([rows[rows > rows[-1] - window] for rows in (parts["train"] for parts in self.folds)])

    def joined(self) -> "Coin":
        """Return the coin with the validation rows of each fold among its training rows."""
        return self._trained_on([np.concatenate([parts["train"], parts["validation"]]) for parts in self.folds])

    def _trained_on(self, rows: Sequence[np.ndarray]) -> "Coin":
        folds = zip(self.folds, rows, strict=True)
        return replace(self, folds=tuple({**parts, "train": each} for parts, each in folds))

    def scaled(self, fold: int) -> np.ndarray:
        """Return features (N, F) float32, scaled to mean 0 and deviation 1 over the training rows of that fold."""
        return self.scalers[fold].transform(self.features)


def prepare(config: Config, folder: Path, earlier: Path | None = None) -> Mapping[str, object]:
    """Write every coin that can be used; return facts for the manifest, with the unusable coins under "failed".

    Coins whose files are the same or gone are taken over from the folder `earlier`, prepared by the same settings.
    Raises UserError for settings that are not allowed, and if no coin can be used.
    """
    import datasets

    datasets.disable_progress_bars()
    data = config.data
    source, wanted = data.origin, data.coins()
    milliseconds(data.timeframe)  # an error if it is unknown
    own, target = own_features.load(data.features), own_features.load(data.label, "data.label")
    find = files.finder(data.candles_folder) if source == "files" else None
    known = json.loads((earlier / MANIFEST).read_text()) if earlier else {}
    kept = _unchanged(data, known, find) if known and find else []
    span = (known["folds"][0]["train_from"], known["folds"][-1]["end"]) if known else None
    failed, coins, ends = dict[str, str](), dict[str, Coin](), dict[str, np.ndarray]()
    market: Mapping[str, Candles] = {}
    if source == "simulate":
        names = list(dict.fromkeys([*wanted, *data.context]))
        market = simulated.simulate(names, data.simulated_candles, data.timeframe, data.seed, data.signal)
    context = {coin: _obtain(data, coin, market, find)[0].filled(data.fill) for coin in data.context}
    for symbol in (symbol for symbol in wanted if symbol not in kept):
        try:
            candles, checks = _obtain(data, symbol, market, find)
            whole = candles.filled(data.fill)
            both = other_candles.beside(whole, context) if context else whole
            checks = {**checks, "filled": len(whole) - len(candles), "without_context": len(whole) - len(both)}
            coins[symbol], ends[symbol] = _coin(data, both, checks, own, target)
        except UserError as error:
            failed[symbol] = str(error)
    times = {symbol: coins[symbol].candles.time[ends[symbol]] for symbol in coins}
    divided, apart = _divide(data, times, span)
    failed |= {
        symbol: f"{symbol}: its {len(each)} windows ({iso(each[0])} to {iso(each[-1])}) are too few to train, validate "
        "and test; give more candles (data.fill=3 fills gaps of 3), or fewer folds"
        for symbol, each in times.items()
        if symbol not in divided
    }
    coins = {symbol: coin for symbol, coin in coins.items() if symbol in divided}
    apart += known.get("apart", [])
    if not coins and not kept:
        reasons = "\n".join(f"  {reason}" for reason in list(failed.values())[:10])
        which = f"none of the {len(wanted)} coins can be used" if len(wanted) > 1 else "the only coin cannot be used"
        raise UserError(f"{which}:\n{reasons}")
    facts = {symbol: known["coins"][symbol] for symbol in kept}
    for symbol, coin in coins.items():
        finished = _finish(coin, divided[symbol], ends[symbol])
        _save(finished, folder / f"{symbol}-{data.timeframe}")
        facts[symbol] = finished.facts
    if earlier:
        for symbol in kept:
            _take_over(earlier, folder, f"{symbol}-{data.timeframe}")
    in_order = [symbol for symbol in dict.fromkeys([*wanted, *kept]) if symbol in facts]
    usual = min(in_order, key=apart.count)
    return {
        "source": source,
        "note": _note(data, {symbol: facts[symbol] for symbol in in_order}, apart),
        "apart": apart,
        "symbols": in_order,
        "failed": failed,
        "classes": list(CLASSES),
        "folds": known.get("folds") or [dict(zip(BOUNDS, fold.cuts, strict=True)) for fold in divided[usual]],
        "coins": {symbol: facts[symbol] for symbol in in_order},
    }


def _unchanged(data: Data, known: Mapping[str, Any], find: files.Find) -> list[str]:
    """Return the coins whose files are gone, or the same as when they were prepared."""
    there: Sequence[str] = ()
    with suppress(UserError):
        there = files.coins(data.candles_folder, data.timeframe)

    def are_same(paths: Sequence[Path]) -> bool:
        return all(known["inputs"].get(str(path)) == sha256(path) for path in paths)

    def is_same(symbol: str) -> bool:
        try:
            paths = find(symbol, data.timeframe)
        except UserError:  # several files match, which `prepare` reports
            return False
        names = known["coins"][symbol]["checks"]["file"]
        return [path.name for path in paths] == ([names] if isinstance(names, str) else names) and are_same(paths)

    if not all(are_same(find(coin, data.timeframe)) for coin in data.context):
        return []
    return [symbol for symbol in known["coins"] if symbol not in there or is_same(symbol)]


def _take_over(earlier: Path, folder: Path, name: str) -> None:
    """Link a coin's files from the folder `earlier`, or copy them where the file system has no hard links."""

    def take(path: str, place: str) -> None:
        try:
            os.link(path, place)
        except OSError:
            shutil.copyfile(path, place)

    shutil.copytree(earlier / name, folder / name, copy_function=take)
    take(str(earlier / f"{name}.json"), str(folder / f"{name}.json"))


def _note(data: Data, coins: Mapping[str, Any], apart: Sequence[str]) -> str:
    """Return a note on files passed over, or on simulated candles and how to give real ones; and on parts of coins."""
    spans = {name: (each["cuts"][0][0], each["cuts"][-1][-1]) for name, each in coins.items() if name in apart}
    cut = [f"{name} ({iso(begin)} to {iso(end)})" for name, (begin, end) in spans.items()]
    lacking = {name: each["checks"].get("without_context", 0) for name, each in coins.items()}
    lost = [f"{name} ({num:,})" for name, num in lacking.items() if 10 * num > coins[name]["checks"]["candles"]]
    own = [f"listed late, ended or with long gaps, and cut by their own time: {', '.join(cut)}"] if cut else []
    own += [f"candles left out, as coins of data.context lack them: {', '.join(lost)}"] if lost else []
    passed_over = files.in_folder(data.candles_folder, data.timeframe)[1] if data.origin == "files" else []
    if data.origin != "simulate":
        return "\n".join(passed_over + own)
    names = ", ".join(coins) if len(coins) <= 5 else f"all {len(coins)} coins"
    real = "data.folder=FOLDER takes files of real ones, data.source=ccxt downloads them"
    return f"the candles of {names} are simulated, no market's; {real}"


def _obtain(
    data: Data, symbol: str, market: Mapping[str, Candles], find: files.Find | None
) -> tuple[Candles, Mapping[str, object]]:
    if find:
        return files.read(find(symbol, data.timeframe), symbol, data.timeframe, minimum_rows=data.minimum_rows)
    if data.origin == "ccxt":
        return exchange.download(symbol, data.timeframe, data.days, data.exchange, minimum_rows=data.minimum_rows)
    if len(candles := market[symbol]) < data.minimum_rows:
        left = f"data.simulated_candles={data.simulated_candles} left {len(candles)} candles"
        raise UserError(f"{symbol}: {left}, fewer than data.minimum_rows={data.minimum_rows}; simulate more")
    return candles, describe(candles)


def _coin(
    data: Data, candles: Candles, checks: Mapping[str, object], own: Own | None, target: Own | None
) -> tuple[Coin, np.ndarray]:
    """Return a coin with features and labels but without folds, and all rows (M,) at which a window can end."""
    longest = candles.rows(max(candles.segments(), key=lambda each: each.stop - each.start))
    others = (*data.timeframes, *data.context)
    memory = max(other_candles.memory(others, candles.timeframe_ms), own.memory if own else 0) + data.lookback - 1
    if own:
        own.check(longest)
    if target:
        target.check(longest, data.horizon)
        if target.memory > memory:
            what = f"{target.word} depends on {target.memory} candles, and a window on {memory}"
            raise UserError(f"{what}: a lower MEMORY is needed in that file, or a longer data.lookback")
    names, table = own_features.compute(candles, own, others=others)
    table = table.astype(np.float32)
    labels = own_features.labelled(candles, data.label, data.horizon, data.threshold)
    if not len(ends := splits.usable(candles, table, labels, data.lookback)):
        needed = f"{memory + data.horizon} candles without a gap are needed"
        of = f"(features, data.lookback={data.lookback}, data.horizon={data.horizon})"
        but = f"but the longest stretch of these has {len(longest)}; give more complete files"
        if len(longest) >= memory + data.horizon:
            least, name = min(zip(np.isfinite(table).sum(0).tolist(), names, strict=True))
            but = f"but {name} is finite in {least} of {len(candles)} candles, the label known in {(labels >= 0).sum()}"
        raise UserError(f"{candles.symbol}: no window fits: {needed} {of}, {but}")
    if not np.ptp(candles.close[ends]):
        raise UserError(f"{candles.symbol}: its price never moves, so there is nothing to learn; leave the coin out")
    facts = {
        "symbol": candles.symbol,
        "timeframe": data.timeframe,
        "lookback": data.lookback,
        "label": {"rule": data.label, "horizon": data.horizon, "threshold": data.threshold},
        "checks": dict(checks),
        "hash": candles.digest(),
        "context": list(candles.context),
        "feature_set": dict(zip(own._fields[:3], own, strict=False)) if own else data.features,
        "windows": len(ends),
    }
    return Coin(candles, names, table, labels, (), (), data.lookback, facts), ends


def _divide(data: Data, times: Mapping[str, np.ndarray], known: tuple[int, int] | None) -> tuple[Folds, list[str]]:
    """Return the folds of each coin that has all parts, and the coins of which the common cuts leave a part empty.

    These were listed late or have ended, and are cut by their own time. `times` (n,) are the ends of windows, `known`
    is the span of earlier folds, if there are any.
    """
    divide = partial(splits.divide, data=data)
    folds, apart = Folds() if known else splits.together(times, divide), list[str]()
    for symbol, each in times.items():
        if known:  # a coin whose candles reach further has its own, longer time
            span = known[0], max(known[1], int(each[-1]) + milliseconds(data.timeframe))
            folds |= splits.together({symbol: each}, partial(divide, span=span))
        if symbol not in folds:
            apart += (own := splits.together({symbol: each}, divide))
            folds |= own
    return folds, apart


def _finish(coin: Coin, divided: Sequence[Fold], ends: np.ndarray) -> Coin:
    """Return the coin with its folds, the scaler of each, and the count of each class in each part."""
    folds = [{part: ends[at] for part, at in fold.indices[coin.candles.symbol].items()} for fold in divided]
    scalers = tuple(Scaler.fit(coin.features, parts["train"], coin.lookback) for parts in folds)

    def counted(rows: np.ndarray) -> dict[str, int]:
        return dict(zip(CLASSES, np.bincount(coin.labels[rows], minlength=3).tolist(), strict=True))

    counts = [{part: counted(rows) for part, rows in parts.items()} for parts in folds]
    facts = {**coin.facts, "classes": counts, "cuts": [list(fold.cuts) for fold in divided]}
    return replace(coin, folds=tuple(folds), scalers=scalers, facts=facts)


def _save(coin: Coin, path: Path) -> None:
    import datasets
    import pyarrow as pa

    columns = coin.candles.columns()
    for name, each in coin.candles.context.items():
        columns |= {f"{name} {key}": column for key, column in each.columns().items()}
    columns |= {name: coin.features[:, number] for number, name in enumerate(coin.names)}
    for number, parts in enumerate(coin.folds):
        columns[f"fold {number}"] = part_of = np.full(len(coin.labels), -1, np.int8)
        for place, part in enumerate(PARTS):
            part_of[parts[part]] = place
    table = pa.table({**columns, "label": coin.labels})
    # Setting the fingerprint makes equal candles give equal bytes.
    datasets.Dataset(table, fingerprint=coin.facts["hash"][:16]).save_to_disk(path)
    page = {**coin.facts, "features": list(coin.names), "scalers": [each.plain() for each in coin.scalers]}
    write_text(path.with_name(path.name + ".json"), json.dumps(page, allow_nan=False) + "\n")


def load(folder: Path, symbol: str) -> Coin:
    """Return a prepared coin. Raises UserError if it is missing or its candles have changed since."""
    import datasets

    datasets.disable_progress_bars()
    symbol = canonical(symbol)
    pages = [page for each in TIMEFRAMES if (page := folder / f"{symbol}-{each}.json").is_file()]  # without a listing
    if not pages:
        known = ", ".join(page.stem for page in sorted(folder.glob("*-*.json"))) or "none"
        raise UserError(f"{folder}: {symbol} is not among the prepared coins ({known}); see manifest.json for why")
    page = json.loads(pages[0].read_text())
    names = tuple(page.pop("features"))
    table = datasets.load_from_disk(pages[0].with_suffix("")).data
    # Copied, because torch warns about read-only arrays such as those of a mapped file.
    columns = {name: np.array(table.column(name)) for name in table.column_names}
    step, folds = milliseconds(page["timeframe"]), [columns[f"fold {number}"] for number in range(len(page["cuts"]))]
    context = {coin: Candles(coin, step, *(columns[f"{coin} {name}"] for name in COLUMNS)) for coin in page["context"]}
    candles = Candles(symbol, step, **{name: columns[name] for name in COLUMNS}).beside(context)
    if candles.digest() != page["hash"]:
        raise UserError(f"{pages[0].with_suffix('')}: the candles have changed since preparation; delete {folder}")
    return Coin(
        candles=candles,
        names=names,
        features=np.stack([columns[name] for name in names], 1),
        labels=columns["label"],
        folds=tuple({part: np.flatnonzero(each == place) for place, part in enumerate(PARTS)} for each in folds),
        scalers=tuple(Scaler(np.array(each["mean"]), np.array(each["std"])) for each in page.pop("scalers")),
        lookback=page["lookback"],
        facts=page,
    )
