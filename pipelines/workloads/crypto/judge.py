"""Verdict on a classifier of the next move, with reasons: skill, no skill shown, or a suspected leak."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from pipelines.workloads.crypto.bootstrap import block_bootstrap
from pipelines.workloads.crypto.classification import metrics, prior_rows
from pipelines.workloads.crypto.labels import LONG, SHORT

SKILL, NO_SKILL, LEAK = "skill", "no skill shown", "leak suspected"
# Too good to be true for moves a few candles ahead. Published models of six coins that predicted 45 minutes ahead had a
# balanced accuracy of 0.33 to 0.41 (guessing: 1/3) and the right sign in 48 to 53 % of cases. Only a future that leaked
# into the features removes most of the uncertainty.
LEAK_BALANCED_ACCURACY = 0.8  # at or above
LEAK_LOG_LOSS = 0.4  # at or below this share of the prior's log loss
LEAK_HIT_RATE = 0.8  # lower end of the interval of the directional hit rate, at or above,
LEAK_HIT_SHARE = 0.5  # if it covers this share of the moves: a model may be right about the few it is surest of
LEAK_ROWS = 30  # fewer rows prove nothing


def verdict(
    probabilities: np.ndarray,
    labels: np.ndarray,
    prior: np.ndarray,
    baselines: Mapping[str, np.ndarray],
    *,
    horizon: int,
    time: np.ndarray | None = None,
    resamples: int = 1000,
    confidence: float = 0.95,
    seed: int = 0,
) -> dict[str, Any]:
    """Compare a model with the baselines (N, 3) and return {"verdict", "reasons", "comparisons"}.

    "leak suspected": the model or a baseline is too good to be true, by the LEAK_ bounds of this module. Otherwise
    "skill" if every interval of these differences lies above 0: log loss and macro-F1 against the prior and against the
    baseline that is best at each, and the log loss of the direction against the prior. The direction is asked because
    volatility alone predicts when prices move, but only a model that knows the direction can trade on it. Otherwise "no
    skill shown", which is also the verdict on too few data. A model without skill is called "skill" with a probability
    of at most (1 - confidence) / 2, so each of many coins needs a confidence closer to 1.
    `prior` is as in `classification.metrics`; `horizon`, `time`, `resamples`, `confidence` and `seed` are as in
    `block_bootstrap`. Raises ValueError if there is no baseline beside the prior ("majority").
    """
    baselines = {name: rows for name, rows in baselines.items() if name != "majority"}
    if not baselines:
        raise ValueError("a verdict needs a baseline beside the prior; give those of `fit_and_predict`")
    own = metrics(probabilities, labels, prior)
    theirs = {name: metrics(rows, labels, prior) for name, rows in baselines.items()}
    rivals = {
        "log_loss": min(theirs, key=lambda name: theirs[name]["log_loss"]),
        "macro_f1": max(theirs, key=lambda name: theirs[name]["macro_f1"]),
    }
    predictors = {"prior": prior_rows(prior, len(labels)), **baselines}
    sampling: dict[str, Any] = {"time": time, "resamples": resamples, "confidence": confidence, "seed": seed}
    differences = {
        name: block_bootstrap(probabilities, predictors[name], labels, horizon=horizon, **sampling)
        for name in ("prior", *dict.fromkeys(rivals.values()))
    }
    pairs = [(metric, name) for metric, rival in rivals.items() for name in ("prior", rival)]
    pairs.append(("direction_log_loss", "prior"))
    comparisons = [{"figure": metric, "against": name, **differences[name][metric]} for metric, name in pairs]

    leaks = [reason for name, found in {"the model": own, **theirs}.items() for reason in _leaks(name, found)]
    if leaks:
        return {"verdict": LEAK, "reasons": leaks, "comparisons": comparisons}
    shortfalls = [_shortfall(row) for row in comparisons if row["low"] is None or row["low"] <= 0]
    if shortfalls:
        return {"verdict": NO_SKILL, "reasons": shortfalls, "comparisons": comparisons}
    return {"verdict": SKILL, "reasons": [_lead(row, confidence) for row in comparisons], "comparisons": comparisons}


def _leaks(name: str, found: Mapping[str, Any]) -> list[str]:
    """Return in words each LEAK_ bound that a predictor's metrics exceed."""
    if found["n"] < LEAK_ROWS or found["balanced_accuracy"] is None:
        return []
    balanced, interval = found["balanced_accuracy"], found["directional_hit_rate_interval"]
    share = found["log_loss"] / found["prior_log_loss"]
    reasons = []
    if balanced >= LEAK_BALANCED_ACCURACY:
        reasons.append(f"balanced accuracy of {name} is {balanced:.3f}, at or above {LEAK_BALANCED_ACCURACY}")
    if share <= LEAK_LOG_LOSS:
        reasons.append(f"log loss of {name} is {share:.3f} of the prior's, at or below {LEAK_LOG_LOSS}")
    moves = sum(found["classes"][k]["labels"] for k in (SHORT, LONG))
    enough = max(LEAK_ROWS, LEAK_HIT_SHARE * moves)
    if interval and interval[0] >= LEAK_HIT_RATE and found["directional_n"] >= enough:
        reasons.append(f"{name} has the sign right in {found['directional_hit_rate']:.1%} of {found['directional_n']}")
    return reasons


def _shortfall(row: Mapping[str, Any]) -> str:
    compared = f"{row['figure']} against {row['against']}"
    if row["low"] is None:
        return f"{compared}: too few rows for an interval"
    if row["gain"] <= 0:
        return f"{compared}: not better ({row['gain']:+.4f})"
    interval = f"{row['low']:.4f} to {row['high']:.4f}"
    return f"{compared}: better by {row['gain']:.4f}, but 0 is within its interval ({interval})"


def _lead(row: Mapping[str, Any], confidence: float) -> str:
    return (
        f"{row['figure']} is better than that of {row['against']} by {row['gain']:.4f} "
        f"({100 * confidence:.4g} %: {row['low']:.4f} to {row['high']:.4f})"
    )
