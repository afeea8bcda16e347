"""Prepared images and pairs: decoded, split by group, paired within each part.

<folder>/images/            Arrow, a row per image: name, group, family, part, reference, score
<folder>/images.npy         (N, S, S, C) uint8, a file of its own so that it can be mapped into memory
<folder>/pairs/             Arrow, a row per pair: part, first, second, label
<folder>/comparisons.json   unit, theta, attribute, facts

With data.fold=all, each fold has a subfolder, fold-0, fold-1, ..., with all but the images. In it, or else in
<folder>, each of several data.attributes has one, attribute-0, ...; its parts lack the images without its score.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import torch
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from torch import Tensor

from common.disk.files import write_json
from common.errors import UserError
from common.plain import Plain
from models.images import image_files
from models.images.people.preferences import UNKNOWN, Prior
from models.images.people.raters import fitted
from models.images.ranking import FIRST, SECOND, SIMILAR
from pipelines.workloads.lmol import pairs, sources
from pipelines.workloads.lmol.config import Config, Data
from pipelines.workloads.lmol.pairs import PARTS
from pipelines.workloads.lmol.sources.image_set import ImageSet, Scored

IMAGES = "images.npy"
CLASSES = ("First", "Second", "Similar")
REFERENCES_PER_BIN = 10  # of the training images


@dataclass(frozen=True, kw_only=True)
class Comparisons(Scored):
    """Prepared images and pairs; no group is in two parts."""

    unit: float  # of the scores and theta, on the user's scale
    parts: dict[str, np.ndarray]  # "train", "validation" and "test": (n,) int64, image numbers
    pairs: dict[str, np.ndarray]  # by part: (P, 3) int64, columns first, second, label
    references: np.ndarray  # (R,) int64, numbers of training images that cover the scale

    @property
    def shares(self) -> list[float]:
        """Shares of First, Second and Similar among all pairs of training images, or among all answers about them."""
        return pairs.natural_shares(self.scores[self.parts["train"]], self.theta) if self.scored else self.answered

    @property
    def answered(self) -> list[float]:
        """Shares of First, Second and Similar among training pairs, add-one smoothed so that all have a logarithm."""
        counts = np.bincount(self.pairs["train"][:, 2], minlength=len(CLASSES)) + 1.0
        counts[[FIRST, SECOND]] = counts[[FIRST, SECOND]].mean()  # the same answer in two orders
        return list(map(float, counts / counts.sum()))


class Images:
    """A subset of the images, read from their file on use, by worker processes if there are any."""

    def __init__(self, images: np.ndarray, rows: np.ndarray, workers: int = 0):
        self.images, self.rows, self.workers, self.size = images, rows, workers, len(rows)

    def __getitem__(self, items: Tensor) -> Tensor:
        """Return images (b, C, S, S) uint8 for `items` (b,), on the CPU."""
        return torch.from_numpy(self.images[self.rows[items.cpu().numpy()]]).movedim(-1, 1).contiguous()

    def batch(self, items: Tensor) -> dict[str, Tensor]:
        """Return {"image": (b, C, S, S)}."""
        return {"image": self[items]}


def prepare(config: Config, folder: Path) -> Mapping[str, Plain]:
    """Write images, decoded by all cores, and pairs; return facts for the manifest.

    Raises UserError for a source that cannot be used, or is too small or too uniform to compare.
    """
    found = sources.read(config.data, folder / IMAGES)
    groups, merged = grouped(found)
    found = replace(found, groups=groups, facts={**found.facts, "near_duplicates": merged})
    sets = [found, *(replace(other, groups=groups) for other in found.others)]
    folds = range(config.data.folds) if config.data.fold == "all" else [config.data.fold]
    each = []
    for fold in folds:
        home = folder / fold_name(fold) if len(folds) > 1 else folder
        homes = [home / f"attribute-{n}" if found.others else home for n in range(len(sets))]
        own = [_prepare_fold(config.data, fold, *one) for one in zip(sets, homes, strict=True)]
        each.append(_together("attributes", own))
    return _together("folds", each)


def _together(name: str, each: Sequence[dict[str, Plain]]) -> dict[str, Plain]:
    """Merge facts: those that all share, one note, and under `name` a list of each one's own."""
    if len(each) == 1:
        return each[0]
    notes = [str(fact) for facts in each if (fact := facts.pop("note", None))]
    note = {"note": "\n".join(notes if name == "attributes" else notes[:1])} if notes else {}
    same = {key: fact for key, fact in each[0].items() if all(facts.get(key) == fact for facts in each)}
    own: list[Plain] = [{key: fact for key, fact in facts.items() if key not in same} for facts in each]
    return {**same, name: own, **note}


def fold_name(fold: int | str) -> str:
    """Return the name of a fold's member and of its folder."""
    return f"fold-{fold}"


def expand(config: Config, folder: Path) -> dict[str, Config]:
    """Return the config of each fold's member; {} for a run of one fold."""
    if config.data.fold != "all":
        return {}
    each = {fold: config.data.model_copy(update={"fold": fold}) for fold in range(config.data.folds)}
    return {fold_name(fold): config.model_copy(update={"data": data}) for fold, data in each.items()}


def _prepare_fold(data: Data, fold: int, found: ImageSet, folder: Path) -> dict[str, Plain]:
    """Write all but the images, with `fold` as test part; return the fold's facts."""
    parts = pairs.split(found.groups, data.folds, fold, data.seed)
    if found.known is not None:
        parts = {name: rows[found.known[rows]] for name, rows in parts.items()}
    if found.scored:
        _check(found, parts, data)
        drawn = _drawn(found, parts, data)
    else:
        found, parts, drawn = _preferred(found, parts, data)
    references = parts["train"][pairs.references(found.scores[parts["train"]], REFERENCES_PER_BIN)]
    common = {each.name: getattr(found, each.name) for each in fields(Scored)}
    comparisons = Comparisons(**common, unit=float(found.unit), parts=parts, pairs=drawn, references=references)
    facts = {**found.facts, "unit": str(found.unit), **_counts(comparisons)}
    if few := pairs.too_few(len(parts["test"]), drawn["test"][:, 2], data.folds):
        facts["note"] = f"{found.attribute}: {few}" if data.attributes else few
    _save(folder, comparisons, facts)
    return facts


def load(folder: Path, fold: int | str = 0, attribute: int | None = None) -> Comparisons:
    """Return prepared images and pairs, of the given fold and attribute where `prepare` wrote several."""
    import datasets

    images = folder / IMAGES
    folder = own if (own := folder / fold_name(fold)).is_dir() else folder
    folder = folder if attribute is None else folder / f"attribute-{attribute}"
    table = datasets.load_from_disk(folder / "images").data.table
    asked = datasets.load_from_disk(folder / "pairs").data.table
    part, asked_part = (np.array(each["part"].to_pylist(), str) for each in (table, asked))
    rows = np.column_stack([asked[name].to_numpy() for name in ("first", "second", "label")]).astype(np.int64)
    errors = table["error"].to_numpy().copy()
    trust = asked["trust"].to_numpy()[asked_part == "train"] if "trust" in asked.column_names else np.ones(1)
    return Comparisons(
        images=np.asarray(np.load(images, mmap_mode="c")),  # torch takes no views of an array in mode "r"
        scores=table["score"].to_numpy().copy(),
        groups=table["group"].to_pylist(),
        names=table["name"].to_pylist(),
        families=table["family"].to_pylist(),
        parts={name: np.flatnonzero(part == name) for name in PARTS},
        pairs={name: rows[asked_part == name] for name in PARTS},
        references=np.flatnonzero(table["reference"].to_numpy(zero_copy_only=False)),
        errors=errors if errors.any() else None,
        trust=trust if trust.min(initial=1) < 1 else None,
        **json.loads((folder / "comparisons.json").read_text()),  # theta, unit, attribute, scored, facts
    )


def _drawn(found: ImageSet, parts: Mapping[str, np.ndarray], data: Data) -> dict[str, np.ndarray]:
    """Return the pairs (P, 3) of each part, labelled by scores; people's labels are trained on as given."""
    train = pairs.training(found.scores, parts["train"], found.theta, data.train_pairs, data.degree, data.seed)
    if found.labels is not None:
        given = found.labels[np.isin(found.labels[:, :2], parts["train"]).all(1)]
        made, asked = (np.sort(each[:, :2], axis=1) @ [len(found.scores), 1] for each in (train, given))
        train = np.concatenate([given, train[~np.isin(made, asked)]])
    if not len(train):
        few = f"of {len(parts['train'])} training images, none in more pairs"
        lacking = "no two pairs of different images and one of similar ones can be made"
        raise UserError(f"data.degree={data.degree}: {few}, {lacking}; give a larger data.degree, or more images")
    count, seed = data.evaluation_pairs, data.seed
    judged = {part: pairs.evaluation(found.scores, parts[part], found.theta, count, seed) for part in PARTS[1:]}
    return {"train": train, **judged}


def _preferred(
    found: ImageSet, parts: Mapping[str, np.ndarray], data: Data
) -> tuple[ImageSet, dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Return the images with scores, the images of each part, and its pairs (P, 3), labelled by people.

    An answer belongs to the last part that one of its images is in: of a test pair at least one image was not trained
    on. The scores of training images are fitted to the training answers alone, those of the others to all answers.
    Training images without a training answer are left out. UserError for an empty part.
    """
    assert found.labels is not None, "preferences are labels"
    part = np.argmax([np.isin(np.arange(len(found.scores)), parts[name]) for name in PARTS], axis=0)
    of_answer = part[found.labels[:, :2]].max(axis=1)
    answers = {name: found.labels[of_answer == number] for number, name in enumerate(PARTS)}
    if few := next((name for name in PARTS if not len(answers[name])), None):
        none = f"data.source={data.source}: none of the {len(found.labels)} answers falls to the {few} part"
        raise UserError(f"{none}; give more answers, or a smaller data.folds={data.folds}")
    compared = np.unique(answers["train"][:, :2])
    who = np.full(len(found.labels), "") if found.raters is None else found.raters
    blank = Prior(np.zeros(len(part)), np.full(len(part), UNKNOWN))
    heard = fitted(answers["train"], blank, who[of_answer == 0].tolist())
    trained = heard.posterior(answers["train"])
    whole = fitted(found.labels, blank, who.tolist()).posterior(found.labels)
    scores = whole.scores + (trained.scores - whole.scores)[compared].mean()
    scores[compared] = trained.scores[compared]
    unit = float(found.unit)
    generator = np.random.default_rng([data.seed, 1])
    for name in ("validation", "test"):
        answers[name] = generator.permutation(answers[name])[: data.evaluation_pairs]
    made = replace(
        found,
        scores=np.rint(scores / unit).astype(np.int64),
        # Where the difference of two scores is less, Similar is the likeliest answer.
        theta=round(max(0.0, 2 * trained.tie) / unit),
        facts={
            **found.facts,
            "answers": {name: len(rows) for name, rows in answers.items()},
            "raters": heard.raters.table() if heard.raters else [],
        },
        trust=heard.raters.factor[heard.raters.of].clip(0, 1) if heard.raters else None,
    )
    return made, {**parts, "train": compared}, answers


def grouped(found: ImageSet) -> tuple[list[str], list[list[str]]]:
    """Return the group of each image, and pairs of names of near duplicates whose groups were merged."""
    _, number = np.unique(found.groups, return_inverse=True)
    near = image_files.near_duplicates(found.thumbnails)
    near = near[number[near[:, 0]] != number[near[:, 1]]]
    edges = (np.ones(len(near)), (number[near[:, 0]], number[near[:, 1]]))
    _, component = connected_components(coo_array(edges, shape=(number.max() + 1,) * 2), directed=False)
    component = component[number]
    first = {each: found.groups[row] for row, each in reversed(list(enumerate(component)))}
    return [first[each] for each in component], [[found.names[i], found.names[j]] for i, j in near]


def _check(found: ImageSet, parts: Mapping[str, np.ndarray], data: Data) -> None:
    """Raise UserError if a part has no pair, or if one of the answers never occurs in training."""
    if small := next((part for part in PARTS if len(parts[part]) < 2), None):
        usable = len(found.scores) if found.known is None else found.known.sum()
        lacking = f"of {usable} usable images the {small} part has {len(parts[small])}, but two are needed"
        more = f"give more images, or a smaller data.folds={data.folds}"
        raise UserError(f"data.source={data.source}: {lacking}; {more}")
    scores = np.sort(found.scores[parts["train"]])
    similar = pairs.natural_shares(scores, found.theta)[SIMILAR]
    widest, nearest = (float(units * found.unit) for units in (scores[-1] - scores[0], np.diff(scores).min()))
    theta = float(found.theta * found.unit) if data.theta is None else data.theta
    if similar == 1:
        raise UserError(
            f"data.source={data.source}: the scores of the {len(scores)} training images differ by {widest:g} at most, "
            f"and images are similar up to data.theta={theta:g}, so every pair is Similar; "
            + (f"give a data.theta below {widest:g}" if widest else "give images with different scores")
        )
    if similar == 0:
        none = f"no two of the {len(scores)} training images differ by data.theta={theta:g} or less"
        way = f"Similar could not be learned; give a data.theta of {nearest:g} or more"
        raise UserError(f"data.source={data.source}: {none}, so {way}")


def _counts(found: Comparisons) -> dict[str, Plain]:
    facts: dict[str, Plain] = {
        "images": len(found.images),
        "size": found.images.shape[1],
        "channels": found.images.shape[3],
        "groups": len(set(found.groups)),
        "theta": found.theta * found.unit,
        "attribute": found.attribute,
        "references": len(found.references),
    }
    for part in PARTS:
        images, rows = found.parts[part], found.pairs[part]
        natural = pairs.natural_shares(found.scores[images], found.theta) if found.scored else found.shares
        facts[part] = {
            "images": len(images),
            "groups": len({found.groups[image] for image in images}),
            "pairs": len(rows),
            "labels": dict(zip(CLASSES, np.bincount(rows[:, 2], minlength=3).tolist(), strict=True)),
            "natural_shares": dict(zip(CLASSES, natural, strict=True)),
        }
    return facts


def _save(folder: Path, found: Comparisons, facts: Mapping[str, Plain]) -> None:
    import datasets

    datasets.disable_progress_bars()
    count = len(found.images)
    part = {row: name for name, rows in found.parts.items() for row in rows.tolist()}
    images = pa.table(
        {
            "name": found.names,
            "group": found.groups,
            "family": found.families,
            "part": pa.array(map(part.get, range(count)), pa.string()),
            "reference": np.isin(np.arange(count), found.references),
            "score": found.scores,
            "error": np.zeros(count) if found.errors is None else found.errors,
        }
    )
    rows = np.concatenate([found.pairs[name] for name in PARTS])
    trust = np.ones(0) if found.trust is None else found.trust  # the training pairs come first
    asked = pa.table(
        {
            "part": pa.array(np.repeat(PARTS, [len(found.pairs[name]) for name in PARTS]), pa.string()),
            "first": rows[:, 0],
            "second": rows[:, 1],
            "label": rows[:, 2].astype(np.int8),
            "trust": np.pad(trust, (0, len(rows) - len(trust)), constant_values=1.0),
        }
    )
    datasets.Dataset(images).save_to_disk(folder / "images")
    datasets.Dataset(asked).save_to_disk(folder / "pairs")
    stored = {name: getattr(found, name) for name in ("unit", "theta", "attribute", "scored")}
    write_json(folder / "comparisons.json", {**stored, "facts": facts})
