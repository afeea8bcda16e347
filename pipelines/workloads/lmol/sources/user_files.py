"""Images that a user's CSV lists, decoded, with their scores in whole units."""

import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import partial
from pathlib import Path

import numpy as np

from common.errors import UserError
from common.plain import Plain
from common.workers import in_order
from models.images import image_files
from pipelines.workloads.lmol import pairs
from pipelines.workloads.lmol.config import Data
from pipelines.workloads.lmol.sources import packed
from pipelines.workloads.lmol.sources.columns import lists_in
from pipelines.workloads.lmol.sources.finding import by_attribute, find_table
from pipelines.workloads.lmol.sources.image_set import ImageSet, write
from pipelines.workloads.lmol.sources.scores import LabelledPair, fit_theta, in_units, whole
from pipelines.workloads.lmol.sources.tables import LABELS, Listed, home, passed_over, within

SIMILAR_SHARE = 0.2  # of all pairs at most, where theta is not given
NAMED = 10  # examples of contradictory labels in the facts
LATENT = Fraction(1, 1000)  # unit of scores fitted to preferences
FILES_AT_ONCE = 32  # decoded by one process before it hands them over
Find = Callable[[str], Path | bytes]  # an image's file, by its name


@dataclass
class Usable:
    """The images of a CSV that can be used."""

    names: list[str] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)  # reason by name
    animated: list[str] = field(default_factory=list)


def read_user_files(data: Data, path: Path) -> ImageSet:
    """Return the images that the user's CSV lists, except those that cannot be used, which the facts name."""
    table = find_table(data.source, data.columns.given(), data.attributes)
    root = home(table, Path(data.source))
    listed = by_attribute(table, data.columns.given(), data.attributes or data.attribute, root)
    if Path(data.source).is_dir():
        lists = lists_in(table) if table.is_dir() else []
        names = [name for each in listed for name in (*each.scores, *each.refused) if "\0" not in name]
        used = [table, *lists, *(root / name for name in names)]
        listed[0].notes += passed_over(Path(data.source), used, f"images that {table.name} does not list")
    return _image_set(data, path, table, listed, partial(within, root))


def read_packed(data: Data, path: Path) -> ImageSet:
    """Return the images of a data set's rows, except those that cannot be used, which the facts name."""
    source = Path(data.source)
    with tempfile.TemporaryDirectory() as cache:
        column, rows, find = packed.opened(source, data.columns.image, cache)
        columns = {**data.columns.given(), "image": column}
        listed = by_attribute(source, columns, data.attributes or data.attribute, source, rows)
        return _image_set(data, path, source, listed, find)


def _image_set(data: Data, path: Path, table: Path, each: Sequence[Listed], find: Find) -> ImageSet:
    """Return the images that a table lists, for each attribute, decoded by all cores."""
    found = Usable()
    names = dict.fromkeys(name for listed in each for name in listed.scores)
    images, thumbnails = write(path, _decoded([*names], find, data, found))
    made = partial(_of_attribute, data, table, images, thumbnails, found)
    if not data.attributes:
        return made(each[0], data.attribute or data.columns.score or "score")
    first, *others = map(made, each, data.attributes)
    groups = {name: group for listed in each for name, group in listed.groups.items() if group}
    return replace(first, groups=[groups.get(name, name) for name in found.names], others=tuple(others))


def _of_attribute(
    data: Data, table: Path, images: np.ndarray, thumbnails: np.ndarray, found: Usable, listed: Listed, attribute: str
) -> ImageSet:
    """Return the images with a table's scores or answers for one attribute."""
    refused = {**listed.refused, **{name: why for name, why in found.refused.items() if name in listed.scores}}
    count = len(listed.scores) + len(listed.refused)
    if len(rows := {name: row for row, name in enumerate(found.names) if name in listed.scores}) < 2:
        reasons = "".join(f"\n  {name}: {reason}" for name, reason in list(refused.items())[:5])
        few = f"{len(rows)} of the {count} images that {table} lists can be used"
        needed = f"two are needed for a pair, hundreds to learn from{f' ({attribute})' if data.attributes else ''}"
        raise UserError(f"data.source={data.source}: {few}; {needed}{reasons}")
    usable = [each[1] in rows and each[2] in rows for each in listed.pairs]
    labelled = [each for each, use in zip(listed.pairs, usable, strict=True) if use]
    facts: dict[str, Plain] = {
        "source": f"images of {table}",
        "listed": count,
        "quarantined": refused,
        "animated": found.animated,
        "columns": listed.notes,
        "raters": listed.raters,
    }
    scores, unit, theta, at = np.zeros(len(images), np.int64), LATENT, 0, list(rows.values())
    if listed.scored:
        scores[at], unit = whole([listed.scores[name] for name in rows])
        score = dict(zip(rows, scores[at].tolist(), strict=True))
        theta, facts["theta_from"] = _theta(data.theta, scores[at], unit, labelled, score)
        if listed.pairs:
            facts["labels"] = _check_labels(labelled, score, theta, unit, table, len(listed.pairs))
    elif data.theta is not None:
        raise UserError(f"data.theta={data.theta:g}: {table} has no scores, only preferences; leave data.theta out")
    labels = [(rows[a], rows[b], label) for _, a, b, label in labelled]
    return ImageSet(
        images=images,
        thumbnails=thumbnails,
        scores=scores,
        unit=unit,
        theta=theta,
        attribute=attribute,
        groups=[listed.groups.get(name) or name for name in found.names],
        names=found.names,
        families=["image"] * len(found.names),
        facts=facts,
        labels=np.array(labels, np.int64).reshape(-1, 3) if listed.pairs else None,
        errors=np.array([listed.errors.get(name, 0.0) for name in found.names]) if listed.errors else None,
        raters=np.array(listed.answered_by, str)[np.array(usable, bool)],
        scored=listed.scored,
        known=np.isin(np.arange(len(images)), at) if len(at) < len(images) else None,
    )


def _decoded(names: Sequence[str], find: Find, data: Data, found: Usable) -> Iterator[np.ndarray]:
    """Yield usable images (n, S, S, C); their names, and reasons for refusing the others, are added to `found`."""
    some = [names[start : start + FILES_AT_ONCE] for start in range(0, len(names), FILES_AT_ONCE)]
    for squares, part in in_order(partial(_decode, find, data), some, f"decoding images, {FILES_AT_ONCE} at a time"):
        found.names += part.names
        found.refused |= part.refused
        found.animated += part.animated
        yield squares


def _decode(find: Find, data: Data, names: Sequence[str]) -> tuple[np.ndarray, Usable]:
    """Return the images that can be decoded within bounds, their names, and the reasons why others cannot."""
    images, found = [], Usable()
    for name in names:
        try:
            image, animated = image_files.read(find(name), data.size, data.maximum_pixels, data.fit)
        except ValueError as error:
            large = isinstance(error, image_files.TooLargeError)
            found.refused[name] = str(error) + f", or raise data.maximum_pixels={data.maximum_pixels}" * large
            continue
        images.append(image)
        found.names.append(name)
        found.animated += [name] if animated else []
    return np.array(images), found


def _theta(
    given: float | None, scores: np.ndarray, unit: Fraction, labelled: Sequence[LabelledPair], score: Mapping[str, int]
) -> tuple[int, str]:
    """Return theta in units and its origin: the config, the labels of pairs, or a share of all pairs."""
    if given is not None:
        return in_units(given, unit), "data.theta"
    if labelled:
        return fit_theta(labelled, score), "the smallest that agrees with the most labels"
    share = f"the largest that makes at most {SIMILAR_SHARE:.0%} of all pairs similar, or 0"
    return pairs.widest_theta(scores, SIMILAR_SHARE), share


def _check_labels(
    labelled: Sequence[LabelledPair], score: Mapping[str, int], theta: int, unit: Fraction, table: Path, all_pairs: int
) -> dict[str, Plain]:
    """Count the CSV's labels, and those that contradict its scores; UserError if most do."""
    names = {value: name.capitalize() for name, value in LABELS.items()}
    expected = [int(pairs.label(score[a], score[b], theta)) for _, a, b, _ in labelled]
    contradictory = [
        f"line {line}: {a} ({float(score[a] * unit):g}), {b} ({float(score[b] * unit):g}) is labelled {names[given]}, "
        f"but its scores say {names[right]}"
        for (line, a, b, given), right in zip(labelled, expected, strict=True)
        if given != right
    ]
    if len(contradictory) > len(labelled) / 2:
        some = f"{len(contradictory):,} of {len(labelled):,} labels contradict the scores"
        such = f"(theta {float(theta * unit):g}), such as {contradictory[0]}"
        way = "swap the labels or the signs of the scores, or give the data.theta that the labels were made with"
        raise UserError(f"{table}: {some} {such}; First means that img1 has the larger score: {way}")
    return {
        "pairs": all_pairs,
        "of_usable_images": len(labelled),
        "count": {names[value]: count for value, count in sorted(Counter(given for *_, given in labelled).items())},
        "contradict_scores": len(contradictory),
        "examples": contradictory[:NAMED],
    }
