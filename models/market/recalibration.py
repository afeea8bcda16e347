"""Online recalibration: a temperature and a bias of each side, from the labels that are known by then.

They are one Newton step from no correction, on the log likelihood of the newest labels and a prior for no correction.
So they depend on these labels alone, and the same candles give the same ones.

Shapes: N candles, 3 classes, 3 parameters.
"""

from collections.abc import Sequence

import numpy as np

WINDOW = 288  # candles whose labels count; with fewer, noise costs more than is gained
CAUTION = 30.0  # pseudo-labels for no correction, times the horizon, as labels overlap
PRIOR = CAUTION * np.diag([1.0, 0.25, 0.25])  # a row's information about a bias is at most 1 / 4
LARGEST = 0.7  # of each parameter


def reach(window: int, horizon: int) -> int:
    """Return on how many earlier rows a row depends."""
    return window + horizon - 1 if window else 0


def recalibrated(
    logits: np.ndarray, labels: np.ndarray, segments: Sequence[slice], horizon: int, window: int
) -> np.ndarray:
    """Return the log probabilities (N, 3) of logits (N, 3), corrected by the last `window` labels (N,).

    The label of a row is known `horizon` rows later, and below 0 where there is none; logits may be NaN. No labels
    count across segments. With a window of 0 nothing is corrected.
    """
    shifted = logits - logits.max(1, keepdims=True)
    logs = shifted - np.log(np.exp(shifted).sum(1, keepdims=True))
    if not window:
        return np.asarray(logs)
    known = np.isfinite(logs).all(1) & (labels >= 0)
    inputs = np.zeros((len(logs), 3, 3))  # (N, class, parameter)
    inputs[:, :, 0], inputs[:, 0, 1], inputs[:, 2, 2] = np.nan_to_num(logs), 1, 1
    shares = np.where(known[:, None], np.exp(logs), 0)
    apart = inputs - np.einsum("nc,ncp->np", shares, inputs)[:, None]
    slope = np.where(known[:, None], apart[np.arange(len(logs)), np.maximum(labels, 0)], 0)
    information = np.einsum("nc,ncp,ncq->npq", shares, apart, apart)
    corrections = np.zeros((len(logs), 3))
    for segment in segments:
        after = np.maximum(np.arange(segment.stop - segment.start) - horizon + 1, 0)
        before = np.maximum(after - window, 0)
        slopes, informations = (
            np.concatenate([np.zeros((1, *each.shape[1:])), each[segment].cumsum(0)]) for each in (slope, information)
        )
        found = np.linalg.solve(
            informations[after] - informations[before] + horizon * PRIOR, (slopes[after] - slopes[before])[..., None]
        )
        corrections[segment] = np.clip(found[..., 0], -LARGEST, LARGEST)
    moved = logs + np.einsum("ncp,np->nc", inputs, corrections)
    return np.asarray(moved - np.log(np.exp(moved).sum(1, keepdims=True)))
