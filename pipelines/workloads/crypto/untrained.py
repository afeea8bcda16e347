"""Bases: trained models that models of other runs go on from, one of all coins for each coin's own, say."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from common.disk.files import sha256
from common.errors import UserError
from models import io
from models.market.pooled_experts import PooledExperts
from models.market.signal_model import SignalConfig

if TYPE_CHECKING:
    from pipelines.workloads.crypto import Config

SIZES = ("width", "rounds", "nodes")  # which a model has from its base
BEST = "model/best"


@dataclass(frozen=True)
class Base:
    """A trained model, and the SHA-256 of its weights."""

    model: PooledExperts
    sha256: str


def load(config: "Config", member: str) -> Base | None:
    """Return what `model.base` names, if anything: a model, a run of one, or the `member` of a run of many.

    Raises UserError where there is no model of pooled experts.
    """
    if config.model.base is None:
        return None
    run = Path(config.model.base)
    folder = next((each for each in (run / "members" / member / BEST, run / BEST) if each.is_dir()), run)
    try:
        model = io.load(folder)
    except ValueError as error:
        raise UserError(
            f"model.base={run}: {error}; give a run of one model for several coins, which this command trains: "
            f"accelerate launch pipelines/train.py --workload crypto --name {run.name} model.pooled=true"
        ) from error
    if not isinstance(model, PooledExperts):
        raise UserError(f"model.base={run}: it must be of pooled_experts (found {model.family})")
    return Base(model, sha256(folder / io.WEIGHTS))


def check(base: SignalConfig, own: Mapping[str, Any], name: str) -> None:
    """Raise UserError unless a base has learnt what a model is to learn, from earlier candles than judge the model.

    `own` are the fields of the model's SignalConfig. What a base was trained on must end before the model's validation
    begins, and what it was validated on before the model's test, of all coins: they move together.
    """
    for key, theirs, ours in (
        ("features", tuple(base.features), tuple(own["features"])),
        ("lookback", base.lookback, own["lookback"]),
        ("timeframe", base.timeframe_ms, own["timeframe_ms"]),
        ("label", base.about.get("label"), own["about"]["label"]),
    ):
        if theirs != ours:
            raise UserError(f"model.base={name} was trained with another {key}: {theirs}, here {ours}")
    step, horizon = base.timeframe_ms, own["about"]["label"]["horizon"]
    for theirs, ours in (("train", "validation"), ("validation", "test")):
        last = max(_times(base.about, theirs, "last_ms")) + horizon * step
        first = min(_times(own["about"], ours, "first_ms")) - (base.lookback - 1) * step
        if last >= first:
            raise UserError(
                f"model.base={name} saw candles of the {ours} part here in its {theirs} part "
                f"(up to {np.datetime64(last, 'ms')}, {np.datetime64(first, 'ms')} begins {ours}); train it on candles "
                "that end earlier, or on these data with the same data section"
            )


def _times(about: Mapping[str, Any], part: str, key: str) -> list[int]:
    return [parts[part][key] for parts in about["windows"].values()]
