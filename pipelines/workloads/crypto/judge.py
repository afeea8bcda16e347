"""Whether a classifier of the next move knows anything: its figures, what it must beat, and a verdict with reasons.

Labels and columns of probabilities are 0 SHORT, 1 NO_TRADE, 2 LONG; the predicted class is the likeliest one. A figure
that does not exist for the rows given is None, never nan.
"""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from pipelines.workloads.crypto.labels import CLASSES, LONG, NO_TRADE, SHORT

NUM_CLASSES = len(CLASSES)
Z95 = 1.959963984540054  # two-sided 95 % of the normal distribution
BINS = 10  # of confidence, equally wide
MIN_BLOCKS = 10  # a bootstrap of fewer blocks has no interval worth the name
RESAMPLES_AT_ONCE = 100  # bounds the bootstrap's memory

SKILL, NO_SKILL, LEAK = "skill", "no skill shown", "leak suspected"
# Too good to be true of moves some candles ahead. Models of six coins that others shipped for 45 minutes ahead scored a
# balanced accuracy of 0.33 to 0.41 (a guess: 1/3) and had the sign right in 48 to 53 % of cases. A future that leaked
# into the features is what takes most of the uncertainty away.
LEAK_BALANCED_ACCURACY = 0.8  # at or above
LEAK_LOG_LOSS = 0.4  # at or below this share of the prior's log loss
LEAK_HIT_RATE = 0.8  # lower end of the interval of the directional hit rate, at or above,
LEAK_HIT_SHARE = 0.5  # if it covers this share of the moves: of the few that a model is surest of many may be right
LEAK_ROWS = 30  # fewer say nothing

TAIL = 0.15  # share of the training rows, the latest, that stops the boosting
TAIL_ROWS = 1000  # with fewer training rows it runs a fixed, small number of rounds instead
TEMPERATURES = (0.05, 20.0)  # bounds of the fit, reached where labels are separable or the logits worth nothing


def class_shares(labels: np.ndarray) -> np.ndarray:
    """(3,) shares of the classes, one imagined row added to each.

    A class that training happens to lack keeps a small share: else the prior's log loss is unbounded and beaten by all.
    """
    counts = np.bincount(np.asarray(labels, dtype=np.int64), minlength=NUM_CLASSES) + 1.0
    return counts / counts.sum()


def figures(probabilities: np.ndarray, labels: np.ndarray, prior: np.ndarray) -> dict[str, Any]:
    """All figures of probabilities (N, 3) for labels (N,), beside those of `prior`, the shares in training.

    The prior is (3,), or (N, 3) where rows differ in what was training before them.

    Log losses are in nats, probabilities kept 2.2e-16 away from 0 and 1. That of the direction is about SHORT or LONG
    where the price moved, by what the model gave to these two (None where it never moved). The Brier score is the sum
    over classes, 0 to 2 (Brier 1950); the calibration error is that of the predicted class (Guo et al. 2017).
    ValueError for rows that are no probabilities, labels other than 0, 1, 2, and no rows.
    """
    probabilities, labels = _checked(probabilities, labels)
    priors = _prior_rows(prior, len(labels))
    moved = labels != NO_TRADE
    error, bins = _calibration(probabilities, labels)
    return {
        **table_figures(confusion(probabilities.argmax(axis=1), labels)),
        "log_loss": float(_log_losses(probabilities, labels).mean()),
        "prior_log_loss": float(_log_losses(priors, labels).mean()),
        "direction_log_loss": float(_direction_losses(probabilities, labels)[moved].mean()) if moved.any() else None,
        "prior_direction_log_loss": float(_direction_losses(priors, labels)[moved].mean()) if moved.any() else None,
        "brier": float(((probabilities - np.eye(NUM_CLASSES)[labels]) ** 2).sum(axis=1).mean()),
        "calibration_error": error,
        "reliability": bins,
    }


def confusion(predicted: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """(3, 3) counts, a row per label, a column per prediction."""
    pairs = np.bincount(np.asarray(labels) * NUM_CLASSES + predicted, minlength=NUM_CLASSES**2)
    return pairs.reshape(NUM_CLASSES, NUM_CLASSES)


def table_figures(table: np.ndarray) -> dict[str, Any]:
    """The figures that a confusion matrix (3, 3) holds.

    Balanced accuracy is the mean recall of the classes that occur, macro-F1 the mean over all three (0 for one that
    neither occurs nor is predicted), MCC that of Gorodkin 2004, 0 for constant predictions. A single class among the
    labels leaves nothing to tell apart: balanced accuracy and MCC are None. The directional hit rate is taken where the
    model traded and the price moved (neither is NO_TRADE); its Wilson interval takes rows for independent, so with
    labels that overlap it is too narrow.
    """
    table = np.asarray(table, dtype=np.int64)
    total, actual, predicted, right = table.sum(), table.sum(axis=1), table.sum(axis=0), table.diagonal()
    present = actual > 0
    hits = int(right[SHORT] + right[LONG])
    moved = int(hits + table[SHORT, LONG] + table[LONG, SHORT])
    return {
        "n": int(total),
        "confusion": table.tolist(),
        "accuracy": float(right.sum() / total),
        "majority_accuracy": float(actual.max() / total),
        "balanced_accuracy": float((right[present] / actual[present]).mean()) if present.sum() > 1 else None,
        "macro_f1": float(_macro_f1(right, predicted, actual)),
        "mcc": _mcc(table) if present.sum() > 1 else None,
        "classes": [
            {
                "class": name,
                "labels": int(actual[k]),
                "predictions": int(predicted[k]),
                "precision": float(right[k] / predicted[k]) if predicted[k] else None,
                "recall": float(right[k] / actual[k]) if actual[k] else None,
            }
            for k, name in enumerate(CLASSES)
        ],
        "never_predicted": [name for name, count in zip(CLASSES, predicted, strict=True) if not count],
        "trades": int(total - predicted[NO_TRADE]),
        "directional_hit_rate": hits / moved if moved else None,
        "directional_hit_rate_interval": wilson(hits, moved),
        "directional_n": moved,
    }


def wilson(successes: int, trials: int) -> list[float] | None:
    """95 % score interval of a share (Wilson 1927); None without trials."""
    if not trials:
        return None
    share, z2 = successes / trials, Z95**2
    centre = (share + z2 / (2 * trials)) / (1 + z2 / trials)
    half = Z95 / (1 + z2 / trials) * math.sqrt(share * (1 - share) / trials + z2 / (4 * trials**2))
    return [max(0.0, centre - half), min(1.0, centre + half)]


def block_bootstrap(
    probabilities: np.ndarray,
    other: np.ndarray,
    labels: np.ndarray,
    *,
    horizon: int,
    time: np.ndarray | None = None,
    block: int | None = None,
    resamples: int = 1000,
    confidence: float = 0.95,
    seed: int = 0,
) -> dict[str, Any]:
    """How much better `probabilities` (N, 3) are than `other` (N, 3), with intervals of the paired differences.

    Moving-block bootstrap (Künsch 1989): labels `horizon` candles long overlap, so blocks of at least that many steps
    of time are drawn. Rows are in order of time, one a step, unless `time` (N,) is given: rows of equal time, say of
    several coins, then stay together. `block` is max(horizon, N^(1/3)) by default. Returns {"log_loss": {"gain", "low",
    "high"}, "direction_log_loss" and "macro_f1": likewise, "block", "steps"}, gains above 0 where the model is better,
    low and high None below ten blocks of steps. ValueError for a block shorter than the horizon.
    """
    sums = _paired_sums(*_checked(probabilities, labels), _checked(other, labels)[0])
    if time is not None:
        _, step = np.unique(np.asarray(time), return_inverse=True)
        grouped = np.zeros((step.max() + 1, sums.shape[1]))
        np.add.at(grouped, step, sums)
        sums = grouped
    steps = len(sums)
    block = max(horizon, math.ceil(steps ** (1 / 3))) if block is None else block
    if block < horizon:
        raise ValueError(f"a block of {block} is shorter than the labels' horizon {horizon}; give at least the horizon")
    gains = {name: float(value) for name, value in _gains(sums.sum(axis=0)).items()}
    result: dict[str, Any] = {"block": block, "steps": steps}
    if steps < MIN_BLOCKS * block:
        return result | {name: {"gain": gain, "low": None, "high": None} for name, gain in gains.items()}
    cumulative = np.concatenate([np.zeros((1, sums.shape[1])), sums.cumsum(axis=0)])
    blocks = cumulative[block:] - cumulative[:-block]  # a block's sums, by its first step
    generator = np.random.default_rng(seed)
    drawn: dict[str, list[np.ndarray]] = {name: [] for name in gains}
    for begin in range(0, resamples, RESAMPLES_AT_ONCE):
        num = min(RESAMPLES_AT_ONCE, resamples - begin)
        starts = generator.integers(0, len(blocks), (num, math.ceil(steps / block)))
        for name, values in _gains(blocks[starts].sum(axis=1)).items():
            drawn[name].append(values)
    for name, gain in gains.items():
        low, high = np.quantile(np.concatenate(drawn[name]), ((1 - confidence) / 2, (1 + confidence) / 2))
        result[name] = {"gain": gain, "low": float(low), "high": float(high)}
    return result


def baselines(
    train_features: np.ndarray,
    train_labels: np.ndarray,
    train_last_returns: np.ndarray,
    test_features: np.ndarray,
    test_last_returns: np.ndarray,
    *,
    seed: int = 0,
) -> dict[str, np.ndarray]:
    """Probabilities (N, 3) of the simple predictors that a model must beat, fitted on the M training rows alone.

    Features are those of each window's last row, (M, F) and (N, F), finite; last returns (M,) and (N,) the move of the
    last candle; training rows in order of time.
    majority: the prior, always. stratified guess: a class drawn from the prior, half the weight on it, so that macro-F1
    is held to 1/3, not to the 0.2 of a constant. sign of last return: the training shares given that sign. logistic
    regression, gradient boosting: scikit-learn's, the latter stopped by the last 15 % of the training rows.
    A class that training lacks has the prior's small share. ValueError for features that are not finite.
    """
    from threadpoolctl import threadpool_limits

    train_labels = np.asarray(train_labels, dtype=np.int64)
    for name, array in (("train_features", train_features), ("test_features", test_features)):
        if not np.isfinite(array).all():
            raise ValueError(f"{name} must be finite")
    prior = class_shares(train_labels)
    majority = _prior_rows(prior, len(test_features))
    drawn = np.random.default_rng(seed).choice(NUM_CLASSES, len(majority), p=prior)
    with threadpool_limits(1):  # these fits are small: threads that wait for each other cost more than they save
        fitted = {
            "logistic regression": _logistic_regression(train_features, train_labels, test_features, prior),
            "gradient boosting": _gradient_boosting(train_features, train_labels, test_features, prior, seed),
        }
    return {
        "majority": majority,
        "stratified guess": (np.eye(NUM_CLASSES)[drawn] + majority) / 2,
        "sign of last return": _by_sign(train_last_returns, train_labels, test_last_returns, prior),
        **fitted,
    }


def verdict(
    probabilities: np.ndarray,
    labels: np.ndarray,
    prior: np.ndarray,
    others: Mapping[str, np.ndarray],
    *,
    horizon: int,
    time: np.ndarray | None = None,
    resamples: int = 1000,
    confidence: float = 0.95,
    seed: int = 0,
) -> dict[str, Any]:
    """Judge a model beside its `baselines`: {"verdict", "reasons", "comparisons"}.

    "leak suspected": the model or a baseline is too good to be true (the LEAK_ bounds of this file). Else "skill": both
    log loss and macro-F1 are better than those of the prior and of the baseline that is best at each, and the log loss
    of the direction is better than the prior's, every interval of the difference above 0. Volatility alone tells when
    prices move; who does not know where to has nothing to trade on. Else "no skill shown", which is what little data
    shows too. Without skill the chance of "skill" is at most (1 - confidence) / 2: of many coins each needs a
    confidence nearer to 1.
    `prior`: as in `figures`; `horizon`, `time`, `resamples`, `confidence`, `seed`: as in `block_bootstrap`. ValueError
    without a baseline beside the prior.
    """
    others = {name: rows for name, rows in others.items() if name != "majority"}
    if not others:
        raise ValueError("a verdict needs a baseline beside the prior; give those of `baselines`")
    priors = _prior_rows(prior, len(labels))
    scores = {name: figures(rows, labels, prior) for name, rows in others.items()}
    own = figures(probabilities, labels, prior)
    reasons = [reason for name, found in {"the model": own, **scores}.items() for reason in _leaks(name, found)]
    rivals = {
        "log_loss": min(scores, key=lambda name: scores[name]["log_loss"]),
        "macro_f1": max(scores, key=lambda name: scores[name]["macro_f1"]),
    }
    tested = {
        name: block_bootstrap(
            probabilities,
            priors if name == "prior" else others[name],
            labels,
            horizon=horizon,
            time=time,
            resamples=resamples,
            confidence=confidence,
            seed=seed,
        )
        for name in ("prior", *dict.fromkeys(rivals.values()))
    }
    comparisons = [
        {"figure": metric, "against": name, **tested[name][metric]}
        for metric, rival in rivals.items()
        for name in ("prior", rival)
    ]
    direction = "direction_log_loss"
    comparisons.append({"figure": direction, "against": "prior", **tested["prior"][direction]})
    if reasons:
        return {"verdict": LEAK, "reasons": reasons, "comparisons": comparisons}
    reasons = [_shortfall(row) for row in comparisons if row["low"] is None or row["low"] <= 0]
    if reasons:
        return {"verdict": NO_SKILL, "reasons": reasons, "comparisons": comparisons}
    reasons = [
        f"{row['figure']} is better than that of {row['against']} by {row['gain']:.4f} "
        f"({100 * confidence:.4g} %: {row['low']:.4f} to {row['high']:.4f})"
        for row in comparisons
    ]
    return {"verdict": SKILL, "reasons": reasons, "comparisons": comparisons}


def fit_temperature(logits: np.ndarray, labels: np.ndarray) -> float:
    """The temperature T, 0.05 to 20, whose softmax(logits / T) has the least log loss (Guo et al. 2017).

    Logits (N, 3) and labels (N,) of validation rows: fitted on test rows it would flatter the model.
    """
    from scipy.optimize import minimize_scalar

    logits, labels = np.asarray(logits, dtype=np.float64), np.asarray(labels, dtype=np.int64)
    if len(labels) == 0 or logits.shape != (len(labels), NUM_CLASSES) or not np.isfinite(logits).all():
        raise ValueError(f"finite logits (N, 3) and N labels are needed, got {logits.shape} and {labels.shape}")
    rows = np.arange(len(labels))

    def log_loss(log_temperature: float) -> float:
        scaled = logits / math.exp(log_temperature)
        scaled = scaled - scaled.max(axis=1, keepdims=True)
        return float((np.log(np.exp(scaled).sum(axis=1)) - scaled[rows, labels]).mean())

    bounds = [math.log(bound) for bound in TEMPERATURES]
    return math.exp(minimize_scalar(log_loss, bounds=bounds, method="bounded", options={"xatol": 1e-6}).x)


def softmax(logits: np.ndarray, temperature: float = 1.0) -> np.ndarray:
    """(N, 3) logits -> (N, 3) float64 probabilities."""
    scaled = np.asarray(logits, dtype=np.float64) / temperature
    scaled = np.exp(scaled - scaled.max(axis=1, keepdims=True))
    return scaled / scaled.sum(axis=1, keepdims=True)


def _checked(probabilities: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Float64 rows that sum to 1 exactly, which float32 ones do not, and int64 labels."""
    probabilities, labels = np.asarray(probabilities, dtype=np.float64), np.asarray(labels)
    if labels.ndim != 1 or len(labels) == 0 or probabilities.shape != (len(labels), NUM_CLASSES):
        raise ValueError(
            f"probabilities (N, 3) and labels (N,) of at least one row are needed, got {probabilities.shape} "
            f"and {labels.shape}"
        )
    if not np.isin(labels, range(NUM_CLASSES)).all():
        raise ValueError("labels must be 0 SHORT, 1 NO_TRADE or 2 LONG; leave rows of unknown future out")
    sums = probabilities.sum(axis=1)
    if not (probabilities >= 0).all() or not (np.abs(sums - 1) < 1e-3).all():
        raise ValueError("each row of probabilities must be finite, not negative and sum to 1; give softmax(logits)")
    return probabilities / sums[:, None], labels.astype(np.int64)


def _prior_rows(prior: np.ndarray, num: int) -> np.ndarray:
    return np.broadcast_to(np.asarray(prior, dtype=np.float64), (num, NUM_CLASSES)).copy()


def _log_losses(probabilities: np.ndarray, labels: np.ndarray) -> np.ndarray:
    tiny = np.finfo(np.float64).eps
    return -np.log(np.clip(probabilities[np.arange(len(labels)), labels], tiny, 1 - tiny))


def _direction_losses(probabilities: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """(N,) of SHORT against LONG; 0 where the label is neither."""
    tiny = np.finfo(np.float64).eps
    sides = np.clip(probabilities[:, [SHORT, LONG]], tiny, None)
    chosen = np.where(labels == LONG, sides[:, 1], sides[:, 0])
    return np.where(labels == NO_TRADE, 0.0, -np.log(chosen / sides.sum(axis=1)))


def _macro_f1(right: np.ndarray, predicted: np.ndarray, actual: np.ndarray) -> np.ndarray:
    """Counts (..., 3) -> (...); a class without labels and predictions scores 0."""
    return (2 * right / np.maximum(predicted + actual, 1)).mean(axis=-1)


def _mcc(table: np.ndarray) -> float:
    total, right = float(table.sum()), float(table.trace())
    actual, predicted = table.sum(axis=1).astype(np.float64), table.sum(axis=0).astype(np.float64)
    spread = (total**2 - predicted @ predicted) * (total**2 - actual @ actual)
    return float((right * total - actual @ predicted) / math.sqrt(spread)) if spread > 0 else 0.0


def _calibration(probabilities: np.ndarray, labels: np.ndarray) -> tuple[float, list[dict[str, Any]]]:
    """Mean distance of confidence and accuracy, weighted by the rows of each bin, and the bins."""
    confidence, right = probabilities.max(axis=1), probabilities.argmax(axis=1) == labels
    edges = np.linspace(0, 1, BINS + 1)
    member = np.searchsorted(edges[1:-1], confidence)
    counts = np.bincount(member, minlength=BINS)
    confidences, hits = (np.bincount(member, weights=values, minlength=BINS) for values in (confidence, right))
    bins = [
        {
            "from": float(edges[i]),
            "to": float(edges[i + 1]),
            "n": int(counts[i]),
            "confidence": float(confidences[i] / counts[i]) if counts[i] else None,
            "accuracy": float(hits[i] / counts[i]) if counts[i] else None,
        }
        for i in range(BINS)
    ]
    return float(np.abs(confidences - hits).sum() / len(labels)), bins


def _paired_sums(probabilities: np.ndarray, labels: np.ndarray, other: np.ndarray) -> np.ndarray:
    """(N, 18) whose sums over rows give every figure.

    Rows, saved nats, saved nats of the direction, then labels, predictions and hits per class.
    """
    classes = np.eye(NUM_CLASSES)
    actual = classes[labels]
    saved = [losses(other, labels) - losses(probabilities, labels) for losses in (_log_losses, _direction_losses)]
    columns = [np.stack([np.ones(len(labels)), *saved], axis=1), actual]
    for rows in (probabilities, other):
        predicted = classes[rows.argmax(axis=1)]
        columns += [predicted, predicted * actual]
    return np.concatenate(columns, axis=1)


def _gains(sums: np.ndarray) -> dict[str, np.ndarray]:
    """(..., 18) -> {figure: (...)} by how much the model is better."""
    actual, predicted, right, other_predicted, other_right = (sums[..., i : i + 3] for i in range(3, 18, 3))
    moved = actual[..., SHORT] + actual[..., LONG]
    return {
        "log_loss": sums[..., 1] / sums[..., 0],
        "direction_log_loss": sums[..., 2] / np.maximum(moved, 1),
        "macro_f1": _macro_f1(right, predicted, actual) - _macro_f1(other_right, other_predicted, actual),
    }


def _by_sign(
    train_returns: np.ndarray, train_labels: np.ndarray, test_returns: np.ndarray, prior: np.ndarray
) -> np.ndarray:
    train_signs, test_signs = np.sign(train_returns), np.sign(test_returns)
    result = np.empty((len(test_signs), NUM_CLASSES))
    for sign in (-1, 0, 1):
        counts = np.bincount(train_labels[train_signs == sign], minlength=NUM_CLASSES) + prior
        result[test_signs == sign] = counts / counts.sum()
    return result


def _logistic_regression(features: np.ndarray, labels: np.ndarray, test: np.ndarray, prior: np.ndarray) -> np.ndarray:
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    if len(np.unique(labels)) < 2:
        return _prior_rows(prior, len(test))
    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=2000)).fit(features, labels)
    return _three_classes(model, test, prior)


def _gradient_boosting(
    features: np.ndarray, labels: np.ndarray, test: np.ndarray, prior: np.ndarray, seed: int
) -> np.ndarray:
    from sklearn.ensemble import HistGradientBoostingClassifier

    if len(np.unique(labels)) < 2:
        return _prior_rows(prior, len(test))
    settings = {"learning_rate": 0.05, "max_leaf_nodes": 15, "min_samples_leaf": 50, "random_state": seed}
    cut = len(labels) - int(TAIL * len(labels))
    # scikit-learn would stop by rows drawn at random, whose labels overlap with those it trains on.
    if len(labels) >= TAIL_ROWS and np.array_equal(np.unique(labels[:cut]), np.unique(labels)):
        model = HistGradientBoostingClassifier(max_iter=300, early_stopping=True, n_iter_no_change=20, **settings)
        model.fit(features[:cut], labels[:cut], X_val=features[cut:], y_val=labels[cut:])
    else:
        model = HistGradientBoostingClassifier(max_iter=40, early_stopping=False, **settings).fit(features, labels)
    return _three_classes(model, test, prior)


def _three_classes(model: Any, features: np.ndarray, prior: np.ndarray) -> np.ndarray:
    """The model's probabilities, with the prior's share for classes it never saw."""
    result = _prior_rows(prior, len(features))
    seen = model.classes_
    result[:, seen] = model.predict_proba(features) * prior[seen].sum()
    return result


def _leaks(name: str, found: Mapping[str, Any]) -> list[str]:
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
    what = f"{row['figure']} against {row['against']}"
    if row["low"] is None:
        return f"{what}: too few rows for an interval"
    if row["gain"] <= 0:
        return f"{what}: not better ({row['gain']:+.4f})"
    return f"{what}: better by {row['gain']:.4f}, but 0 is within its interval ({row['low']:.4f} to {row['high']:.4f})"
