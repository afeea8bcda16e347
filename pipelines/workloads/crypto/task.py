"""Classification of the next move: the model of each coin and its loss."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from common.disk.prepared import MANIFEST
from common.errors import UserError
from models.market.inputs import CLASSES
from models.market.pooled_experts import EXPERTS, PooledExperts
from models.market.rule import fingerprint
from models.market.signal_model import SignalModel
from pipelines.distributed import deferred, ranks
from pipelines.engine.workload import Loss, MapItems, Task
from pipelines.workloads.crypto import data, experts
from pipelines.workloads.crypto.config import Config
from pipelines.workloads.crypto.untrained import load_base, untrained
from pipelines.workloads.crypto.windows import IGNORED, below_each_other, pooled

POOLED = "all"


class Member(NamedTuple):
    """Coins and fold that one model learns."""

    symbols: tuple[str, ...]
    fold: int


def members(config: Config, folder: Path) -> dict[str, Member]:
    """Return the members: each coin, or all together, in each fold (BTCUSDT, or BTCUSDT-1, BTCUSDT-2, ...).

    A coin that could not be prepared is among them, so that its training can say why.
    """
    facts = json.loads((folder / MANIFEST).read_text())
    groups = {symbol: (symbol,) for symbol in (*facts["symbols"], *facts["failed"])}
    if config.model.pooled:
        alone = {*facts["failed"], *facts.get("apart", ())}
        pooled = tuple(symbol for symbol in facts["symbols"] if symbol not in alone)
        groups = {POOLED: pooled, **{symbol: groups[symbol] for symbol in groups if symbol in alone}}
    folds = len(facts["folds"])
    return {_name(name, fold, folds): Member(groups[name], fold) for name in groups for fold in range(folds)}


def _name(group: str, fold: int, folds: int) -> str:
    return group if folds == 1 else f"{group}-{fold + 1}"


def expand(config: Config, folder: Path) -> dict[str, Config]:
    """Return the config of each member; {} if model.coins names what the run's only model learns."""
    if config.model.coins:
        return {}
    own = {name: {"coins": each.symbols, "fold": each.fold} for name, each in members(config, folder).items()}
    return {name: config.model_copy(update={"model": config.model.model_copy(update=own[name])}) for name in own}


def task(config: Config, folder: Path, device: torch.device, first: "SignalTask | None" = None) -> "SignalTask":
    """Return the task of the configured kind of model; the refit's, given the `first` task with the best model."""
    return (ExpertsTask if config.model.chosen == "pooled_experts" else SignalTask)(config, folder, device, first)


class SignalTask(Task):
    """Cross-entropy of the three classes, weighted by how rare they are in training unless the config says otherwise.

    The weights are taken out of the probabilities again: what is weighted is the softmax of the logits plus the log
    weights, so the softmax of the logits themselves tends to the classes' true frequencies.
    """

    model: SignalModel
    usual_weights = "balanced"
    judged_by: tuple[str, ...] = ("windows", "coins")  # parts of a batch that the model's logits depend on
    learns_by: Mapping[str, bool] = MappingProxyType({})  # further arguments of the model in training

    def __init__(self, config: Config, folder: Path, device: torch.device, first: "SignalTask | None" = None):
        facts = json.loads((folder / MANIFEST).read_text())
        symbols, fold = config.model.coins or (), config.model.fold
        for symbol in symbols:
            if symbol in facts["failed"]:
                raise UserError(facts["failed"][symbol])
        if fold >= len(facts["folds"]):
            raise UserError(f"model.fold={fold} must be below {len(facts['folds'])}, the number of folds of these data")
        self.coins = [data.load(folder, symbol).newest(config.training.window) for symbol in symbols]
        if len({str(coin.facts["cuts"]) for coin in self.coins}) > 1:
            needed = "a model of several coins needs them cut into parts at the same times"
            grown = f"some files have grown since {folder} was prepared; delete that folder to prepare all anew"
            raise UserError(f"{', '.join(symbols)}: {needed}, but {grown}")
        self.first, self.fits_again = first, config.training.refit
        if first:
            self.coins = [coin.joined() for coin in self.coins]
        base = ranks.on_main(lambda: load_base(config, _name(POOLED, fold, len(facts["folds"]))))
        self.model = deferred.made(lambda: untrained(config, self.coins, fold, base), torch.device("cpu"))
        if first:
            self.model.config.about["judged"] = fingerprint(first.model)
        sources = [pooled(self.coins, fold, part, self.model.stretch) for part in ("train", "validation")]
        self.train, self.validation = sources
        self._fit(config, base.model if base else None)
        for source in sources:
            source.to(device)
        deferred.move(self.model, device)
        counts = torch.bincount(self.train.labels[self.train.labels != IGNORED], minlength=len(CLASSES)).float()
        # A class that training lacks must not weigh infinitely; its rows never come.
        balanced = counts.sum() / (len(CLASSES) * counts.clamp(min=1))
        chosen = config.training.class_weights or self.usual_weights
        self.class_weights = balanced if chosen == "balanced" else torch.ones_like(balanced)
        shares = zip(CLASSES, (counts / counts.sum()).tolist(), strict=True)
        validated = int((self.validation.labels != IGNORED).sum())
        self.notes = [
            f"{int(counts.sum()):,} windows of {', '.join(coin.candles.symbol for coin in self.coins)} to train on, "
            f"{validated:,} to validate; " + ", ".join(f"{name} {share:.0%}" for name, share in shares)
        ]

    def _fit(self, config: Config, base: PooledExperts | None) -> None:
        """Fit, on the CPU, the parts that depend only on the data and the base."""

    def loss(self, model: nn.Module, batch: Mapping[str, Tensor]) -> Loss:
        """Weighted cross-entropy in nats, summed over windows; the weights are 1 in the mean."""
        logits = model(batch["windows"], batch["coins"], **self.learns_by).float().flatten(0, -2)
        labels = batch["labels"].flatten()
        nats = F.cross_entropy(logits + self.class_weights.log(), labels, ignore_index=IGNORED, reduction="none")
        right = (logits.argmax(-1) == labels).float()
        weights = self.class_weights[labels.clamp(min=0)]  # any for ignored labels, which have 0 nats
        return Loss((nats * weights).sum(), (labels != IGNORED).sum(), {"accuracy": right.sum()})

    def score(self, model: nn.Module, batch: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """Log loss in nats, without weights, and whether the likeliest class was right; sums over `count` windows."""
        logits, labels = model(*(batch[name] for name in self.judged_by)).float(), batch["labels"]
        nats = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=IGNORED, reduction="none")
        return {
            "log_loss": nats.view(labels.shape).sum(1),
            "accuracy": (logits.argmax(-1) == labels).float().sum(1),
            "count": (labels != IGNORED).sum(1).float(),
        }


class ExpertsTask(SignalTask):
    """Training of pooled experts: the network by gradients, the others once, and the pool before each validation."""

    model: PooledExperts
    usual_weights = "none"
    judged_by = ("windows", "coins", "fixed")
    learns_by = MappingProxyType({"alone": True})  # the network by itself
    chosen: tuple[experts.Known, int | None] = None, None  # on validation: penalty and rounds; on the main process

    def _fit(self, config: Config, base: PooledExperts | None) -> None:
        train, validation = self.train, self.validation
        first = self.first if isinstance(self.first, ExpertsTask) else None
        moves = [horizon_moves(coin, config.data.horizon, self.model) for coin in self.coins]
        returns = torch.from_numpy(below_each_other(moves, self.model.stretch))

        def fit() -> dict[str, Tensor]:
            penalty, rounds = first.chosen if first else self.chosen
            penalty = experts.fit_linear(self.model, train, validation, returns, base, penalty)
            self.chosen = penalty, experts.fit_trees(self.model, train, validation, base, rounds)
            return dict(self.model.named_buffers())

        # What is optimised may differ in its last bits between machines.
        for name, value in ranks.on_main(fit).items():
            self.model.get_buffer(name).copy_(value)
        if first:
            self.model.weights.copy_(first.model.weights)
        validation.fixed = experts.fixed(self.model, validation)

    def refit(self, map_items: MapItems) -> Mapping[str, float]:
        """Fit the weights of the pool on the validation windows."""

        def outputs(batch: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
            found = self.model.experts(batch["windows"], batch["coins"], batch["fixed"])
            return {"experts": found.float(), "labels": batch["labels"]}

        found = map_items(self.validation, outputs)
        known = found["labels"] != IGNORED
        seen, labels = found["experts"][known].double().numpy(), found["labels"][known].numpy()
        weights = ranks.on_main(lambda: experts.pool_weights(seen, labels))
        self.model.weights.copy_(torch.from_numpy(weights))
        return {f"val/weight_{name}": float(weight) for name, weight in zip(EXPERTS, weights, strict=True)}


def horizon_moves(coin: data.Coin, horizon: int, model: PooledExperts) -> np.ndarray:
    """Return the log return (N,) over the horizon after each row, in deviations of a candle's times sqrt(horizon)."""
    deviation = model.config.scalers[coin.candles.symbol]["std"][model.return_place]
    moves = np.zeros(len(coin.labels))
    moves[:-horizon] = np.log(coin.candles.close[horizon:] / coin.candles.close[:-horizon])
    return moves / (deviation * math.sqrt(horizon))
