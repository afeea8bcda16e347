"""A user's table of images and scores, or of labelled pairs: found, read and checked, without opening an image."""

import hashlib
import math
import os
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import unquote

import numpy as np

from common.errors import UserError
from common.foreign_text import printable
from models.images.inputs import ENDINGS, visible_in
from models.images.ranking import FIRST, SECOND, SIMILAR
from pipelines.workloads.lmol.sources import scores as ratings
from pipelines.workloads.lmol.sources.columns import FORMS, NEEDED, assigned, lists_in, rows_of
from pipelines.workloads.lmol.sources.scores import LONE_RATING, LONE_SCORE, SCALE, LabelledPair, averaged, number

EMBEDDED = ("digits", "photos")
WAYS = f"give digits, photos, a folder of images with a CSV of them, one with a folder per rank, or a CSV: {NEEDED}"
LABELS = {"first": FIRST, "second": SECOND, "similar": SIMILAR}
ALSO = {word: LABELS[label] for label, words in FORMS["labels"].items() for word in words}
TRUE, FALSE = ("1", "true", "yes", "tie"), ("0", "false", "no", "")
NAMES = {"image", "first", "second", "winner", "loser"}  # what columns of images hold
SCORES = {"score", "score1", "score2"}
Rows = Sequence[tuple[int, dict[str, str]]]  # (line, {column, or what it holds: value})
COMMA = re.compile(r"[-+]?(?:0?,|\d+,(?!\d{3}$))\d+")  # a decimal comma; 1,234 may be a thousand
MOST_VOTES = 1000  # answers per row


@dataclass
class Listed:
    """The images that a table lists."""

    scores: dict[str, str] = field(default_factory=dict)  # as written, by the image's name; "" if there are none
    groups: dict[str, str] = field(default_factory=dict)
    errors: dict[str, float] = field(default_factory=dict)  # standard errors of scores, if known
    refused: dict[str, str] = field(default_factory=dict)  # reason by name
    pairs: list[LabelledPair] = field(default_factory=list)
    answered_by: list[str] = field(default_factory=list)  # raters of `pairs`, "" if unknown
    scored: bool = True  # False if there are preferences only
    notes: list[str] = field(default_factory=list)  # on guesses
    raters: list[dict[str, Any]] = field(default_factory=list)  # of each: ratings, level, noise

    def add(self, name: str, score: str) -> None:
        """Add an image's score; one that is not a number, or differs from an earlier one, makes the image unusable."""
        if number(score) is None:
            self.refused[name] = f"its score is {score!r}, which is not a number; write one, as 7.6"
        elif name in self.scores and number(self.scores[name]) != number(score):
            self.refused[name] = f"it has the scores {self.scores[name]} and {score}"
        self.scores.setdefault(name, score)


def read_table(table: Path, columns: Mapping[str, str] | None, root: Path | None = None, rows: Rows = ()) -> Listed:
    """Return what a table lists, its columns by given or usual names; UserError if columns or labels make no sense.

    Image names are relative to `root`, by default the table's folder. `rows`, if given, replace the file's.
    """
    root = root or home(table)
    if not rows and table.is_dir() and not lists_in(table):
        return _of_ranks(table)
    header, rows = (list(rows[0][1]), rows) if rows else rows_of(table)
    layout, used, notes = assigned(str(table), header, columns)
    named = [(line, {holds: row[column] for holds, column in used.items()}) for line, row in rows]
    for _, row in named:
        row |= {name: _plain(root, row[name]) for name in NAMES & used.keys()}
    notes += _without_scale([row for _, row in named])
    moved, found = located(dict.fromkeys(row[name] for name in NAMES & used.keys() for _, row in named), root)
    for _, row in named:
        row |= {name: moved[row[name]] for name in NAMES & used.keys() if row[name] in moved}
        if moved and "label" in row:
            row["label"] = moved.get(_plain(root, row["label"]), row["label"])
    listed = Listed(notes=notes + found, scored=layout in ("images", "scored pairs"))
    if layout == "choices":
        named = [(line, _as_pair(table, line, row)) for line, row in named]
    (_images if layout == "images" else partial(_pairs, root=root))(listed, table, named)
    if rows and layout == "pairs" and not listed.pairs:
        raise UserError(f"{table} has no label yet; fill in its column {used['label']} with First, Second or Similar")
    if not listed.scores:
        raise UserError(f"{table} lists no image; {WAYS}")
    for name in listed.refused:
        del listed.scores[name]
    return listed


def _without_scale(rows: Sequence[dict[str, str]]) -> list[str]:
    """Give scores a decimal point and strip a scale, as /10, that all of them end in; return a note on the scale."""
    cells = [(row, name) for row in rows for name in SCORES & row.keys() if row[name]]
    scales = {match[1] for row, name in cells if (match := SCALE.search(row[name]))}
    texts = [SCALE.sub("", row[name]) if len(scales) == 1 else row[name] for row, name in cells]
    texts = [text.replace(",", ".") if COMMA.fullmatch(text) else text for text in texts]
    scale = scales.pop() if len(scales) == 1 else None
    if scale and scale != "%" and any((number(text) or 0) > int(scale[1:]) for text in texts):
        return []  # such as the month in 2024/5
    for (row, name), text in zip(cells, texts, strict=True):
        row[name] = text
    return [f"scores are read without the scale behind each, {scale}"] if scale else []


def _plain(root: Path, name: str) -> str:
    """Return `./a.png` or `.\\a.png` as `a.png`; paths outside the folder stay as given, to be refused by that name."""
    if not name or "\0" in name:
        return name
    if "\\" in name and not (root / name).exists():  # as Windows writes paths
        name = name.replace("\\", "/")
    plain = os.path.relpath(name, root.absolute()) if os.path.isabs(name) else os.path.normpath(name)
    return name if plain.startswith(os.pardir) else plain


def _images(listed: Listed, table: Path, rows: Rows) -> None:
    """Add images with their scores and standard errors; ratings of one image are averaged."""
    given: dict[str, list[tuple[str, str]]] = {}  # rater and score
    spreads: dict[str, tuple[float, float]] = {}  # deviation and number of an image's ratings, as the table says
    for line, row in rows:
        name = row["image"]
        given.setdefault(name, []).append((row.get("rater", ""), row["score"]))
        listed.groups.setdefault(name, row.get("group", ""))
        if row.get("count"):
            count = _number(table, line, "count", row["count"])
            deviation = _number(table, line, "std", row["std"]) if row.get("std") else math.nan
            if deviation < 0 or count < 1:
                raise UserError(f"{table}, line {line}: std is {deviation:g} and count {count:g}; give 0 and 1 or more")
            spreads[name] = deviation, count
    several = sum(len(each) > 1 for each in given.values())
    differing = sum(len({number(score) for _, score in each}) > 1 for each in given.values())
    ordinary = several > 0.7 * len(given) and differing > 0.1 * len(given)  # else, a second score is a mistake
    rated = bool(rows) and ("rater" in rows[0][1] or ordinary or differing > len(given) / 2)
    sound = [name for name, each in given.items() if all(number(score) is not None for _, score in each)]
    for name, each in given.items():
        if not rated or name not in sound:
            for _, score in each:
                listed.add(name, score)
    if not rated:
        _stated(listed, spreads)
    elif sound:
        _averaged(listed, {name: given[name] for name in sound})
    if rated and spreads:
        listed.notes.append("count and std are ignored, as every row counts as one rating")
    elif rows and "std" in rows[0][1] and "count" not in rows[0][1]:
        listed.notes.append("std is ignored: without a column count it does not give the standard error of a score")


def _stated(listed: Listed, spreads: Mapping[str, tuple[float, float]]) -> None:
    """Add standard errors of scores given once each, from the table's deviations and numbers of ratings."""
    names = [name for name in listed.scores if name not in listed.refused]
    scores = np.array([float(listed.scores[name]) for name in names])
    deviations, counts = np.array([spreads.get(name, (math.nan, 1.0)) for name in names]).reshape(-1, 2).T
    lone, given = scores.std() if len(scores) else 0.0, ~np.isnan(deviations)
    if given.any():
        pooled = np.where(given, counts, 1.0)
        errors = ratings.standard_errors(1 / np.sqrt(counts), np.nan_to_num(deviations), pooled, LONE_RATING * lone)
        if (pooled <= 1).all():
            errors = np.where(given, deviations, errors)
    else:
        share = LONE_RATING if spreads else LONE_SCORE
        errors = share * lone / np.sqrt(counts)
        listed.notes.append(
            f"no image has two ratings, so the standard error of {'a rating' if spreads else 'a score'} is taken to be "
            f"{share:g} of the scores' deviation, {share * lone:.3g}; columns std and count state it (0 and 1: exact)"
        )
    listed.errors |= dict(zip(names, errors.tolist(), strict=True))


def _averaged(listed: Listed, given: Mapping[str, Sequence[tuple[str, str]]]) -> None:
    """Add the means of ratings {image: [(rater, score)]}, corrected for each rater's level and noise."""
    flat = [(i, rater, score) for i, each in enumerate(given.values()) for rater, score in each]
    raters, number_of = np.unique([rater for _, rater, _ in flat], return_inverse=True)
    values = np.array([float(score) for *_, score in flat])
    scores, errors, levels, noises = averaged(np.array([i for i, *_ in flat]), number_of, values)
    for (name, each), score, error in zip(given.items(), scores, errors, strict=True):
        listed.add(name, each[0][1] if len({score for _, score in each}) == 1 and len(raters) == 1 else f"{score:.6f}")
        listed.errors[name] = float(error)
    listed.notes.append(f"{len(flat):,} ratings of {len(given):,} images were averaged")
    if len(flat) == len(given):
        listed.notes.append(f"nothing is rated twice: a rating's standard error is taken to be {errors[0]:.3g}")
    elif len(raters) > 1:
        listed.raters = [
            {"rater": str(name), "ratings": int((number_of == i).sum()), "level": float(level), "noise": float(noise)}
            for i, (name, level, noise) in enumerate(zip(raters, levels, noises, strict=True))
        ]
        worst = max(listed.raters, key=lambda each: each["noise"])
        usual = f"{len(raters)} raters, whose noise is {np.median(noises):.3g} in the median"
        listed.notes.append(f"{usual}; the noisiest, {worst['rater']}, has {worst['noise']:.3g}")


def _pairs(listed: Listed, table: Path, rows: Rows, root: Path) -> None:
    """Add pairs with their labels, and scores where the rows have them."""
    if open_rows := [line for line, row in rows if not row["label"]]:
        pairs = "1 pair has" if len(open_rows) == 1 else f"{len(open_rows):,} pairs have"
        listed.notes.append(f"{pairs} no label yet, the first in line {open_rows[0]}")
    others: dict[str, int] = {}  # first line of each label of ALSO
    rows = [(line, row) for line, row in rows if row["label"]]
    stems = [{Path(row[each]).stem.lower(): LABELS[each] for each in ("second", "first")} for _, row in rows]
    bare = all(row["label"].lower() in own for (_, row), own in zip(rows, stems, strict=True))  # names without endings
    either = bare and all(row["label"].lower() in ALSO for _, row in rows)
    for (line, row), own in zip(rows, stems, strict=True):
        text = row["label"].rstrip(".").lower()
        own = {**(own if bare else {}), row["first"].lower(): FIRST, row["second"].lower(): SECOND}
        label = LABELS.get(text, own.get(_plain(root, row["label"]).lower()))
        if either and label != ALSO[text]:
            raise UserError(f"{table}, line {line}: the label {text!r} may be either image; write First or Second")
        if label is None and text in ALSO:
            label = ALSO[text]
            others.setdefault(text, line)
        if label is None:
            known = "First (img1 ranks higher), Second or Similar"
            raise UserError(f"{table}, line {line}: the label is {row['label']!r}; it must be {known}")
        for name, score in ((row["first"], "score1"), (row["second"], "score2")):
            listed.add(name, row[score]) if score in row else listed.scores.setdefault(name, "")
        votes = _votes(table, line, row)
        listed.pairs += [(line, row["first"], row["second"], label)] * votes
        listed.answered_by += [row.get("rater", "")] * votes
    if {"0", "1"} <= others.keys() and SECOND not in {label for *_, label in listed.pairs}:
        unsaid = f"{table}, line {others['0']}: the label is '0', and no row says that img2 ranks higher"
        way = "0 may mean Second or Similar: write the one that it means in place of 0"
        raise UserError(f"{unsaid}; beside 1 for First, {way}")


def _as_pair(table: Path, line: int, row: Mapping[str, str]) -> dict[str, str]:
    """Return a winner and a loser as a labelled pair, in an order independent of who won."""
    if (tie := row.get("tie", "").lower()) not in (*TRUE, *FALSE):
        raise UserError(f"{table}, line {line}: tie is {row['tie']!r}; it must be 1 or 0")
    names = sorted((row["winner"], row["loser"]))
    if hashlib.sha256("\n".join(names).encode("utf-8", "replace")).digest()[0] % 2:
        names.reverse()
    label = "similar" if tie in TRUE else "first" if names[0] == row["winner"] else "second"
    return {**row, "first": names[0], "second": names[1], "label": label}


def _votes(table: Path, line: int, row: Mapping[str, str]) -> int:
    """Return the number of answers in a row. Raises UserError for an image compared with itself."""
    if row["first"] == row["second"]:
        raise UserError(f"{table}, line {line}: {row['first']!r} is compared with itself; give two images")
    count = _number(table, line, "count", row["count"]) if row.get("count") else 1.0
    if count != int(count) or not 0 <= count <= MOST_VOTES:
        raise UserError(f"{table}, line {line}: count is {row['count']}; give a whole number from 0 to {MOST_VOTES}")
    return int(count)


def _number(table: Path, line: int, column: str, text: str) -> float:
    if (value := number(text)) is None:
        raise UserError(f"{table}, line {line}: {column} is {text!r}, which is not a number")
    return float(value)


def ranks(folder: Path) -> dict[Path, str]:
    """Return the folders in a folder that hold images, with the number at the beginning of their names, or ""."""
    inside = sorted(each for each in folder.iterdir() if each.is_dir() and not each.name.startswith("."))
    return {each: "".join(re.findall(r"\A-?\d+(?:\.\d+)?", each.name)) for each in inside if _images_in(each)}


def _of_ranks(folder: Path) -> Listed:
    """Return the images in the folders of a folder, each scored by the number that its folder's name begins with."""
    found, listed = ranks(folder), Listed()
    if (nameless := [each.name for each, rank in found.items() if not rank]) or len(set(found.values())) < 2:
        but = f"the name of the folder {nameless[0]} does not begin with a" if nameless else "its folders have only one"
        way = "name the folders of images by their rank, as 1-poor, 2-fair, 3-good, or give a CSV"
        raise UserError(f"data.source={folder}: there is no CSV, and {but} rank; {way}")
    for each, rank in found.items():
        for path in _images_in(each):
            listed.add(f"{each.name}/{path.name}", rank)
    listed.notes.append(f"images are scored by their folders: {', '.join(each.name for each in found)}")
    return listed


def _images_in(folder: Path) -> list[Path]:
    return sorted(each for each in folder.iterdir() if each.suffix.lower() in ENDINGS and not each.name.startswith("."))


def located(names: Iterable[str], folder: Path) -> tuple[dict[str, str], list[str]]:
    """Return {name: path below `folder`} of images that are not where their names say, and notes about them.

    A name may have other folders, case or accents, no ending, be a URL or Label Studio's; it must fit one file alone,
    and that file no other image's name: a.png may be either of x/a.png and y/a.png.
    """
    inside = (name for name in names if name and ".." not in PurePosixPath(name).parts)
    if not (missing := [name for name in inside if not (folder / name).is_file()]):
        return {}, []
    below = defaultdict(list)
    for path in (each for each in visible_in(folder) if each.suffix.lower() in ENDINGS):
        inner = path.relative_to(folder).as_posix()
        known = PurePosixPath(unicodedata.normalize("NFC", inner).lower())
        for each in (known, known.with_suffix("")):
            below[each.name].append((f"/{each}", inner))
    fitting, called = {}, defaultdict(set)
    for name in missing:
        plain = unicodedata.normalize("NFC", re.sub(r"\?.*|(?<=/)[0-9a-f]{8}-", "", f"/{unquote(name)}")).lower()
        likely = below[PurePosixPath(plain).name]
        fitting[name] = [path for known, path in likely if known.endswith(plain) or plain.endswith(known)]
        for inner in fitting[name]:
            called[inner].add(str(PurePosixPath(plain).with_suffix("")))
    shared = {path for path, each in called.items() if not all(max(each, key=len).endswith(one) for one in each)}
    found = {name: paths[0] for name, paths in fitting.items() if len(paths) == 1 and paths[0] not in shared}
    notes = [f"images are found below {folder}, such as {next(iter(found.values()))}"] if found else []
    unclear = [f"{name} ({', '.join(paths[:2])})" for name, paths in fitting.items() if len(paths) > 1]
    both = ("names that fit several files", unclear), ("files that several names fit", sorted(shared))
    return found, notes + [f"{what} are not used: {each[0]}{', ...' * (len(each) > 1)}" for what, each in both if each]


def passed_over(folder: Path, used: Collection[Path], images: str) -> list[str]:
    """Return a note with counts by kind of a folder's unused files, except hidden ones; `images` names images."""
    known = {path.absolute() for path in used}
    endings = (path.suffix.lower() for path in visible_in(folder) if path.is_file() and path.absolute() not in known)
    kinds = Counter(images if each in ENDINGS else printable(each, 20) or "without an ending" for each in endings)
    listed = ", ".join(f"{kind} ({count:,})" for kind, count in sorted(kinds.items()))
    return [f"passed over in {folder}: {listed}"] if listed else []


def home(table: Path, source: Path | None = None) -> Path:
    """Return the folder that the names in a table are relative to: its own, or the `source` if that is above it."""
    if source and source.is_dir() and table.is_relative_to(source):
        return source
    return table if table.is_dir() else table.parent


def within(folder: Path, name: str) -> Path:
    """Return the path of the image called `name` in a CSV of `folder`; ValueError if it lies elsewhere."""
    path = folder / name
    if not name:
        raise ValueError("no image is named in its row")
    if "\0" in name or not path.resolve().is_relative_to(folder.resolve()):
        raise ValueError(f"not below {folder}, the folder of the CSV; move the CSV to a folder above all of its images")
    return path
