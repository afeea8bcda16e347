"""Pairs of images with labels: images are split into parts first, then pairs are drawn within each part.

Two images whose scores differ by at most `theta` are SIMILAR; otherwise the one with the larger score ranks higher. A
pair is drawn once, in one of its two orders; only similar training pairs repeat, where they are few.
"""

import bisect
import hashlib
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from common.errors import UserError
from common.statistics import wilson
from models.images.people.preferences import draw
from models.images.ranking import FIRST, SECOND, SIMILAR

PARTS = ("train", "validation", "test")
BINS = 10  # of the scale; references are taken from each
CANDIDATES = 4  # drawn for each training pair, since some contain an image that is in enough pairs already


def label(first: npt.ArrayLike, second: npt.ArrayLike, theta: float) -> np.ndarray:
    """Return FIRST, SECOND or SIMILAR for scores of equal shape."""
    difference = np.subtract(first, second)
    return np.where(np.abs(difference) <= theta, SIMILAR, np.where(difference > 0, FIRST, SECOND))


def split(groups: Sequence[str], folds: int, fold: int, seed: int) -> dict[str, np.ndarray]:
    """Return {part: image numbers}: fold `fold` is the test part, the next one validation, the others train.

    Groups are ordered by a hash of (seed, name) and cut into runs of equal length, so that adding or removing a group
    moves few others. Raises UserError for fewer groups than folds.
    """
    names = sorted(set(groups), key=lambda name: hashlib.sha256(f"{seed} {name}".encode()).digest())
    if len(names) < folds:
        few = f"{len(groups)} usable images in {len(names)} groups cannot be split into data.folds={folds} parts"
        why = "images of a group and near duplicates stay together"
        other = f", or data.folds={len(names)}" if len(names) >= len(PARTS) else ""
        raise UserError(f"{few}, because {why}; give more images{other}")
    part = {fold: "test", (fold + 1) % folds: "validation"}
    place = {name: part.get(rank * folds // len(names), "train") for rank, name in enumerate(names)}
    where = np.array([place[name] for name in groups])
    return {name: np.flatnonzero(where == name) for name in PARTS}


def natural_shares(scores: np.ndarray, theta: int) -> list[float]:
    """Return the shares of FIRST, SECOND and SIMILAR among all pairs of different images with these scores."""
    ordered = np.sort(scores)
    similar = int(_similar_after(ordered, theta).sum()) / (len(scores) * (len(scores) - 1) // 2)
    return [(1 - similar) / 2, (1 - similar) / 2, similar]


def widest_theta(scores: np.ndarray, share: float) -> int:
    """Return the largest theta with at most `share` of all pairs SIMILAR; 0 if no theta keeps it."""
    ordered = np.sort(scores)
    most = share * len(scores) * (len(scores) - 1) / 2
    thetas = range(1, int(ordered[-1] - ordered[0]) + 1)
    return bisect.bisect_right(thetas, most, key=lambda theta: _similar_after(ordered, theta).sum())


def training(scores: np.ndarray, images: np.ndarray, theta: int, each: int, degree: int, seed: int) -> np.ndarray:
    """Return pairs (P, 3) first, second, label: at most `each` of each label, equally many of all three.

    `scores` (N,) are those of all images, `images` the numbers of the ones to pair. No image is in more than `degree`
    pairs. There are no pairs at all if a label does not occur.
    """
    generator = np.random.default_rng([seed, 0])
    order = images[np.argsort(scores[images], kind="stable")]
    # A pair is of an image and a later one in the order of scores; the nearest later ones are similar, the rest not.
    after = np.arange(len(order)) + 1
    similar = _similar_after(scores[order], theta)
    most = min(each, len(order) * degree // 6)
    same = draw(similar, after, most * CANDIDATES, generator)
    same = np.resize(same, (max(len(same), most * bool(len(same))), 2))  # few similar ones repeat, to keep the others
    other = draw(len(order) - after - similar, after + similar, 2 * most * CANDIDATES, generator)
    chosen = _threes(same, other, most, degree, len(order))
    lower, higher = order[chosen[..., 0]], order[chosen[..., 1]]  # (K, 3)
    labels = np.tile([SIMILAR, FIRST, SECOND], (len(chosen), 1))
    labels[:, 1:] = generator.permuted(labels[:, 1:], axis=1)
    swapped = np.where(labels == SIMILAR, generator.random(labels.shape) < 0.5, labels == FIRST)
    pairs = np.stack([np.where(swapped, higher, lower), np.where(swapped, lower, higher), labels], axis=-1)
    return generator.permutation(pairs.reshape(-1, 3))


def evaluation(scores: np.ndarray, images: np.ndarray, theta: int, count: int, seed: int) -> np.ndarray:
    """Return pairs (P, 3) first, second, label: at most `count`, drawn uniformly from all pairs of `images`."""
    generator = np.random.default_rng([seed, 1])
    after = np.arange(len(images)) + 1
    drawn = images[draw(len(images) - after, after, count, generator)]
    swapped = generator.random(len(drawn)) < 0.5
    drawn[swapped] = drawn[swapped, ::-1]
    first, second = scores[drawn].T
    return np.column_stack([drawn, label(first, second, theta)])


def too_few(images: int, labels: np.ndarray, folds: int) -> str:
    """Return why so many test `images` are too few for a verdict, and how many would do; "" if they are enough.

    They are enough if an accuracy half way between guessing and perfect, over as many of the pairs, labels (P,), as
    share no image, has an interval above guessing.
    """
    if (guessing := float(np.bincount(labels).max() / len(labels))) == 1:
        return f"too few different scores for a verdict: all {len(labels)} test pairs have the same answer"

    def suffices(count: int) -> bool:
        interval = wilson(int(count * (1 + guessing) / 2), count)
        return interval is not None and interval[0] > guessing

    if suffices(free := min(images // 2, len(labels))):
        return ""
    enough = bisect.bisect_left(range(2**40), True, key=suffices)
    few = f"{images} are for testing, of which at most {free} pairs share no image"
    told_apart = f"a model half way between guessing ({guessing:.0%} right) and perfect could not be told from guessing"
    return f"too few images for a verdict: {few}, and by these {told_apart}; give some {2 * enough * folds} in all"


def references(scores: np.ndarray, per_bin: int) -> np.ndarray:
    """Return sorted rows of `scores` (N,): at most `per_bin`, spread, from each of BINS equal parts of the scale."""
    low, high = int(scores.min()), int(scores.max())
    # As Python's integers: ten times a wide span of scores may be beyond int64.
    bins = np.array([(int(score) - low) * BINS // (high - low + 1) for score in scores])
    order, found = np.argsort(scores, kind="stable"), []
    for each in range(BINS):
        rows = order[bins[order] == each]
        found.append(rows[np.linspace(0, len(rows) - 1, min(per_bin, len(rows))).round().astype(np.int64)])
    return np.sort(np.concatenate(found))


def _similar_after(ordered: np.ndarray, theta: int) -> np.ndarray:
    """Return, for each of the ascending scores (N,), the number of later ones within theta."""
    return np.searchsorted(ordered, ordered + theta, side="right") - np.arange(len(ordered)) - 1


def _threes(same: np.ndarray, other: np.ndarray, most: int, degree: int, images: int) -> np.ndarray:
    """Return (K, 3, 2), K at most `most`: one pair of `same`, two of `other`, no image in more than `degree` pairs."""
    left, chosen = [degree] * images, []
    similar, different = iter(same.tolist()), iter(other.tolist())
    for pairs in (similar, different, different) * most:
        if (pair := next((pair for pair in pairs if left[pair[0]] and left[pair[1]]), None)) is None:
            break
        chosen.append(pair)
        left[pair[0]] -= 1
        left[pair[1]] -= 1
    return np.array(chosen[: len(chosen) // 3 * 3], np.int64).reshape(-1, 3, 2)
