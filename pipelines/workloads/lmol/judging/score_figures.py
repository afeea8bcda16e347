"""Scores of the test images, made from the model's answers, and their agreement with the known ones."""

import warnings
from dataclasses import dataclass

import numpy as np
from scipy import stats

from common import statistics
from common.foreign_text import to_csv
from common.plain import Plain
from pipelines.workloads.lmol.data import Comparisons


@dataclass(frozen=True)
class Placed:
    """Scores of the test images, in the data's units."""

    images: np.ndarray  # (N,) their numbers
    scores: np.ndarray  # (N,)
    errors: np.ndarray  # (N,) standard errors
    known: np.ndarray  # (N,)


def score_figures(found: np.ndarray, known: np.ndarray, seed: int) -> dict[str, Plain]:
    """Return agreement of scores with known ones (N,), None of constant ones, and bootstrap intervals over images."""
    drawn = np.stack(list(statistics.resampled_indices(len(found), statistics.RESAMPLES, seed)))
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
    rows = zip(found.reshape(-1, found.shape[-1]), known.reshape(-1, found.shape[-1]), strict=True)
    ranks = (stats.rankdata(each, axis=-1) for each in (found, known))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", (stats.ConstantInputWarning, stats.NearConstantInputWarning))
        pearson, spearman = (stats.pearsonr(*each, axis=-1).statistic for each in ((found, known), ranks))
    return {
        "pearson": pearson,
        "spearman": spearman,
        "kendall": np.array([stats.kendalltau(*row).statistic for row in rows]).reshape(found.shape[:-1]),
        "mae": np.abs(wrong).mean(axis=-1),
        "rmse": np.sqrt(np.square(wrong).mean(axis=-1)),
    }


def scores_csv(comparisons: Comparisons, placed: Placed) -> str:
    """Return the text of a CSV with a row per test image."""
    each = zip(placed.images, placed.known, placed.scores, placed.errors, strict=True)
    rows = ((comparisons.names[i], f"{known:g}", f"{score:.4f}", f"{error:.4f}") for i, known, score, error in each)
    return to_csv(("image", "known", "score", "standard_error"), rows)
