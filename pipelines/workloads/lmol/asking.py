"""A ranking of images by people's answers about pairs, and the pairs to ask about next."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from common import config
from common.config import Section
from common.config.overrides import warn_of_repeated
from common.disk.files import write_text
from common.errors import UserError, as_user_error
from common.foreign_text import to_csv
from common.statistics import Z95
from models import io
from models.images import image_files
from models.images.comparator.interface import AT_ONCE, Comparator
from models.images.inputs import ENDINGS, MOST_PIXELS, visible_in
from models.images.people.preferences import UNKNOWN, Posterior, Prior, next_pairs
from models.images.people.raters import Fitted, fitted, ranked
from models.images.ranking import SWAPPED
from models.images.texture import texture
from pipelines.workloads.lmol.config import Columns
from pipelines.workloads.lmol.sources.columns import layout_of, plain, rows_of
from pipelines.workloads.lmol.sources.finding import ANSWERS, RANKING, UNLABELLED, by_attribute, find_answers, kind_of
from pipelines.workloads.lmol.sources.tables import Listed, passed_over, read_table

SIDE = 64  # pixels, of the squares described by texture if there is no model
PROPOSED = "answers.csv"  # name of the table of answers
MOST_IMAGES = 20_000  # their squares are in memory at once


@dataclass(frozen=True)
class PeoplesRanking:
    """A ranking of images by people's answers."""

    names: Sequence[str]
    answers: np.ndarray  # (P, 3) first, second, label
    posterior: Posterior
    fitted: Fitted
    notes: Sequence[str]
    folder: Path  # of the images
    table: Path | None  # of the answers
    columns: Mapping[str, int | str]  # of that table or of a new one -> place of an image in its pair, or constant cell
    then: str  # what to do with the next pairs

    def write_ranking(self, path: Path, following: Path | None = None) -> str:
        """Write a CSV of scores about 0 with 95 % intervals, highest first; return a line about it."""
        if not len(self.answers):
            first = f"label the pairs in {following} first" if following else "begin with --next next.csv"
            trained = f"a trained model with pipelines/predict.py --workload lmol --model FOLDER {self.folder}"
            raise UserError(f"{path} is not written, as there are no answers yet: {first}, or rank by {trained}")
        scores, errors = self.posterior.scores - self.posterior.scores.mean(), self.posterior.errors
        heard = np.bincount(self.answers[:, :2].ravel(), minlength=len(self.names))
        rows = (
            (self.names[i], *(f"{scores[i] + z * Z95 * errors[i]:.4f}" for z in (0, -1, 1)), str(heard[i]))
            for i in np.argsort(-scores, kind="stable")
        )
        write_text(path, to_csv(("image", "score", "low", "high", "answers"), rows))
        return f"{path}: scores of {_count(len(scores), 'image')}, with 95 % intervals"

    def write_next(self, path: Path, count: int, seed: int) -> str:
        """Write the next pairs, without labels, in the table's form; return a line about them and the next step."""
        pairs = next_pairs(self.fitted.posterior(self.answers), count, self.answers, seed)
        rows = ([self.names[pair[of]] if isinstance(of, int) else of for of in self.columns.values()] for pair in pairs)
        write_text(path, to_csv(list(self.columns), rows))
        if not len(pairs):
            return f"{path}: no pairs{', as all have been asked about' * (count > 0)}"
        return f"{path}: {_count(len(pairs), 'pair')} to ask about; {self.then}, and ask again"


class _Data(Section):
    columns: Columns = Columns()
    attribute: str | None = None  # of several in a table, or of a model


class _Asked(Section):
    data: _Data = _Data()


def rank(source: Path, model: Path | None, outputs: Sequence[Path] = (), words: Sequence[str] = ()) -> PeoplesRanking:
    """Rank images by answers in or at `source`; UserError for unusable input, or if writing `outputs` loses answers.

    `words` name columns of the answers, as data.columns.winner=PICKED, and the attribute, as data.attribute=NAME.
    """
    warn_of_repeated(words)
    asked = config.build(_Asked, {}, words, "of answers").data
    columns = asked.columns.given() or None
    if not source.exists():
        raise UserError(f"{source}: there is no such file or folder; give a folder of images, or a CSV of answers")
    table, unknown_tables = find_answers(source, columns)
    folder = table.parent if table else source  # names are relative to it
    of_model = model and table and not _about(rows_of(table)[0])  # the attribute, as the table names none
    about = [asked.attribute] if asked.attribute and not of_model else []
    listed = by_attribute(table, columns, about)[0] if table else Listed()
    if table and listed.scored:
        raise UserError(f"{source} has scores; answers are img1,img2,label or winner,loser")
    pairs = listed.pairs
    for path in outputs:
        _check_nothing_is_lost(path, table or folder / PROPOSED, columns)
    given = source if source.is_dir() else folder
    files = [path for path in visible_in(given) if path.suffix.lower() in ENDINGS]
    if not 2 <= len(files) <= MOST_IMAGES:
        raise UserError(f"{given} holds {len(files):,} images; give a folder of 2 to {MOST_IMAGES:,}")
    comparator = _comparator(model, asked.attribute) if model else None
    names, pixels, aside = _read(folder, files, comparator)
    row = {name: i for i, name in enumerate(names)}
    known = [
        ((row[a], row[b], label), rater)
        for (_, a, b, label), rater in zip(pairs, listed.answered_by, strict=True)
        if {a, b} <= row.keys()
    ]
    if pairs and not known:
        raise UserError(f"{table}: none of its {_count(len(pairs), 'answer')} is about two images that can be used")
    answers = np.array([answer for answer, _ in known], np.int64).reshape(-1, 3)
    found = fitted(answers, _before_answers(comparator, pixels), [rater for _, rater in known])
    unknown = len(pairs) - len(answers)
    heard = f"{_count(len(answers), 'answer')} about {len(np.unique(answers[:, :2])):,} of {len(names):,} images"
    notes = [
        f"{heard}, from {table}{', one folder above' * (given != folder and source.is_dir())}"
        if table
        else f"{len(names):,} images, and no answers about them yet",
        *unknown_tables,
        *(passed_over(given, [*files, *outputs, *([table] if table else [])], "images") if source.is_dir() else []),
        *listed.notes,
        *([f"{_count(unknown, 'answer')} about images that cannot be used"] if unknown else []),
        *(f"set aside: {each}" for each in aside),
        *(found.raters.table() if found.raters else []),
    ]
    posterior, doubts = ranked(answers, found)
    notes += doubts
    layout, used, _ = layout_of(table, columns) if table else ("", {}, "")
    written: dict[str, int | str] = {"img1": 0, "img2": 1, "label": ""}  # unless the table has its own form
    then = f"add who won and who lost to {table}" if table else f"save it as {folder / PROPOSED}"
    if table and layout == "pairs":
        written = dict.fromkeys(rows_of(table)[0], "") | {used["first"]: 0, used["second"]: 1}
        written |= {name: asked.attribute for name in _about(written) if asked.attribute}
        then = f"append its rows to {table}"
    then = f"fill in the column {used.get('label', 'label')} with First, Second or Similar, {then}"
    return PeoplesRanking(names, answers, posterior, found, notes, folder, table, written, then)


def _check_nothing_is_lost(path: Path, table: Path, columns: Mapping[str, str] | None) -> None:
    """Raise UserError if writing to `path` would lose answers that the table lacks, or a file of another kind."""
    given = columns if columns and path.is_file() and layout_of(path, columns)[0] else None  # else the usual names
    if not path.is_file() or not path.stat().st_size or (kind := kind_of(path, given)) in (RANKING, UNLABELLED):
        return
    if kind != ANSWERS:
        raise UserError(f"{path} is neither a ranking nor pairs to label; name another file to write to")
    itself = path.resolve() == table.resolve()
    there = not itself and table.is_file() and kind_of(table, columns) == ANSWERS
    if lost := _known(path, given, table.parent) - (_known(table, columns, table.parent) if there else Counter()):
        holds = f"{path} holds {_count(lost.total(), 'answer')} that would be lost"
        raise UserError(f"{holds}; {'' if itself else f'add them to {table} first, or '}name another file to write to")


def _known(table: Path, columns: Mapping[str, str] | None, root: Path) -> Counter[tuple[str, str, str, int]]:
    """Count answers by image names below `root`, in sorted order: winners and losers do not keep the order asked."""
    of = {line: "".join(row[name] for name in _about(row)) for line, row in rows_of(table)[1]}
    pairs = read_table(table, columns, root).pairs
    return Counter((of[n], *((a, b, label) if a < b else (b, a, SWAPPED[label]))) for n, a, b, label in pairs)


def _about(columns: Iterable[str]) -> list[str]:
    """Return the columns that say which attribute a row is about."""
    return [name for name in columns if plain(name) == "attribute"]


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _comparator(folder: Path, attribute: str | None) -> Comparator:
    with as_user_error(f"--model {folder}: "):
        if isinstance(found := io.load(folder), Comparator):
            return found.of(attribute if len(found.views) > 1 else None)
    raise UserError(f"--model {folder} is no comparator of images; give RUN/model/best of a run of lmol")


def _read(
    folder: Path, files: Sequence[Path], model: Comparator | None
) -> tuple[list[str], list[np.ndarray], list[str]]:
    """Return names and squares (C, S, S) or (S, S, 3) of readable images, and why the others cannot be read."""
    names, squares, aside = [], [], []
    for path in files:
        try:
            square = model.read(path).numpy() if model else image_files.decode(path, SIDE, MOST_PIXELS)
        except ValueError as error:
            aside.append(str(error) if model else f"{path}: {error}")
            continue
        names.append(path.relative_to(folder).as_posix())
        squares.append(square)
    if len(names) < 2:
        raise UserError(f"{folder}: {len(names)} of {len(files)} images can be used, such as {aside[0]}")
    return names, squares, aside


def _before_answers(model: Comparator | None, squares: Sequence[np.ndarray]) -> Prior:
    """Return a prior from a comparator's scores, else one under which images of similar texture have similar scores."""
    images = torch.from_numpy(np.stack(squares))
    if model:  # errors are correlated between similar encodings
        encoded = model.encode_all(images)
        scores, errors = (each.numpy() for each in model.score_encoded(encoded))
        described = encoded.flatten(1)
    else:
        scores, errors = np.zeros(len(squares)), np.full(len(squares), UNKNOWN)
        described = torch.cat([texture(part) for part in images.movedim(-1, 1).split(AT_ONCE)])
    features = described.double().cpu().numpy()
    return Prior(scores, errors, (features - features.mean(0)) / (features.std(0) + 1e-9))
