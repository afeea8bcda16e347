"""One coin in one fold: the model's predictions on the test, and all that is chosen on the validation part."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from common.errors import UserError
from pipelines.engine.workload import MapItems
from pipelines.workloads.crypto import baselines, trading
from pipelines.workloads.crypto.calibration import fit_temperature
from pipelines.workloads.crypto.classification import class_shares
from pipelines.workloads.crypto.data import Coin
from pipelines.workloads.crypto.task import Windows, windows
from pipelines.workloads.crypto.thresholds import Choice, choose_threshold, signals

if TYPE_CHECKING:
    from pipelines.workloads.crypto import Config

WINDOWS_AT_ONCE = 1024


@dataclass(frozen=True)
class Predictions:
    """Predictions of a model for n windows of a coin, in order of time."""

    ends: np.ndarray  # (n,) rows at which the windows end
    times: np.ndarray  # (n,) opening times of those candles, ms
    labels: np.ndarray  # (n,)
    logits: np.ndarray  # (n, 3)
    probabilities: np.ndarray  # (n, 3) float64 of the float32 softmax


@dataclass(frozen=True)
class CoinFold:
    """A coin in one fold, with all that its test is judged by."""

    member: str
    fold: int
    test: Predictions
    prior: np.ndarray  # (3,) shares of the classes in training
    baselines: Mapping[str, np.ndarray]  # name -> probabilities (n, 3) on the test
    temperature: float
    choice: Choice
    rows: np.ndarray  # (m,) candles of the test that are traded
    signals: np.ndarray  # (m,)


def evaluate_fold(
    config: "Config",
    model: nn.Module,
    coin: Coin,
    member: str,
    fold: int,
    number: int,
    device: torch.device,
    map_items: MapItems,
) -> CoinFold:
    """Predict a coin's test in a fold, and choose temperature and threshold on its validation part.

    `number` is the coin's among those of a pooled model. Raises UserError if the model does not fit the prepared data
    or its outputs are not finite.
    """
    _check(model, coin, member)
    validation, test = (
        _predict(model, coin, fold, part, windows(coin, fold, part, device, number), map_items)
        for part in ("validation", "test")
    )
    train = coin.folds[fold]["train"]
    labels = coin.labels[train].astype(np.int64)
    last_returns = np.log(coin.candles.close[1:] / coin.candles.close[:-1])  # that of row t is at t - 1
    baseline_probabilities = baselines.fit_and_predict(
        coin.features[train],
        labels,
        last_returns[train - 1],
        coin.features[test.ends],
        last_returns[test.ends - 1],
        seed=config.evaluation.seed,
    )
    rows = trading.traded_rows(validation.ends, config.data.horizon)
    choice = choose_threshold(
        trading.spread(validation.probabilities, validation.ends, rows),
        **trading.prices(coin, rows),
        **trading.rules(config),
    )
    rows = trading.traded_rows(test.ends, config.data.horizon)
    return CoinFold(
        member=member,
        fold=fold,
        test=test,
        prior=class_shares(labels),
        baselines=baseline_probabilities,
        temperature=fit_temperature(validation.logits, validation.labels),
        choice=choice,
        rows=rows,
        signals=signals(trading.spread(test.probabilities, test.ends, rows), choice.threshold),
    )


def _check(model: Any, coin: Coin, member: str) -> None:
    """Refuse a model that was trained on other features or other candles: its test could hold rows it learned from."""
    symbol, known = coin.candles.symbol, model.config
    if tuple(known.features) != coin.names:
        raise UserError(
            f"{member}: the model was trained on the features {', '.join(known.features)} in this order, but the "
            f"prepared data of {symbol} have {', '.join(coin.names)}; train it again under another --name"
        )
    if known.about["data_sha256"][symbol] != coin.facts["hash"]:
        raise UserError(
            f"{member}: the candles of {symbol} have changed since it was trained, so its test could hold rows that it "
            "learned from; restore the old files, or train again under another --name"
        )


def _predict(model: nn.Module, coin: Coin, fold: int, part: str, source: Windows, map_items: MapItems) -> Predictions:
    def outputs(batch: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        # In full precision, whatever the training used.
        with torch.autocast(batch["windows"].device.type, enabled=False):
            logits = model(batch["windows"], batch["coins"]).float()
        return {"logits": logits, "probabilities": logits.softmax(-1)}

    found = {
        name: values.numpy().astype(np.float64) for name, values in map_items(source, outputs, WINDOWS_AT_ONCE).items()
    }
    ends = coin.folds[fold][part]
    if not np.isfinite(found["logits"]).all():
        raise UserError(f"{coin.candles.symbol}: the model's outputs are not finite; train it again")
    return Predictions(ends=ends, times=coin.candles.time[ends], labels=coin.labels[ends].astype(np.int64), **found)


def joined(folds: Sequence[CoinFold]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return probabilities (n, 3), labels (n,) and priors (n, 3) of the tests of all folds, one after the other."""
    return (
        np.concatenate([fold.test.probabilities for fold in folds]),
        np.concatenate([fold.test.labels for fold in folds]),
        np.concatenate([np.tile(fold.prior, (len(fold.test.labels), 1)) for fold in folds]),
    )
