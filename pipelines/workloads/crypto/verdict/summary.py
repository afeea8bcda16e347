"""Summary of all coins: their ranking by evidence, the gain over all of them together, and their predictions."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from pipelines.workloads.crypto import data
from pipelines.workloads.crypto.folds import CoinFold, joined
from pipelines.workloads.crypto.labels import CLASSES
from pipelines.workloads.crypto.verdict.judge import GRADES, LEAK, LEVEL, SKILL
from pipelines.workloads.crypto.verdict.significance import block_bootstrap

if TYPE_CHECKING:
    from pipelines.workloads.crypto import Config

ERROR = 0.05  # of the intervals of all coins together
METRICS = (
    "n", "macro_f1", "log_loss", "prior_log_loss", "direction_log_loss", "prior_direction_log_loss", "accuracy",
    "never_predicted",
)  # fmt: skip


def confidence_of(num_coins: int) -> float:
    """Return the confidence of the intervals of each coin, such that all of them together err with ERROR."""
    return 1 - ERROR / num_coins


def evidence(page: Mapping[str, Any]) -> tuple[bool, bool, float]:
    """Return a sort key: the surest gain on the prior comes first, and a suspected leak, being no evidence, last."""
    gain = page["comparisons"][0]
    unsure = gain["low"] is None
    return page["verdict"] == LEAK, unsure, -gain["gain" if unsure else "low"]


def summarise(
    config: "Config",
    ranking: Sequence[Mapping[str, Any]],
    folds: Mapping[str, Sequence[CoinFold]],
    missing: Mapping[str, str],
) -> dict[str, Any]:
    """Return the summary of the coins' pages in order of their evidence; `missing` says why members have no model."""
    verdicts = [page["verdict"] for page in ranking]
    return {
        "coins": len(ranking),
        "skill": sum(verdict.startswith(SKILL) for verdict in verdicts),
        "grades": {grade: sum(page["grades"][grade] for page in ranking) for grade in GRADES},
        "leaks_suspected": verdicts.count(LEAK),
        "interval_confidence": confidence_of(len(ranking)),
        "chance_of_any_false_skill": LEVEL,
        "simulated": data.source_of(config.data) == "simulate",
        "mean_net_return": float(np.mean([page["backtest"]["net_return"] for page in ranking])),
        "mean_buy_and_hold": float(np.mean([page["backtest"]["buy_and_hold_return"] for page in ranking])),
        "n": sum(len(fold.test.ends) for each in folds.values() for fold in each),
        "failed": dict(missing),
        "together": _together(config, folds),
        **{page["symbol"]: _coin_entry(page) for page in ranking},
    }


def _together(config: "Config", folds: Mapping[str, Sequence[CoinFold]]) -> dict[str, Any] | None:
    """Return the gain on the prior over all coins together; what happens to all of them at one time counts once."""
    if len(folds) < 2:
        return None
    parts = [joined(each) for each in folds.values()]
    probabilities, labels, priors = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    found = block_bootstrap(
        probabilities,
        priors,
        labels,
        horizon=config.data.horizon,
        time=np.concatenate([fold.test.times for each in folds.values() for fold in each]),
        resamples=config.evaluation.repetitions,
        seed=config.evaluation.seed,
    )
    return {
        metric: {"gain": found[metric]["gain"], "interval_95": _interval(found[metric])}
        for metric in ("log_loss", "direction_log_loss", "macro_f1")
    }


def _interval(row: Mapping[str, Any]) -> list[float] | None:
    return None if row["low"] is None else [row["low"], row["high"]]


def _coin_entry(page: Mapping[str, Any]) -> dict[str, Any]:
    """Return the coin's entry in the summary; temperature and threshold are those of its newest model."""
    metrics, traded, newest = page["figures"], page["backtest"], page["folds"][-1]
    return {
        "verdict": page["verdict"],
        "grades": page["grades"],
        "reasons": page["reasons"],
        **{name: metrics[name] for name in METRICS},
        "majority": metrics["majority_accuracy"],
        "temperature": newest["temperature"],
        "log_loss_with_temperature": page["tempered"]["log_loss"],
        "threshold": newest["threshold"],
        "net_return": traded["net_return"],
        "buy_and_hold": traded["buy_and_hold_return"],
        "random_trades_p_value": page["random_trades"]["p_value"],
        "folds": [fold["fold"] for fold in page["folds"]],
    }


def table_row(page: Mapping[str, Any]) -> dict[str, Any]:
    """Return the coin's row in the ranking."""
    metrics, traded = page["figures"], page["backtest"]
    gain, direction = page["comparisons"][0], page["comparisons"][-1]
    return {
        "coin": page["symbol"],
        "verdict": page["verdict"],
        "nats gained": gain["gain"],
        "interval": _interval(gain),
        "of direction": direction["gain"],
        "macro-F1": metrics["macro_f1"],
        "accuracy": metrics["accuracy"],
        "majority": metrics["majority_accuracy"],
        "sign right": metrics["directional_hit_rate"],
        "net return": traded["net_return"],
        "buy-and-hold": traded["buy_and_hold_return"],
    }


def example_columns(folds: Mapping[str, Sequence[CoinFold]]) -> dict[str, list]:
    """Return the columns of the per-window file: coin, time, fold, label and the probability of each class."""
    columns: dict[str, list] = {name: [] for name in ("symbol", "time_ms", "fold", "label", *CLASSES)}
    for symbol, each in folds.items():
        for fold in each:
            num = len(fold.test.ends)
            columns["symbol"] += [symbol] * num
            columns["time_ms"] += fold.test.times.tolist()
            columns["fold"] += [fold.fold + 1] * num
            columns["label"] += fold.test.labels.tolist()
            for number, name in enumerate(CLASSES):
                columns[name] += fold.test.probabilities[:, number].tolist()
    return columns
