"""Classification of the next move, from windows gathered out of tables that live on the device."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from common.errors import UserError
from common.prepared import MANIFEST
from models.cnn_lstm import CNNLSTM, CNNLSTMConfig
from pipelines.engine.workload import Loss, Task
from pipelines.workloads.crypto import data, splits
from pipelines.workloads.crypto.labels import CLASSES

if TYPE_CHECKING:
    from pipelines.workloads.crypto import Config

POOLED = "all"


@dataclass(frozen=True)
class Member:
    """Coins and fold that one model learns."""

    symbols: tuple[str, ...]
    fold: int


def members(config: "Config", folder: Path) -> dict[str, Member]:
    """Return the members: each coin, or all together, in each fold (BTCUSDT, or BTCUSDT-1, BTCUSDT-2, ...).

    A coin that could not be prepared is among them, so that its training can say why.
    """
    facts = json.loads((folder / MANIFEST).read_text())
    groups = {symbol: (symbol,) for symbol in data.symbols(config.data)}
    if config.model.pooled:
        groups = {POOLED: tuple(facts["symbols"]), **{symbol: groups[symbol] for symbol in facts["failed"]}}
    folds = range(len(facts["folds"]))
    if len(folds) == 1:
        return {name: Member(symbols, 0) for name, symbols in groups.items()}
    return {f"{name}-{fold + 1}": Member(symbols, fold) for name, symbols in groups.items() for fold in folds}


def expand(config: "Config", folder: Path) -> dict[str, "Config"]:
    """Return the config of each member; {} if model.coins names what the run's only model learns."""
    if config.model.coins:
        return {}
    found = {}
    for name, member in members(config, folder).items():
        model = config.model.model_copy(update={"coins": member.symbols, "fold": member.fold})
        found[name] = config.model_copy(update={"model": model})
    return found


class Windows:
    """Windows of one or several coins by number; each is gathered from the table when it is asked for.

    table (N, F) float32 scaled features of all coins, one below the other; labels (N,); ends (M,) rows at which the
    windows end; coins (M,) which coin each is of.
    """

    workers = 0

    def __init__(self, table: Tensor, labels: Tensor, ends: Tensor, coins: Tensor, lookback: int, device: torch.device):
        self.size, self.device = len(ends), device
        self.table, self.labels, self.ends, self.coins = (each.to(device) for each in (table, labels, ends, coins))
        self.past = torch.arange(1 - lookback, 1, device=device)

    def batch(self, items: Tensor) -> dict[str, Tensor]:
        """Return windows (b, L, F), labels (b,) and coins (b,) for `items` (b,)."""
        items = items.to(self.device, non_blocking=True)
        ends = self.ends.index_select(0, items)
        rows = (ends[:, None] + self.past).flatten()
        windows = self.table.index_select(0, rows).view(len(items), len(self.past), -1)
        return {
            "windows": windows,
            "labels": self.labels.index_select(0, ends),
            "coins": self.coins.index_select(0, items),
        }


def windows(coin: data.Coin, fold: int, part: str, device: torch.device, number: int = 0) -> Windows:
    """Return a coin's windows of a part in order of time; `number` is the coin's number in a pooled model."""
    return pooled([coin], fold, part, device, number)


def pooled(coins: Sequence[data.Coin], fold: int, part: str, device: torch.device, first: int = 0) -> Windows:
    """Return the windows of several coins, one coin after the other, numbered from `first`."""
    # A row that no window holds may lack features; it must not be NaN times 0 in some later gather.
    tables = [np.nan_to_num(coin.scaled(fold)) for coin in coins]
    starts = np.cumsum([0, *map(len, tables)])
    ends = [coin.folds[fold][part] + start for coin, start in zip(coins, starts[:-1], strict=True)]
    numbers = [np.full(len(each), first + number) for number, each in enumerate(ends)]
    return Windows(
        torch.from_numpy(np.concatenate(tables)),
        torch.from_numpy(np.concatenate([coin.labels for coin in coins]).astype(np.int64)),
        torch.from_numpy(np.concatenate(ends)),
        torch.from_numpy(np.concatenate(numbers)),
        coins[0].lookback,
        device,
    )


class SignalTask(Task):
    """Cross-entropy of the three classes, weighted by how rare they are in training.

    The weights are taken out of the probabilities again: what is weighted is the softmax of the logits plus the log
    weights, so the softmax of the logits themselves tends to the classes' true frequencies.
    """

    def __init__(self, config: "Config", folder: Path, device: torch.device):
        facts = json.loads((folder / MANIFEST).read_text())
        symbols, fold = config.model.coins or (), config.model.fold
        for symbol in symbols:
            if symbol in facts["failed"]:
                raise UserError(facts["failed"][symbol])
        if fold >= len(facts["folds"]):
            raise UserError(f"model.fold={fold} must be below {len(facts['folds'])}, the number of folds of these data")
        coins = [data.load(folder, symbol) for symbol in symbols]
        self.train = pooled(coins, fold, "train", device)
        self.validation = pooled(coins, fold, "validation", device)
        self.model = CNNLSTM(model_config(config, coins, fold)).to(device)
        counts = torch.bincount(self.train.labels[self.train.ends], minlength=len(CLASSES)).float()
        # A class that training lacks must not weigh infinitely; its rows never come.
        balanced = self.train.size / (len(CLASSES) * counts.clamp(min=1))
        self.class_weights = balanced if config.training.class_weights == "balanced" else torch.ones_like(balanced)
        self.notes = self._notes(coins, counts)

    def _notes(self, coins: Sequence[data.Coin], counts: Tensor) -> list[str]:
        shares = zip(CLASSES, (counts / counts.sum()).tolist(), strict=True)
        return [
            f"{self.train.size:,} windows of {', '.join(coin.candles.symbol for coin in coins)} to train on, "
            f"{self.validation.size:,} to validate; " + ", ".join(f"{name} {share:.0%}" for name, share in shares)
        ]

    def loss(self, model: nn.Module, batch: Mapping[str, Tensor]) -> Loss:
        """Weighted cross-entropy in nats, summed over windows; the weights are 1 in the mean."""
        labels = batch["labels"]
        logits = model(batch["windows"], batch["coins"]).float()
        nats = F.cross_entropy(logits + self.class_weights.log(), labels, reduction="none")
        right = (logits.argmax(-1) == labels).float()
        return Loss((nats * self.class_weights[labels]).sum(), len(labels), {"accuracy": right.sum()})

    def score(self, model: nn.Module, batch: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """Log loss in nats, without weights, and whether the likeliest class was right."""
        logits, labels = model(batch["windows"], batch["coins"]).float(), batch["labels"]
        return {
            "log_loss": F.cross_entropy(logits, labels, reduction="none"),
            "accuracy": (logits.argmax(-1) == labels).float(),
        }


def model_config(config: "Config", coins: Sequence[data.Coin], fold: int) -> CNNLSTMConfig:
    """Return the network's config, with everything needed to use it."""
    first = coins[0]
    scalers = [coin.scalers[fold].to_dict() for coin in coins]
    return CNNLSTMConfig(
        preset=config.model.preset,
        features=first.names,
        lookback=first.lookback,
        width=config.model.width,
        dropout=config.model.dropout,
        coins=tuple(coin.candles.symbol for coin in coins),
        scalers={
            coin.candles.symbol: {"mean": scaler["mean"], "std": scaler["std"]}
            for coin, scaler in zip(coins, scalers, strict=True)
        },
        timeframe_ms=first.candles.timeframe_ms,
        about={
            "classes": list(CLASSES),
            "timeframe": first.facts["timeframe"],
            "feature_set": config.data.features,
            "label": dict(first.facts["label"]),
            "data_sha256": {coin.candles.symbol: coin.facts["hash"] for coin in coins},
            "windows": {
                coin.candles.symbol: {
                    part: {
                        "windows": len(rows),
                        "first_ms": int(coin.candles.time[rows[0]]),
                        "last_ms": int(coin.candles.time[rows[-1]]),
                    }
                    for part, rows in coin.folds[fold].items()
                    if part in splits.PARTS
                }
                for coin in coins
            },
        },
    )
