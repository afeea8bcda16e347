"""Simple predictors that a model must beat, fitted on the training rows alone."""

from collections.abc import Mapping, Sequence

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from pipelines.workloads.crypto.verdict.classification import NUM_CLASSES, class_shares, prior_rows

PENALTY = 0.02  # inverse strength; with 100 inputs no weaker one does better
SPANS = (0.25, 1, 3, 7)  # days of a rolling prior
IMAGINED = 10  # labels at the training shares that it begins with
STOPPING_SHARE = 0.15  # of the training rows, the latest, by which boosting stops
STOPPING_ROWS = 1000  # with fewer training rows boosting runs a small, fixed number of rounds instead


def fit_and_predict(
    train: Mapping[str, np.ndarray],
    train_labels: np.ndarray,
    train_last_returns: np.ndarray,
    test: Mapping[str, np.ndarray],
    test_last_returns: np.ndarray,
    *,
    linear: Sequence[str] = (),
    seed: int = 0,
) -> dict[str, np.ndarray]:
    """Return probabilities (N, 3) of each baseline on the test rows, by its name.

    `train` and `test` map the name of each set of inputs, "last row" and "window", say, to its finite columns (M, P)
    and (N, P); for those in `linear` the logistic regression alone is fitted and bears their name. The last returns
    (M,) and (N,) are the moves of a window's last candle; the M training rows are in order of time.
    majority: always the prior. sign of last return: the training shares given that sign. logistic regression, gradient
    boosting, on each set of inputs: those of scikit-learn, the latter stopped by the last 15 % of the training rows. A
    class that training lacks gets the prior's small share.
    """
    from threadpoolctl import threadpool_limits

    train_labels = np.asarray(train_labels, dtype=np.int64)
    prior = class_shares(train_labels)
    found = {
        "majority": prior_rows(prior, len(test_last_returns)),
        "sign of last return": _by_sign(train_last_returns, train_labels, test_last_returns, prior),
    }
    with threadpool_limits(1):  # these fits are so small that synchronising threads costs more than it saves
        for name, rows in train.items():
            alone = name in linear
            found[name if alone else f"logistic regression, {name}"] = _logistic_regression(
                rows, train_labels, test[name], prior
            )
            if alone:
                continue
            found[f"gradient boosting, {name}"] = _gradient_boosting(rows, train_labels, test[name], prior, seed)
    return found


def rolling_priors(
    labels: np.ndarray, rows: np.ndarray, prior: np.ndarray, horizon: int, candles_per_day: int
) -> np.ndarray:
    """Return the shares (n, S, 3) of the labels that were known at each row, over the last SPANS of days.

    `labels` (N,) are a coin's, below 0 where there is none; that of a row is known `horizon` rows later.
    """
    total = np.zeros((len(labels) + 1, NUM_CLASSES))
    total[1:] = np.cumsum(labels[:, None] == np.arange(NUM_CLASSES), axis=0)
    end = np.maximum(rows - horizon + 1, 0)
    counts = [total[end] - total[np.maximum(end - round(days * candles_per_day), 0)] for days in SPANS]
    found = np.stack(counts, 1) + IMAGINED * prior
    return np.asarray(found / found.sum(2, keepdims=True))


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
    if len(np.unique(labels)) < 2:
        return prior_rows(prior, len(test))
    model = make_pipeline(StandardScaler(), LogisticRegression(C=PENALTY, max_iter=300, tol=1e-3)).fit(features, labels)
    return _three_classes(model, test, prior)


def _gradient_boosting(
    features: np.ndarray, labels: np.ndarray, test: np.ndarray, prior: np.ndarray, seed: int
) -> np.ndarray:
    if len(np.unique(labels)) < 2:
        return prior_rows(prior, len(test))
    settings = {"learning_rate": 0.05, "max_leaf_nodes": 15, "min_samples_leaf": 50, "random_state": seed}
    cut = len(labels) - int(STOPPING_SHARE * len(labels))
    # By default scikit-learn stops by rows drawn at random, whose labels overlap with those of the other rows.
    if len(labels) >= STOPPING_ROWS and np.array_equal(np.unique(labels[:cut]), np.unique(labels)):
        model = HistGradientBoostingClassifier(max_iter=300, early_stopping=True, n_iter_no_change=20, **settings)
        model.fit(features[:cut], labels[:cut], X_val=features[cut:], y_val=labels[cut:])
    else:
        model = HistGradientBoostingClassifier(max_iter=40, early_stopping=False, **settings).fit(features, labels)
    return _three_classes(model, test, prior)


def _three_classes(model: ClassifierMixin, features: np.ndarray, prior: np.ndarray) -> np.ndarray:
    """Return the model's probabilities, with the prior's share for classes that it never saw."""
    result = prior_rows(prior, len(features))
    seen = model.classes_
    result[:, seen] = model.predict_proba(features) * prior[seen].sum()
    return result
