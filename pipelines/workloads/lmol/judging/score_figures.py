"""Scores of the test images, made from the model's answers, and their agreement with the known ones."""

from dataclasses import dataclass

import numpy as np
import torch
from scipy import stats
from torch import Tensor

from common import statistics
from common.foreign_text import to_csv
from common.plain import Plain
from models.images import ranking
from models.images.reliability import Reliability, quantiles
from pipelines.workloads.lmol.data import Comparisons
from pipelines.workloads.lmol.judging.answers import ModelAnswers


@dataclass(frozen=True)
class Placed:
    """Scores of the test images, in the data's units."""

    images: np.ndarray  # (N,) their numbers
    scores: np.ndarray  # (N,)
    errors: np.ndarray  # (N,) standard errors
    known: np.ndarray  # (N,)
    reliability: Reliability  # of the estimates, on validation images

    @property
    def coverage(self) -> float:
        """The share of test images whose known score lies in the 95 % interval."""
        return float((np.abs(self.scores - self.known) <= statistics.Z95 * self.errors).mean())


def place(answers: ModelAnswers, comparisons: Comparisons, budget: int, seed: int) -> Placed:
    """Score the test images by comparing each with at most `budget` references.

    References are training images, about which the model errs less. So validation images are placed too, and show how
    far the estimates can be relied on.
    """
    test, validation = comparisons.parts["test"], comparisons.parts["validation"]
    numbers = torch.from_numpy(np.concatenate([test, validation, comparisons.references]))
    known = torch.from_numpy(comparisons.scores[numbers]).double() * comparisons.unit
    count = len(test) + len(validation)

    def log_odds(first: Tensor, second: Tensor) -> Tensor:
        return answers.logits(numbers[first], numbers[second])

    theta = comparisons.theta * comparisons.unit
    prior = quantiles(torch.from_numpy(comparisons.scores[comparisons.parts["train"]]).double() * comparisons.unit)
    estimated = answers.estimates(numbers[:count])
    if estimated is not None:
        scale = ranking.Scale(ranking.Davidson(1.0, 0.0), prior, Reliability(0.0, 1.0, 0.0, 1.0))
        return _placed(comparisons, scale, *estimated, known)
    references = ranking.References(log_odds, torch.arange(count, len(numbers)), known[count:], theta, budget)
    scale = ranking.fit_scale(references, seed=seed, prior=prior)
    estimates, information = ranking.place(scale, references, count)
    estimates = answers.joined(numbers[:count], estimates)
    return _placed(comparisons, scale, estimates, information, known)


def _placed(
    comparisons: Comparisons, scale: ranking.Scale, estimates: Tensor, information: Tensor, known: Tensor
) -> Placed:
    """Return the scores of the test images, whose estimates come first, relying on those of the validation images."""
    test = comparisons.parts["test"]
    unseen, mine = slice(len(test), len(estimates)), slice(0, len(test))
    known = known[: len(estimates)]
    scale = scale.relying(estimates[unseen], information[unseen], known[unseen])
    scores, errors = scale.scores(estimates[mine], information[mine])
    return Placed(test, scores.numpy(), errors.numpy(), known[mine].numpy(), scale.reliability)


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
    return {
        "pearson": correlation(found, known),
        "spearman": correlation(stats.rankdata(found, axis=-1), stats.rankdata(known, axis=-1)),
        "kendall": np.array([stats.kendalltau(*row).statistic for row in rows]).reshape(found.shape[:-1]),
        "mae": np.abs(wrong).mean(axis=-1),
        "rmse": np.sqrt(np.square(wrong).mean(axis=-1)),
    }


def correlation(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return Pearson's correlation (...) of x, y (..., N)."""
    x, y = (each - each.mean(axis=-1, keepdims=True) for each in (x, y))
    with np.errstate(invalid="ignore"):
        found: np.ndarray = (x * y).sum(axis=-1) / np.sqrt((x * x).sum(axis=-1) * (y * y).sum(axis=-1))
    return found


def scores_csv(comparisons: Comparisons, placed: Placed) -> str:
    """Return the text of a CSV with a row per test image."""
    rows = zip(placed.images, placed.known, placed.scores, placed.errors, strict=True)
    return to_csv(
        ("image", "known", "score", "standard_error"),
        (
            (comparisons.names[image], f"{known:g}", f"{score:.4f}", f"{error:.4f}")
            for image, known, score, error in rows
        ),
    )
