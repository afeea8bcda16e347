"""Figures of answers about pairs, and of the test images' scores made from them."""

import itertools
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats
from sklearn.metrics import confusion_matrix, log_loss, precision_recall_fscore_support

from common import statistics
from common.foreign_text import to_csv
from common.plain import Plain
from models.images.ranking import SWAPPED
from pipelines.workloads.lmol.data import CLASSES, Comparisons
from pipelines.workloads.lmol.judging.baselines import Answer
from pipelines.workloads.lmol.pairs import label

BINS = 10  # of margin, equally full
TRIPLES = 1000
PRISTINE = "pristine"  # the family of photos that are not degraded
Figures = dict[str, Any]  # of answers, by name


def pair_figures(probabilities: np.ndarray, labels: np.ndarray) -> Figures:
    """Return figures of probabilities (P, 3) for labels (P,), `nll` in nats.

    The calibration error is over ten bins of the given answer's probability (Guo et al. 2017); `reliability` lists
    those that are not empty.
    """
    probabilities = probabilities / probabilities.sum(axis=1, keepdims=True)  # in float32 the sums are not exactly 1
    answers, all_labels = probabilities.argmax(axis=1), range(len(CLASSES))
    right = answers == labels
    precision, recall, f1, counts = precision_recall_fscore_support(labels, answers, labels=all_labels, zero_division=0)
    error, reliability = statistics.reliability(probabilities.max(axis=1), right)
    return {
        "accuracy": float(right.mean()),
        "macro_f1": float(f1.mean()),
        "nll": float(log_loss(labels, probabilities, labels=all_labels)),
        "calibration_error": error,
        "reliability": reliability,
        "confusion": confusion_matrix(labels, answers, labels=all_labels).tolist(),
        "classes": {
            name: {"accuracy": float(recall[k]), "precision": float(precision[k]), "n": int(counts[k])}
            for k, name in enumerate(CLASSES)
        },
    }


def accuracies_over_images(right: np.ndarray, pairs: np.ndarray, groups: Sequence[str], seed: int) -> np.ndarray:
    """Return bootstrap accuracies (B, R) of R predictors over images in `groups` (N,), from `right` (R, P) about pairs.

    A pair (P, ...) weighs the product of its images' counts.
    """
    images, rows = np.unique(pairs[:, :2], return_inverse=True)
    first, second = rows.reshape(-1, 2).T
    resamples = statistics.resampled_groups([groups[i] for i in images], statistics.RESAMPLES, seed)
    times = (np.bincount(resample, minlength=len(images)) for resample in resamples)
    weights = (each[first] * each[second] for each in times)
    return np.array([right @ weight / weight.sum() for weight in weights if weight.any()])


def swap_consistency(given: np.ndarray, swapped: np.ndarray) -> float:
    """Return the share of pairs with the same answer in both orders; `swapped` is in terms of the order given."""
    return float((given.argmax(axis=1) == swapped.argmax(axis=1)).mean())


def position_bias(given: np.ndarray, swapped: np.ndarray) -> tuple[float, list[float]]:
    """Return the share of First minus that of Second over both orders (0: no bias), and its 95 % interval."""
    sign = np.array([1, -1, 0])
    lean = (sign[given.argmax(axis=1)] - sign[swapped.argmax(axis=1)]) / 2
    half = statistics.Z95 * lean.std() / len(lean) ** 0.5
    return float(lean.mean()), [float(lean.mean() - half), float(lean.mean() + half)]


def by_margin(comparisons: Comparisons, probabilities: np.ndarray) -> list[dict[str, float]]:
    """Return the accuracy by the distance of the two scores: per distance if these are few, else in equal bins."""
    first, second, labels = comparisons.pairs["test"].T
    distance = np.abs(comparisons.scores[first] - comparisons.scores[second])
    values = np.unique(distance)
    if len(values) > BINS + 2:  # theta is an edge, because the classes differ on either side of it
        values = np.unique([*np.quantile(distance, np.linspace(0, 1, BINS + 1)[1:], method="lower"), comparisons.theta])
    member = np.searchsorted(values, distance)
    right = probabilities.argmax(axis=1) == labels
    rows = []
    for k in np.unique(member):
        inside = member == k
        interval = statistics.wilson(int(right[inside].sum()), int(inside.sum()))
        assert interval is not None, "a distance that occurs has pairs"
        ends = {"from": distance[inside].min() * comparisons.unit, "to": distance[inside].max() * comparisons.unit}
        found = {**ends, "accuracy": right[inside].mean(), "low": interval[0], "high": interval[1]}
        rows.append({**{name: float(value) for name, value in found.items()}, "n": int(inside.sum())})
    return rows


def by_family(comparisons: Comparisons, answers: Mapping[str, np.ndarray]) -> dict[str, dict[str, float]]:
    """Return predictors' accuracy within families, which pristine images join; {} for a single family."""
    first, second, labels = comparisons.pairs["test"].T
    families = np.asarray(comparisons.families)
    one, other = families[first], families[second]
    one, other = np.where(one == PRISTINE, other, one), np.where(other == PRISTINE, one, other)
    if len(names := sorted({*one.tolist(), *other.tolist()})) < 2:
        return {}
    inside = {name: (one == name) & (other == name) for name in names}
    inside["across families"] = one != other
    right = {who: each.argmax(axis=1) == labels for who, each in answers.items()}
    return {
        name: {**{who: float(each[chosen].mean()) for who, each in right.items()}, "n": int(chosen.sum())}
        for name, chosen in inside.items()
        if chosen.any()
    }


def transitivity(ask: Answer, images: np.ndarray, theta: int, seed: int) -> dict[str, float]:
    """Return the share of sampled triples with three answers that no scores could give, and that of random answers."""
    if len(images) < 3:
        return {}
    generator = np.random.default_rng(seed)
    triples = np.stack([generator.choice(images, 3, replace=False) for _ in range(TRIPLES)])
    sides = ((0, 1), (1, 2), (0, 2))
    first, second = (np.concatenate([triples[:, side[k]] for side in sides]) for k in (0, 1))
    answers = ((ask(first, second) + ask(second, first)[:, SWAPPED]) / 2).argmax(axis=1).reshape(3, TRIPLES)
    possible = possible_answers(theta > 0)
    return {
        "transitivity_violations": float(np.mean([tuple(answer) not in possible for answer in answers.T.tolist()])),
        "transitivity_violations_at_random": 1 - len(possible) / len(CLASSES) ** 3,
        "triples": TRIPLES,
    }


def possible_answers(tolerant: bool) -> set[tuple[int, ...]]:
    """Return the answers to (a, b), (b, c), (a, c) that follow from some scores, with theta above 0 if `tolerant`."""
    theta, values = (2, range(7)) if tolerant else (0, range(3))
    a, b, c = np.array(list(itertools.product(values, repeat=3))).T
    return set(zip(*(label(*each, theta).tolist() for each in ((a, b), (b, c), (a, c))), strict=True))


@dataclass(frozen=True)
class Placed:
    """Scores of the test images, in the data's units."""

    images: np.ndarray  # (N,) their numbers
    scores: np.ndarray  # (N,)
    errors: np.ndarray  # (N,) standard errors
    known: np.ndarray  # (N,)


def score_figures(found: np.ndarray, known: np.ndarray, groups: Sequence[str], seed: int) -> dict[str, Plain]:
    """Return agreement of scores with known ones, None of constant ones, and bootstrap intervals over groups (N,)."""
    resamples = statistics.resampled_groups(groups, statistics.RESAMPLES, seed)
    drawn = np.stack([np.resize(each, len(found)) for each in resamples])  # groups may differ in size
    spread = agreement(found[drawn], known[drawn])
    figures: dict[str, Plain] = {}
    for name, value in agreement(found, known).items():
        values = spread[name][np.isfinite(spread[name])]
        figures[name] = float(value) if np.isfinite(value) else None
        figures[f"{name}_interval"] = statistics.percentiles(values) if np.isfinite(value) else None
    return figures


def agreement(found: np.ndarray, known: np.ndarray) -> dict[str, np.ndarray]:
    """Return figures (...) of scores (..., N); a correlation is NaN where all scores are the same."""
    wrong = found - known
    ranks = (stats.rankdata(each, axis=-1) for each in (found, known))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", (stats.ConstantInputWarning, stats.NearConstantInputWarning))
        pearson, spearman = (stats.pearsonr(*each, axis=-1).statistic for each in ((found, known), ranks))
    return {
        "pearson": pearson,
        "spearman": spearman,
        "kendall": stats.kendalltau(found, known, axis=-1).statistic,
        "mae": np.abs(wrong).mean(axis=-1),
        "rmse": np.sqrt(np.square(wrong).mean(axis=-1)),
    }


def scores_csv(comparisons: Comparisons, placed: Placed) -> str:
    """Return the text of a CSV with a row per test image."""
    each = zip(placed.images, placed.known, placed.scores, placed.errors, strict=True)
    rows = ((comparisons.names[i], f"{known:g}", f"{score:.4f}", f"{error:.4f}") for i, known, score, error in each)
    return to_csv(("image", "known", "score", "standard_error"), rows)
