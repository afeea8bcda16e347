"""Ridge regression on features that are more than the images: what a comparator over a tower is never to be below.

N images, M unseen ones that choose, F features
"""

from collections.abc import Sequence

import torch
from torch import Tensor

PENALTIES = torch.logspace(-3, 3, 13, dtype=torch.float64)  # times the features
MOST_IMAGES = 4000  # that it is fitted to, as the time grows with their cube


def fit(seen: tuple[Tensor, Tensor], unseen: tuple[Tensor, Tensor], parts: Sequence[slice]) -> Tensor:
    """Return weights (F + 1,) float64, the constant last, fitted to `seen` features (N, F) and scores (N,).

    Of the `parts` of the features the one is used, with the penalty, that has the least error on `unseen` ones.
    """
    spread = torch.linspace(0, len(seen[0]) - 1, min(len(seen[0]), MOST_IMAGES)).round().long()
    features, scores = seen[0].cpu()[spread], seen[1].double().cpu()[spread]
    others, known = unseen[0].cpu(), unseen[1].double().cpu()
    level, least = scores.mean(), torch.inf
    found = torch.zeros(features.shape[1] + 1, dtype=torch.float64)
    for part in parts:
        x, further = features[:, part].double(), others[:, part].double()
        mean, deviation = x.mean(0), x.std(0, correction=0).clamp_min(1e-6)
        x, further = (x - mean) / deviation, (further - mean) / deviation
        values, axes = torch.linalg.eigh(x @ x.T / x.shape[1])
        along = axes.T @ (scores - level)
        for penalty in PENALTIES:
            weights = x.T @ (axes @ (along / (values.clamp_min(0) + penalty))) / x.shape[1]
            error = float((further @ weights + level - known).square().mean())
            if error < least:
                least, found = error, torch.zeros_like(found)
                found[:-1][part] = weights / deviation
                found[-1] = level - (weights / deviation) @ mean
    return found
