"""One coin in one fold: the model's predictions on the test, and the choices made on validation."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from scipy.special import softmax
from torch import Tensor

from common.errors import UserError
from models.market.candles import DAY
from models.market.inputs import CLASSES
from models.market.labels import signals
from models.market.pooled_experts import PooledExperts, PooledExpertsConfig
from models.market.recalibration import WINDOW, recalibrated
from models.market.signal_model import SignalModel
from pipelines.engine.workload import MapItems
from pipelines.workloads.crypto import experts, splits
from pipelines.workloads.crypto.config import Config
from pipelines.workloads.crypto.data import Coin
from pipelines.workloads.crypto.splits import PARTS
from pipelines.workloads.crypto.task import horizon_moves
from pipelines.workloads.crypto.trading import strategy
from pipelines.workloads.crypto.untrained import description
from pipelines.workloads.crypto.verdict import baselines, judge
from pipelines.workloads.crypto.verdict.classification import class_shares, log_losses
from pipelines.workloads.crypto.verdict.judge import AUTOREGRESSION, BLENDED, ROLLING
from pipelines.workloads.crypto.windows import IGNORED, below_each_other, pooled

LAGS = 24  # returns of the autoregression
WINDOWS_AT_ONCE = 1024


class Predictions(NamedTuple):
    """Predictions of a model for n windows of a coin, in order of time."""

    ends: np.ndarray  # (n,) rows at which the windows end
    times: np.ndarray  # (n,) opening times of those candles, ms
    labels: np.ndarray  # (n,)
    logits: np.ndarray  # (n, 3)
    probabilities: np.ndarray  # (n, 3) recalibrated


class CoinFold(NamedTuple):
    """A coin in one fold, with everything that its test is judged by."""

    member: str
    fold: int
    test: Predictions
    prior: np.ndarray  # (3,) shares of the classes in training
    baselines: Mapping[str, np.ndarray]  # name -> probabilities (n, 3) on the test
    moves: np.ndarray  # (n,) returns over the horizon that followed, in units of the volatility
    later: np.ndarray  # (n,) those from one candle later on
    last: np.ndarray  # (n,) returns of the newest candle
    leaks: list[str]  # features that seem to know the future
    recalibration: int  # labels that correct the probabilities, chosen on validation
    recalibration_gain: float  # nats by which that lowered the log loss of the test
    choice: strategy.Tried  # the threshold that did best on validation
    tried: Sequence[strategy.Tried]
    rows: np.ndarray  # (m,) candles of the test that are traded
    signals: np.ndarray  # (m,)


class Place(NamedTuple):
    """Where a coin is learnt: a member, its model and fold, and the number of the coin in that model."""

    member: str
    model: SignalModel
    fold: int
    number: int


def evaluate_fold(config: Config, coin: Coin, place: Place, device: torch.device, map_items: MapItems) -> CoinFold:
    """Predict a coin's test in a fold, and choose recalibration and threshold on its validation part.

    Raises UserError if the model does not fit the prepared data or its outputs are not finite.
    """
    _check(place.model, coin, place.member)
    logits = _predict(coin, place, device, map_items)
    recalibration, (validation, test) = _recalibrated(config, coin, place.fold, logits)
    rivals, all_moves, volatility = _rivals(config, place.model, coin, place.fold)
    ends = np.concatenate([coin.folds[place.fold][part] for part in PARTS])
    series = (coin.candles, *coin.candles.context.values())
    returns, *theirs = (np.diff(np.log(each.close), prepend=np.log(each.close[0])) for each in series)
    columns = np.column_stack([coin.features, coin.candles.volume])[ends]
    rows, probabilities = strategy.traded(validation.probabilities, validation.ends, config.data.horizon)
    choice, tried = strategy.choose_threshold(probabilities, strategy.market(config, coin, rows))
    rows, probabilities = strategy.traded(test.probabilities, test.ends, config.data.horizon)
    as_learnt = softmax(test.logits.astype(float), axis=1)
    return CoinFold(
        member=place.member,
        fold=place.fold,
        test=test,
        prior=class_shares(coin.labels[coin.folds[place.fold]["train"]]),
        baselines=rivals,
        moves=all_moves[test.ends] / volatility,
        later=all_moves[test.ends + 1] / volatility,
        last=returns[test.ends] / volatility,
        leaks=judge.leaking((*coin.names, "volume"), columns, returns, ends, config.data.horizon, theirs),
        recalibration=recalibration,
        recalibration_gain=_log_loss(as_learnt, test) - _log_loss(test.probabilities, test),
        choice=choice,
        tried=tried,
        rows=rows,
        signals=signals(probabilities, choice.threshold),
    )


def _rivals(
    config: Config, model: SignalModel, coin: Coin, fold: int
) -> tuple[dict[str, np.ndarray], np.ndarray, np.ndarray]:
    """Return test probabilities (n, 3) of simple models on the model's inputs, all moves (N,), and volatility (n,).

    "window" are the features of the last row, the returns of the window, the context's among them, and the sizes of
    every fourth. The location-scale model is the model's linear expert if that learnt this coin alone, without a base;
    else it is fitted.
    """
    shell = PooledExperts(PooledExpertsConfig(**vars(description(config, [coin], fold))))
    parts = {part: pooled([coin], fold, part, shell.stretch) for part in PARTS}
    lookback = shell.config.lookback

    def inputs(windows: Tensor, coins: Tensor) -> tuple[Tensor, ...]:
        past = shell.linear_inputs(windows, coins)[0][..., : (1 + len(shell.context_places)) * lookback]
        last = windows[:, lookback - 1 :]
        return last, torch.cat([last, past, past[..., ::4].abs()], -1), past[..., -min(LAGS, lookback) :]

    seen: dict[str, dict[str, np.ndarray]] = {}
    for part in ("train", "test"):
        columns = (each.numpy() for each in experts.over(parts[part], inputs))
        seen[part] = dict(zip(("last row", "window", AUTOREGRESSION), columns, strict=True))
    ends = {part: coin.folds[fold][part] for part in PARTS}
    labels = coin.labels[ends["train"]].astype(np.int64)
    prior, per_day = class_shares(labels), DAY // coin.candles.timeframe_ms
    rolling: dict[str, np.ndarray] = {}
    for part, inputs_of in seen.items():
        rolling[part] = baselines.rolling_priors(coin.labels, ends[part], prior, config.data.horizon, per_day)
        inputs_of[BLENDED] = np.log(rolling[part]).reshape(len(rolling[part]), -1)
    span = min(range(len(baselines.SPANS)), key=lambda each: log_losses(rolling["train"][:, each], labels).mean())
    found = baselines.fit_and_predict(
        seen["train"], labels, seen["test"], linear=(AUTOREGRESSION, BLENDED), seed=config.evaluation.seed
    )
    found[ROLLING] = rolling["test"][:, span]
    moves = horizon_moves(coin, config.data.horizon, shell)
    if isinstance(model, PooledExperts) and len(model.config.coins) == 1 and config.model.base is None:
        for name in ("location", "scale", "level", "thresholds", "slopes"):
            getattr(shell, name).copy_(getattr(model, name))
    else:
        returns = torch.from_numpy(below_each_other([moves], shell.stretch))
        experts.fit_linear(shell, parts["train"], parts["validation"], returns)
    (linear,) = experts.over(parts["test"], lambda *given: (shell.linear(*given),))
    volatility = experts.over(parts["test"], shell.linear_inputs)[2].numpy()
    found["location-scale"] = linear.exp().double().numpy()
    return found, moves, volatility


def _check(model: SignalModel, coin: Coin, member: str) -> None:
    """Refuse a model that was trained on other features or other candles: its test could hold rows it learned from."""
    symbol, known = coin.candles.symbol, model.config
    if tuple(known.features) != coin.names:
        learnt = f"the model was trained on the features {', '.join(known.features)} in this order"
        prepared = f"the prepared data of {symbol} have {', '.join(coin.names)}"
        raise UserError(f"{member}: {learnt}, but {prepared}; train it again under another --name")
    # Simulated candles follow from the settings, which training fixed; their last bits differ between processors.
    if not known.warning and known.about["data_sha256"][symbol] != coin.facts["hash"]:
        changed = f"{member}: the candles of {symbol} have changed since it was trained"
        learnt = "its test could hold rows that it learned from"
        raise UserError(f"{changed}, so {learnt}; restore the old files, or train again under another --name")


def _predict(coin: Coin, place: Place, device: torch.device, map_items: MapItems) -> np.ndarray:
    """Return the logits (N, 3) of all windows from the beginning of validation to the end of the test, else NaN."""
    model, parts = place.model, coin.folds[place.fold]
    ends = splits.usable(coin.candles, coin.features, coin.labels, coin.lookback)
    ends = ends[(ends >= parts["validation"][0]) & (ends <= parts["test"][-1])]
    judged = replace(coin, folds=tuple({**each, "judged": ends} for each in coin.folds))
    source = pooled([judged], place.fold, "judged", model.stretch, place.number).to(device)

    def outputs(batch: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        # In full precision, whatever the training used.
        with torch.autocast(batch["windows"].device.type, enabled=False):
            return {"logits": model(batch["windows"], batch["coins"]).float(), "labels": batch["labels"]}

    found = map_items(source, outputs, max(1, WINDOWS_AT_ONCE // model.stretch))
    logits = np.full((len(coin.labels), len(CLASSES)), np.nan)
    logits[ends] = found["logits"][found["labels"] != IGNORED].numpy()
    if not np.isfinite(logits[ends]).all():
        raise UserError(f"{coin.candles.symbol}: the model's outputs are not finite; train it again")
    return logits


def _recalibrated(config: Config, coin: Coin, fold: int, logits: np.ndarray) -> tuple[int, list[Predictions]]:
    """Return the number of labels that recalibrate, 0 unless it helps on validation, and both parts' predictions."""
    tried = {}
    for window in (0, WINDOW):
        logs = recalibrated(logits, coin.labels, coin.candles.segments(), config.data.horizon, window)
        tried[window] = [
            Predictions(rows, coin.candles.time[rows], coin.labels[rows].astype(int), logits[rows], np.exp(logs[rows]))
            for rows in (coin.folds[fold][part] for part in ("validation", "test"))
        ]
    best = min(tried, key=lambda window: _log_loss(tried[window][0].probabilities, tried[window][0]))
    return best, tried[best]


def _log_loss(probabilities: np.ndarray, of: Predictions) -> float:
    return float(log_losses(probabilities, of.labels).mean())
