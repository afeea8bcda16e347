"""Untrained models: of the configured kind, described by their data, from scratch or from the base of another run."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from common.disk.files import sha256
from common.errors import UserError, as_user_error
from models import io
from models.market.cnn_lstm import CNNLSTM, CNNLSTMConfig
from models.market.inputs import CLASSES
from models.market.pooled_experts import PooledExperts, PooledExpertsConfig
from models.market.signal_model import SIMULATED, SignalConfig, SignalModel
from pipelines.workloads.crypto.config import Config
from pipelines.workloads.crypto.data import Coin
from pipelines.workloads.crypto.splits import PARTS

SIZES = ("width", "rounds", "nodes")  # taken from the base


class Base(NamedTuple):
    """A trained model, and the SHA-256 of its weights."""

    model: PooledExperts
    sha256: str


def untrained(config: Config, coins: Sequence[Coin], fold: int, base: Base | None = None) -> SignalModel:
    """Return an untrained model of the configured kind; with a base, of its sizes and with its network."""
    known = description(config, coins, fold)
    size: dict[str, float] = {"dropout": config.model.dropout}
    if config.model.width:
        size["width"] = config.model.width
    if base:
        check_base(base.model.config, known, str(config.model.base))
        size |= {name: getattr(base.model.config, name) for name in SIZES}
        known.about["base_sha256"] = base.sha256
    if config.model.chosen == "pooled_experts":
        experts = PooledExperts(PooledExpertsConfig(**vars(known) | size))
        if base:
            experts.network.load_state_dict(base.model.network.state_dict())
        return experts
    return CNNLSTM(CNNLSTMConfig(**vars(known) | size))


def description(config: Config, coins: Sequence[Coin], fold: int) -> SignalConfig:
    """Describe the inputs of a model of these coins and, for readers, their origin."""
    first = coins[0]
    return SignalConfig(
        features=first.names,
        lookback=first.lookback,
        coins=tuple(coin.candles.symbol for coin in coins),
        scalers={coin.candles.symbol: coin.scalers[fold].plain() for coin in coins},
        timeframe_ms=first.candles.timeframe_ms,
        fill=config.data.fill,
        about={
            "classes": list(CLASSES),
            "market": SIMULATED if config.data.origin == "simulate" else config.data.origin,
            "timeframe": first.facts["timeframe"],
            "feature_set": first.facts.get("feature_set", config.data.features),
            "label": dict(first.facts["label"]),
            "longest_still": {coin.candles.symbol: coin.facts["checks"].get("longest_still", 0) for coin in coins},
            "data_sha256": {coin.candles.symbol: coin.facts["hash"] for coin in coins},
            "windows": {
                coin.candles.symbol: {
                    part: {
                        "windows": len(rows),
                        "first_ms": int(coin.candles.time[rows[0]]),
                        "last_ms": int(coin.candles.time[rows[-1]]),
                    }
                    for part, rows in coin.folds[fold].items()
                    if part in PARTS
                }
                for coin in coins
            },
        },
    )


def load_base(config: Config, member: str) -> Base | None:
    """Load `model.base`, if given: a model's folder, a run of one model, or `member` of a run of many.

    Raises UserError if there is no model of pooled experts.
    """
    if config.model.base is None:
        return None
    run = Path(config.model.base)
    folders = (each / "model" for each in (run / "members" / member, run))
    # Not the refit: it has seen its validation part, within which the judging of coins here may begin.
    folder = next((each / name for each in folders for name in ("judged", "best") if (each / name).is_dir()), run)
    command = f"accelerate launch pipelines/train.py --workload crypto --name {run.name} model.pooled=true"
    such = "give a run of one model for several coins, which this command trains"
    with as_user_error(f"model.base={run}: ", f"; {such}: {command}"):
        model = io.load(folder)
    if not isinstance(model, PooledExperts):
        raise UserError(f"model.base={run}: it must be of pooled_experts (found {model.family})")
    return Base(model, sha256(folder / io.WEIGHTS))


def check_base(base: SignalConfig, own: SignalConfig, name: str) -> None:
    """Raise UserError unless a base has a model's inputs and labels, and saw only candles before those that judge it.

    `own` describes the model. The base's training must end before the model's validation begins, and its validation
    before the model's test, over all coins, as these move together.
    """
    for key, theirs, ours in (
        ("features", base.features, own.features),
        ("lookback", base.lookback, own.lookback),
        ("timeframe", base.timeframe_ms, own.timeframe_ms),
        ("label", base.about.get("label"), own.about["label"]),
        ("file of features", base.about.get("feature_set"), own.about["feature_set"]),
    ):
        if theirs != ours:
            raise UserError(f"model.base={name} was trained with another {key}: {theirs}, here {ours}")
    step, horizon = base.timeframe_ms, own.about["label"]["horizon"]
    for theirs, ours in (("train", "validation"), ("validation", "test")):
        last = max(_times(base, theirs, "last_ms")) + horizon * step
        first = min(_times(own, ours, "first_ms")) - (base.lookback - 1) * step
        if last >= first:
            saw = f"model.base={name} saw candles of the {ours} part here in its {theirs} part"
            when = f"(up to {np.datetime64(last, 'ms')}, {np.datetime64(first, 'ms')} begins {ours})"
            instead = "train it on candles that end earlier, or on these data with the same data section"
            raise UserError(f"{saw} {when}; {instead}")


def _times(known: SignalConfig, part: str, key: str) -> list[int]:
    return [parts[part][key] for parts in known.about["windows"].values()]
