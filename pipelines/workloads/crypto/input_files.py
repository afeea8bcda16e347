"""Files of candles for trained models: the newest stretch without a gap of each."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from common.errors import UserError
from common.input_files import Given, Inputs, each_file
from common.plain import Plain
from models.market.candles import COLUMNS
from models.market.inputs import CandlesInput, SignalSettings
from pipelines.workloads.crypto.candles import files
from pipelines.workloads.crypto.candles.names import letters_and_digits

if TYPE_CHECKING:
    from models.market.signal_model import SignalModel


def read(paths: Sequence[Path]) -> Iterator[Given]:
    """Yield the newest candles of the coin of each file, and of the files in folders."""
    return each_file(paths, files.SUFFIXES, _newest)


def _newest(path: Path) -> Iterator[tuple[str, Mapping[str, object]]]:
    name = files.NAME.fullmatch(path.name)
    if name is None:
        raise UserError(f"{path}: the name must tell coin and timeframe, as in BTCUSDT-15m.csv")
    coin = letters_and_digits(name["coin"])
    known, _ = files.read(path, coin, name["timeframe"].lower(), minimum_rows=1)
    newest = known.rows(known.segments()[-1])
    yield str(path), {"coin": coin, "candles": {column: getattr(newest, column).tolist() for column in COLUMNS}}


def about(models: Sequence["SignalModel"]) -> dict[str, Plain]:
    """Return the coins that the models know, and the candles that they need."""
    return {
        "coins": [coin for model in models for coin in model.config.coins],
        "timeframe_ms": models[0].config.timeframe_ms,
        "candles_needed": max(model.candles_needed for model in models),
    }


INPUTS = Inputs(
    input=CandlesInput,
    settings=SignalSettings,
    read=read,
    about=about,
)
