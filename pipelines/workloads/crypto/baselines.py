"""Simple predictors that a model must beat, fitted on the training rows alone."""

from typing import Any

import numpy as np

from pipelines.workloads.crypto.classification import NUM_CLASSES, class_shares, prior_rows

STOPPING_SHARE = 0.15  # of the training rows, the latest, by which boosting stops
STOPPING_ROWS = 1000  # with fewer training rows boosting runs a small, fixed number of rounds instead


def fit_and_predict(
    train_features: np.ndarray,
    train_labels: np.ndarray,
    train_last_returns: np.ndarray,
    test_features: np.ndarray,
    test_last_returns: np.ndarray,
    *,
    seed: int = 0,
) -> dict[str, np.ndarray]:
    """Return probabilities (N, 3) of each baseline on the test rows, by its name.

    The finite features (M, F) and (N, F) are those of the last row of each window, the last returns (M,) and (N,) the
    moves of its last candle; the M training rows are in order of time.
    majority: always the prior. stratified guess: half the weight on the prior, half on a class drawn from it, so that
    its macro-F1 is about 1/3 and not the 0.2 of a constant. sign of last return: the training shares given that sign.
    logistic regression, gradient boosting: those of scikit-learn, the latter stopped by the last 15 % of the training
    rows. A class that training lacks gets the prior's small share. Raises ValueError for features that are not finite.
    """
    from threadpoolctl import threadpool_limits

    train_labels = np.asarray(train_labels, dtype=np.int64)
    for name, array in (("train_features", train_features), ("test_features", test_features)):
        if not np.isfinite(array).all():
            raise ValueError(f"{name} must be finite")
    prior = class_shares(train_labels)
    majority = prior_rows(prior, len(test_features))
    drawn = np.random.default_rng(seed).choice(NUM_CLASSES, len(majority), p=prior)
    with threadpool_limits(1):  # these fits are so small that synchronising threads costs more than it saves
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
        return prior_rows(prior, len(test))
    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=2000)).fit(features, labels)
    return _three_classes(model, test, prior)


def _gradient_boosting(
    features: np.ndarray, labels: np.ndarray, test: np.ndarray, prior: np.ndarray, seed: int
) -> np.ndarray:
    from sklearn.ensemble import HistGradientBoostingClassifier

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


def _three_classes(model: Any, features: np.ndarray, prior: np.ndarray) -> np.ndarray:
    """Return the model's probabilities, with the prior's share for classes that it never saw."""
    result = prior_rows(prior, len(features))
    seen = model.classes_
    result[:, seen] = model.predict_proba(features) * prior[seen].sum()
    return result
