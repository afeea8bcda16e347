"""Simple predictors that a model must beat, fitted on the training rows alone."""

from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

from pipelines.workloads.crypto.verdict.classification import NUM_CLASSES, class_shares, prior_rows

PENALTY = 0.02  # inverse strength; with 100 inputs no weaker one does better
SPANS = (0.25, 1, 3, 7)  # days of a rolling prior
IMAGINED = 10  # pseudo-labels at the training shares that it begins with
STOPPING_SHARE = 0.15  # of the training rows, the latest, by which boosting stops
STOPPING_ROWS = 1000  # with fewer training rows boosting runs a small, fixed number of rounds instead


def fit_and_predict(
    train: Mapping[str, np.ndarray],
    labels: np.ndarray,
    test: Mapping[str, np.ndarray],
    *,
    linear: Sequence[str] = (),
    seed: int = 0,
) -> dict[str, np.ndarray]:
    """Return probabilities (N, 3) of each baseline on the test rows, by its name.

    `train` and `test` map the name of each set of inputs, "last row" and "window", say, to its finite columns (M, P)
    and (N, P); for those in `linear` the logistic regression alone is fitted and bears their name. The M training rows
    are in order of time. Logistic regression and gradient boosting are those of scikit-learn, the latter stopped by the
    last 15 % of the training rows. A class that training lacks gets the prior's small share.
    """
    from threadpoolctl import threadpool_limits

    labels = np.asarray(labels, dtype=np.int64)
    prior, classes = class_shares(labels), np.unique(labels)
    found = {}
    with threadpool_limits(1):  # these fits are so small that synchronising threads costs more than it saves
        for name, rows in train.items():
            kinds = {name: _logistic_regression}
            if name not in linear:
                boosting = partial(_gradient_boosting, seed=seed)
                kinds = {f"logistic regression, {name}": _logistic_regression, f"gradient boosting, {name}": boosting}
            for kind, fit in kinds.items():
                found[kind] = prior_rows(prior, len(test[name]))
                if len(classes) > 1:
                    found[kind][:, classes] = fit(rows, labels).predict_proba(test[name]) * prior[classes].sum()
    return found


def rolling_priors(
    labels: np.ndarray, rows: np.ndarray, prior: np.ndarray, horizon: int, candles_per_day: int
) -> np.ndarray:
    """Return the shares (n, S, 3) of the labels that were known at each row, over the last SPANS of days.

    `labels` (N,) are a coin's, below 0 where there is none; that of a row is known `horizon` rows later.
    """
    total = np.cumsum(np.pad(labels[:, None] == np.arange(NUM_CLASSES), [(1, 0), (0, 0)]), axis=0)
    end = np.maximum(rows - horizon + 1, 0)
    counts = [total[end] - total[np.maximum(end - round(days * candles_per_day), 0)] for days in SPANS]
    found = np.stack(counts, 1) + IMAGINED * prior
    return np.asarray(found / found.sum(2, keepdims=True))


def _logistic_regression(features: np.ndarray, labels: np.ndarray) -> Pipeline:
    return make_pipeline(StandardScaler(), LogisticRegression(C=PENALTY, max_iter=300, tol=1e-3)).fit(features, labels)


def _gradient_boosting(features: np.ndarray, labels: np.ndarray, seed: int) -> HistGradientBoostingClassifier:
    settings = {"learning_rate": 0.08, "max_leaf_nodes": 15, "min_samples_leaf": 50, "random_state": seed}
    cut = len(labels) - int(STOPPING_SHARE * len(labels))
    # By default scikit-learn stops by rows drawn at random, whose labels overlap with those of the other rows.
    if len(labels) >= STOPPING_ROWS and np.array_equal(np.unique(labels[:cut]), np.unique(labels)):
        model = HistGradientBoostingClassifier(max_iter=300, early_stopping=True, n_iter_no_change=10, **settings)
        return model.fit(features[:cut], labels[:cut], X_val=features[cut:], y_val=labels[cut:])
    return HistGradientBoostingClassifier(max_iter=40, early_stopping=False, **settings).fit(features, labels)
