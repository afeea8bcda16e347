"""Files of candles for trained models: the newest stretch without a gap of each."""

import functools
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from common.errors import UserError
from common.input_files import Given, Inputs, each_file
from common.plain import Plain
from models.market.candles import Candles
from models.market.inputs import CandlesInput, SignalSettings
from pipelines.workloads.crypto.candles import files


def read(paths: Sequence[Path]) -> Iterator[Given]:
    """Yield the candles of each file and of those in folders; parts of a month or a day are one file.

    What is passed over in a folder is named on stderr. Raises UserError at the end if nothing could be read.
    """
    parts = defaultdict[object, list[Path]](list)
    for path in paths:
        found, passed_over = files.in_folder(path) if path.is_dir() else ([(path, files.named(path))], [])
        print(*passed_over, sep="\n", end="\n" if passed_over else "", file=sys.stderr)
        for file, name in found:
            parts[(file.parent, name.coin, name.timeframe) if name.part else file].append(file)
    newest, usable, reasons = {max(each): sorted(each) for each in parts.values()}, False, []
    for given in each_file(list(newest), files.SUFFIXES, lambda path: _newest(newest[path])):
        usable |= given.input is not None
        reasons += [given.error] * (given.input is None)
        yield given
    if not usable:
        where = ", ".join(map(str, paths))
        raise UserError(reasons[0] if reasons else f"{where}: no file of candles; name them like BTCUSDT-15m.csv")


def _newest(paths: Sequence[Path]) -> Iterator[tuple[str, Mapping[str, object]]]:
    path = paths[-1]
    if (name := files.named(path)).reason:
        raise UserError(f"{path}: {name.reason}; name it like BTCUSDT-15m.csv")
    known, _ = files.read(paths, name.coin, name.timeframe, minimum_rows=1)
    yield str(path), {"coin": name.coin, "candles": known}


def as_input(candles: Candles) -> dict[str, object]:
    """Return candles, and their context of other coins, as an input of models."""
    lists = [
        {name: column.tolist() for name, column in each.columns().items()}
        for each in (candles, *candles.context.values())
    ]
    return {"coin": candles.symbol, "candles": lists[0], "context": dict(zip(candles.context, lists[1:], strict=True))}


def fitted(given: Given, models: Sequence[object]) -> Mapping[str, object]:
    """Return a file's input for the models: as many candles as they use, after the newest gap that is not filled.

    Candles of the models' context come from the files beside it; UserError if one is missing.
    """
    from models.market.signal_model import SignalModel, most_used

    path, found = Path(given.source), dict(given.input or {})
    own = [model for model in models if isinstance(model, SignalModel)]
    if not isinstance(known := found.get("candles"), Candles):
        return found
    whole = known.filled(fill := max([0, *(model.config.fill for model in own)]))
    if len(newest := whole.rows(whole.segments()[-1])) < len(whole):
        print(f"{path}: of {len(whole)} candles, the last {len(newest)} follow the newest gap", file=sys.stderr)
    newest = newest.rows(slice(-most_used(own), None))
    wanted = sorted({coin for model in own for coin in model.config.context})
    context = {coin: _beside(path.parent, coin, files.named(path).timeframe, fill) for coin in wanted}
    context = {coin: each.rows(each.time >= newest.time[0]) for coin, each in context.items()}
    return {**as_input(newest.beside(context)), **{name: each for name, each in found.items() if name != "candles"}}


@functools.lru_cache(maxsize=8)
def _beside(folder: Path, coin: str, timeframe: str, fill: int) -> Candles:
    return files.read(files.finder(folder)(coin, timeframe), coin, timeframe, minimum_rows=1)[0].filled(fill)


def about(models: Sequence[object]) -> dict[str, Plain]:
    """Return the facts for the models' page."""
    from models.market.signal_model import SignalModel, facts

    return facts([model for model in models if isinstance(model, SignalModel)])


def code(config: Mapping[str, Mapping[str, str]]) -> None:
    """Load the user's own functions. Raises UserError if their file is gone or has changed since training."""
    from models.market.own_features import load

    load(config["data"].get("features", "default"))
    load(config["data"].get("label", "fixed"), "data.label")


INPUTS = Inputs(input=CandlesInput, settings=SignalSettings, read=read, about=about, code=code, beside_it=fitted)
