"""Baselines: the majority class, the sharper image, and the comparison of scores predicted from single images.

Constants, ridge, neighbours, an SVM and a network are fitted to the scores of training images. Hyperparameters and
features are chosen by the error on validation images, to which thresholds on the difference of two scores are fitted
too, as predictors know the scores of training images too well.
"""

import itertools
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from scipy.ndimage import laplace
from sklearn.base import is_classifier
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import RidgeCV
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, SVR
from torch import Tensor

from common.random import derive_key
from common.workers import progress
from models.images.comparator.scorer import Scorer
from models.images.comparator.siamese import Siamese, TowerEncoder, TowerSiamese
from models.images.regressions import MOST_IMAGES, distances
from models.images.texture import coarse, texture
from pipelines.workloads.lmol.config import Config
from pipelines.workloads.lmol.data import CLASSES, Comparisons, Images
from pipelines.workloads.lmol.model import MOST_LEVELS, scorer_for
from pipelines.workloads.lmol.pairs import label
from pipelines.workloads.lmol.training.batches import Pairs

SHARPNESS = "sharpness rule"
AT_ONCE = 512  # images encoded by the network

Maker = Callable[[], Any]  # makes an untrained model of scikit-learn
# Scores (N,) on the user's scale or features (N, F) of all images, and milliseconds per image.
Timed = tuple[np.ndarray, float]

Answer = Callable[[np.ndarray, np.ndarray], np.ndarray]  # numbers of images (P,), (P,) -> probabilities (P, 3)


@dataclass(frozen=True)
class Baseline:
    """A predictor beside the model."""

    name: str
    answer: Answer
    scores: np.ndarray | None = None  # (N,) of all images, if it predicts scores
    soft: bool = True  # False if its probabilities are 0 and 1 only
    milliseconds: float | None = None  # per image, if measured


def baselines(comparisons: Comparisons, seed: int, tower: Sequence[Timed] = ()) -> list[Baseline]:
    """Return the baselines; predictors of scores also see features (N, F) of the model's `tower`."""
    train, shares = comparisons.parts["train"], comparisons.shares
    grey = (image.mean(-1, dtype=np.float32) for image in comparisons.images)
    sharpness, looking = timed(lambda: np.log1p([laplace(image).var() for image in grey]))
    known = comparisons.scores * comparisons.unit
    line = np.polynomial.Polynomial.fit(sharpness[train], known[train], 1) if np.ptp(sharpness[train]) else None
    found = [
        Baseline("majority class", lambda first, _: np.tile(shares, (len(first), 1))),
        Baseline(SHARPNESS, threshold_rule(sharpness, comparisons), line(sharpness) if line else None, False, looking),
    ]
    others = shallow_scores(comparisons, tower, seed)
    return [*found, *(of_scores(name, scores, comparisons) for name, scores in others.items())]


def of_scores(name: str, found: Timed, comparisons: Comparisons) -> Baseline:
    """Return the baseline that compares predicted scores (N,)."""
    scores, milliseconds = found
    return Baseline(name, threshold_rule(scores, comparisons), scores, soft=False, milliseconds=milliseconds)


def threshold_rule(values: np.ndarray, comparisons: Comparisons) -> Answer:
    """Return the rule, fitted to validation pairs, that the larger or the smaller value wins unless they are near."""
    first, second, labels = comparisons.pairs["validation"].T
    thresholds = np.unique(np.quantile(np.abs(values[first] - values[second]), np.linspace(0, 1, 101)))
    sign, near = max(
        itertools.product((1, -1), thresholds),
        key=lambda rule: (label(rule[0] * values[first], rule[0] * values[second], rule[1]) == labels).sum(),
    )
    return lambda first, second: np.eye(len(CLASSES))[label(sign * values[first], sign * values[second], near)]


def timed(compute: Callable[[], np.ndarray]) -> Timed:
    """Return what `compute` returns of some images, and milliseconds per image."""
    began = time.perf_counter()
    found = compute()
    return found, 1000 * (time.perf_counter() - began) / len(found)


def shallow_scores(comparisons: Comparisons, tower: Sequence[Timed], seed: int) -> Mapping[str, Timed]:
    """Return scores (N,) predicted without a network, by the predictor's name."""
    train, part = comparisons.parts["train"], comparisons.parts["validation"]
    known = comparisons.scores * comparisons.unit
    every = np.arange(len(known))
    images = Images(comparisons.images, every)
    pixels, look = (timed(partial(_in_parts, describe, images, every)) for describe in (coarse, texture))
    both = np.concatenate([pixels[0], look[0]], axis=1), pixels[1] + look[1]
    close = [k for k in (1, 5, 15) if k <= len(train)]
    nearest: list[Maker] = [partial(KNeighborsRegressor, k, metric="precomputed") for k in close]
    support: list[Maker] = [partial(SVR, C=c, kernel="precomputed") for c in (1.0, 10.0)]
    if len(np.unique(comparisons.scores[train])) <= min(MOST_LEVELS, len(train) // 2):
        nearest += [partial(KNeighborsClassifier, k, metric="precomputed") for k in close[:2]]
        support.append(partial(SVC, C=10.0, kernel="precomputed"))
    ways: dict[str, list[Maker]] = {
        "ridge": [partial(RidgeCV, np.logspace(-1, 5, 13))],
        "kernel ridge": [partial(KernelRidge, alpha, kernel="precomputed") for alpha in (0.01, 0.1, 1.0)],
        "nearest neighbours": nearest,
        "SVM": support,
    }
    drawn = np.random.default_rng(seed).permutation(train)[:MOST_IMAGES]
    found = {name: (np.full(len(known), constant(known[train])), 0.0) for name, constant in CONSTANTS.items()}
    least = dict.fromkeys(ways, math.inf)
    for features, milliseconds in (pixels, look, both, *tower):
        scaled = StandardScaler().fit(features[drawn]).transform(features)
        square, more = timed(partial(_squares, scaled, drawn))
        seen = {"ridge": (scaled, milliseconds), "nearest neighbours": (np.sqrt(square), milliseconds + more)}
        kernel = np.exp(-square), milliseconds + more
        for name, makers in ways.items():
            for make in makers:
                tried = _fitted(make(), seen.get(name, kernel), comparisons, drawn)
                if (error := np.square(tried[0][part] - known[part]).mean()) < least[name]:
                    least[name], found[name] = error, tried
    return found


def _squares(features: np.ndarray, drawn: np.ndarray) -> np.ndarray:
    """Return mean square differences (N, n) of images, by features (N, F), from the images `drawn` (n,)."""
    own = torch.from_numpy(features)
    found: np.ndarray = distances(own, own[drawn]).numpy() / features.shape[1]
    found[drawn, np.arange(len(drawn))] = 0  # an image's distance from itself, whatever rounding makes of it
    return found


CONSTANTS: Mapping[str, Callable[[np.ndarray], float]] = {
    "constant, the mean": np.mean,
    "constant, the median": np.median,
}


def _fitted(model: Any, described: Timed, comparisons: Comparisons, train: np.ndarray) -> Timed:
    """Fit a model of scikit-learn to the images `train`; return its scores (N,) of all images."""
    features, milliseconds = described
    scores, unit = comparisons.scores, comparisons.unit
    mean, spread = (0, 1) if is_classifier(model) else (scores[train].mean(), max(scores[train].std(), 1e-9))
    fitted = model.fit(features[train], (scores[train] - mean) / spread)
    predicted, own = timed(lambda: fitted.predict(features))
    return (predicted * spread + mean) * unit, milliseconds + own


def network_scores(
    config: Config,
    comparisons: Comparisons,
    device: torch.device,
    siamese: Siamese | None = None,
    encoded: Tensor | None = None,
) -> Timed:
    """Train a network on single images, or a siamese's tower features `encoded` (N, F); return its scores (N,).

    It has a siamese comparator's encoder and sees in each step the images, shifted and turned alike, of as many pairs
    as the comparator does, but learns from their scores. The weights are those of the step that was best on validation.
    """
    training, seed = config.training, config.seed
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = scorer_for(config, comparisons)
        if isinstance(siamese, TowerSiamese):
            model.encoder = TowerEncoder(siamese.tower.cells, siamese.tower.channels, model.config.width)
        model = model.to(device).train()
    images = Images(comparisons.images, np.arange(len(comparisons.images)))
    seen = images if encoded is None else encoded
    pairs = torch.as_tensor(comparisons.pairs["train"]).long()
    source = Pairs(
        images,
        pairs,
        known=torch.from_numpy(comparisons.scores * comparisons.unit),
        encoded=encoded,
        shift=0 if encoded is not None else 3 if config.frozen else config.shift,
        turn=config.fine and encoded is None,
        key=derive_key(seed, "lmol", "moves"),
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=training.learning_rate)
    steps = config.evaluation.network_steps or training.num_steps(len(pairs))
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, training.learning_rate, steps)
    centre, spread = model.standard
    generator = torch.Generator().manual_seed(seed)
    validation = comparisons.parts["validation"]
    best, kept = math.inf, model.state_dict()
    for step in progress(range(steps), steps, "training a network on single images, steps"):
        items = torch.randint(len(pairs), (min(training.batch_size, len(pairs)),), generator=generator)
        batch = {name: each.to(device) for name, each in source.batch(items).items()}
        shown = batch["images" if encoded is None else "encoded"]
        loss = model.score_loss(model.encode(shown), (batch["known"].float() - centre) / spread).mean()
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if step + 1 == steps or (step + 1) % max(1, steps // 8) == 0:
            found = _scores_of(model, seen, validation, device)
            if (error := np.square(found - comparisons.scores[validation] * comparisons.unit).mean()) < best:
                best, kept = error, {name: each.clone() for name, each in model.state_dict().items()}
    model.load_state_dict(kept)
    return timed(lambda: _scores_of(model, seen, np.arange(images.size), device))


@torch.no_grad()
def _scores_of(model: Scorer, images: Images | Tensor, numbers: np.ndarray, device: torch.device) -> np.ndarray:
    """Return the scores (M,) of the images `numbers` (M,)."""
    model.eval()
    found = _in_parts(lambda part: model.estimates(model.encode(part.to(device)))[0], images, numbers)
    model.train()
    return found


def _in_parts(describe: Callable[[Tensor], Tensor], images: Images | Tensor, numbers: np.ndarray) -> np.ndarray:
    """Return `describe` of the images `numbers` (N, ...), float64, in batches."""
    parts = torch.from_numpy(numbers).split(AT_ONCE)
    return np.concatenate([describe(images[part]).double().numpy() for part in parts])
