"""Quick stand-ins for trained networks: a softmax regression on what a window shows, fitted in a moment."""

import contextlib
import json

import numpy as np
import pytest
import torch
from sklearn.dummy import DummyClassifier
from sklearn.linear_model import LogisticRegression
from torch import nn

from common.disk.prepared import MANIFEST
from pipelines.workloads.crypto import Config, data
from pipelines.workloads.crypto.candles.simulated import DECAY, DELAY, PERIOD
from pipelines.workloads.crypto.task import members
from pipelines.workloads.crypto.untrained import description
from pipelines.workloads.crypto.verdict import baselines
from pipelines.workloads.crypto.windows import pooled

CPU = torch.device("cpu")


def prepared(folder, /, model=None, evaluation=None, training=None, **changed):
    """The config of a small simulated market, prepared in `folder`."""
    defaults = {"symbols": ("AAAUSDT", "BBBUSDT"), "simulated_candles": 8000, "lookback": 40, "seed": 1}
    config = Config.model_validate(
        {
            "data": defaults | changed,
            "model": model or {},
            "training": training or Config().training.model_dump(),
            "evaluation": {"repetitions": 200} | (evaluation or {}),
        }
    )
    folder.mkdir(parents=True, exist_ok=True)
    (folder / MANIFEST).write_text(json.dumps(data.prepare(config, folder)))
    return config


class Regression(nn.Module):
    """Softmax regression on the last row and on the returns as the simulated market's signal weighs them."""

    stretch = 1

    def __init__(self, config):
        super().__init__()
        self.config = config
        scalers = [config.scalers[coin] for coin in config.coins]
        self.mean, self.std = (
            torch.tensor([each[name] for each in scalers], dtype=torch.float32) for name in ("mean", "std")
        )
        lags = np.arange(1, config.lookback - DELAY)
        weights = np.zeros(config.lookback)
        weights[config.lookback - DELAY - lags] = DECAY**lags * np.sin(2 * np.pi * lags / PERIOD)
        self.filter = torch.tensor(weights, dtype=torch.float32)
        self.linear = nn.Linear(len(config.features) + 4, 3)

    def seen(self, windows, coins):
        raw = windows * self.std[coins][:, None] + self.mean[coins][:, None]
        volatility = raw[:, -1, self.config.features.index("volatility_20")]
        pull = raw[:, :, self.config.features.index("log_return_1")] @ self.filter / volatility
        return torch.cat([torch.stack([pull, pull.abs(), pull.tanh(), volatility.log()], 1), windows[:, -1]], 1)

    def forward(self, windows, coins):
        return self.linear(self.seen(windows, coins))[:, None]


def fitted(config, folder, labels=lambda labels: labels, only=None):
    """{member: model}, each fitted to what `labels` makes of its training labels; of one member, or of all."""
    models = {}
    for name, member in members(config, folder).items():
        if only not in (None, name):
            continue
        coins = [data.load(folder, symbol) for symbol in member.symbols]
        model = Regression(description(config, coins, member.fold))
        source = pooled(coins, member.fold, "train")
        batch = source.batch(torch.arange(source.size))
        rows = model.seen(batch["windows"], batch["coins"]).numpy()
        mean, std = rows.mean(0), rows.std(0) + 1e-6
        found = LogisticRegression(max_iter=1000, C=0.03).fit(
            (rows - mean) / std, labels(batch["labels"][:, 0].numpy())
        )
        weights = found.coef_ / std
        model.linear.weight.data = torch.tensor(weights, dtype=torch.float32)
        model.linear.bias.data = torch.tensor(found.intercept_ - weights @ mean, dtype=torch.float32)
        models[name] = model
    return models


@contextlib.contextmanager
def without_trees():
    """Let the training shares stand for gradient boosting, half of an evaluation's time, where it is not the matter."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(baselines, "_gradient_boosting", lambda rows, labels, seed: DummyClassifier().fit(rows, labels))
        yield


@torch.no_grad()
def map_items(source, function, batch_size):
    """Map as the engine does, in a single process."""
    chunks = [function(source.batch(items)) for items in torch.arange(source.size).split(batch_size)]
    return {name: torch.cat([chunk[name] for chunk in chunks]) for name in chunks[0]}
