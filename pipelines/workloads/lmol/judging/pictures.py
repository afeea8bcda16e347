"""Images that the report shows: test images along the estimated ranking, and the surest mistakes."""

import base64
import io

import numpy as np
from PIL import Image

from common.plain import Plain
from pipelines.workloads.lmol.data import CLASSES, Comparisons
from pipelines.workloads.lmol.judging.score_figures import Placed

STRIP, MISTAKES = 36, 12  # at most, of each


def strip(comparisons: Comparisons, placed: Placed) -> list[dict[str, Plain]]:
    """Return test images spread over the estimated ranking, highest score first."""
    order = np.argsort(-placed.scores, kind="stable")
    shown = order[np.unique(np.linspace(0, len(order) - 1, min(STRIP, len(order))).round().astype(int))]
    return [
        {
            "name": comparisons.names[placed.images[i]],
            "score": float(placed.scores[i]),
            "standard_error": float(placed.errors[i]),
            "known": float(placed.known[i]),
            "png": _png(comparisons.images[placed.images[i]]),
        }
        for i in shown
    ]


def mistakes(comparisons: Comparisons, probabilities: np.ndarray) -> list[dict[str, Plain]]:
    """Return wrong answers, the surest first, with no image in two of them."""
    pairs, answers = comparisons.pairs["test"], probabilities.argmax(axis=1)
    wrong = np.flatnonzero(answers != pairs[:, 2])
    surest: list[int] = []
    for k in wrong[np.argsort(-probabilities[wrong].max(axis=1), kind="stable")]:
        if len(surest) < MISTAKES and not np.isin(pairs[k, :2], pairs[surest, :2]).any():
            surest.append(k)
    return [
        {
            "images": [
                {
                    "name": comparisons.names[i],
                    "known": float(comparisons.scores[i] * comparisons.unit),
                    "png": _png(comparisons.images[i]),
                }
                for i in pairs[k, :2]
            ],
            "label": CLASSES[pairs[k, 2]],
            "answer": CLASSES[answers[k]],
            "probability": float(probabilities[k].max()),
        }
        for k in surest
    ]


def _png(image: np.ndarray) -> str:
    """Return an image (S, S, C) uint8 as PNG in Base64."""
    buffer = io.BytesIO()
    Image.fromarray(image[..., 0] if image.shape[-1] == 1 else image).save(buffer, "PNG")
    return base64.b64encode(buffer.getvalue()).decode()
