"""A ranking of images by people's answers about pairs, and the pairs to ask about next."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from common.errors import UserError
from common.files import write_whole
from common.foreign_text import to_csv
from common.statistics import Z95
from models import images as image_files
from models import io
from models.comparator.interface import ENDINGS, MOST_PIXELS, Comparator
from pipelines.workloads.lmol.one_image import texture_features
from pipelines.workloads.lmol.preferences import UNKNOWN, Posterior, Prior, fit, likely_priors, next_pairs
from pipelines.workloads.lmol.propagation import averaged
from pipelines.workloads.lmol.sources.tables import find_answers, read_table

SIDE = 64  # pixels, of the squares whose texture is described where there is no model
MOST_IMAGES = 5000  # the time grows with their cube


@dataclass(frozen=True)
class Told:
    """What answers tell about images."""

    names: Sequence[str]
    answers: np.ndarray  # (P, 3) first, second, label
    posterior: Posterior
    prior: Prior  # the likeliest
    notes: Sequence[str]
    table: Path | None  # of the answers

    def write_ranking(self, path: Path) -> None:
        """Write a CSV of image,score,low,high,answers, the highest score first; intervals hold for 95 %.

        The mean of the scores is 0, and intervals are of scores so centred.
        """
        scores, errors = self.posterior.scores - self.posterior.scores.mean(), self.posterior.errors
        heard = np.bincount(self.answers[:, :2].ravel(), minlength=len(self.names))
        rows = (
            (self.names[i], *(f"{scores[i] + z * Z95 * errors[i]:.4f}" for z in (0, -1, 1)), str(heard[i]))
            for i in np.argsort(-scores, kind="stable")
        )
        self._write(path, ("image", "score", "low", "high", "answers"), rows)

    def write_next(self, path: Path, count: int, seed: int) -> None:
        """Write a CSV of img1,img2,label, the labels to be filled in, of the pairs to ask about next."""
        pairs = next_pairs(fit(self.answers, self.prior), count, self.answers, seed)
        rows = ((self.names[first], self.names[second], "") for first, second in pairs)
        self._write(path, ("img1", "img2", "label"), rows)

    def _write(self, path: Path, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
        if self.table and path.resolve() == self.table.resolve():
            raise UserError(f"{path} holds the answers, which would be lost; name another file to write to")
        write_whole(path, to_csv(columns, rows).encode())


def told(source: Path, model: Path | None) -> Told:
    """Return what answers tell: those of the table `source`, or of the one in the folder `source`, if it has one.

    Raises UserError for a table without answers, and where there are no images.
    """
    if not source.exists():
        raise UserError(f"{source}: there is no such file or folder; give a folder of images, or a CSV of answers")
    table = find_answers(source)
    folder = source if source.is_dir() else source.parent
    listed = read_table(table, {}) if table else None
    if listed is not None and listed.scored:
        raise UserError(f"{source} has scores; answers are img1,img2,label or winner,loser")
    files = sorted(path for path in folder.rglob("*") if path.suffix.lower() in ENDINGS)
    if not 2 <= len(files) <= MOST_IMAGES:
        raise UserError(f"{folder} holds {len(files):,} images; give a folder of 2 to {MOST_IMAGES:,}")
    comparator = _comparator(model) if model else None
    names, pixels, aside = _read(folder, files, comparator)
    row = {name: i for i, name in enumerate(names)}
    pairs = listed.pairs if listed else []
    known = [(row[a], row[b], label) for _, a, b, label in pairs if a in row and b in row]
    answers = np.array(known, np.int64).reshape(-1, 3)
    known_before = _from_model(comparator, pixels) if comparator else _from_texture(pixels)
    priors, beforehand = likely_priors(answers, known_before)
    unknown = len(pairs) - len(answers)
    notes = [
        f"{_count(len(answers), 'answer')} about {len(np.unique(answers[:, :2])):,} of {len(names):,} images"
        + (f", from {table}" if table else ""),
        *(listed.notes if listed else []),
        *([f"{_count(unknown, 'answer')} about images that cannot be used"] if unknown else []),
        *(f"set aside: {each}" for each in aside),
    ]
    return Told(names, answers, averaged(answers, priors, beforehand), priors[0], notes, table)


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _comparator(folder: Path) -> Comparator:
    try:
        found = io.load(folder)
    except ValueError as error:
        raise UserError(f"--model {folder}: {error}") from error
    if not isinstance(found, Comparator):
        raise UserError(f"--model {folder} is no comparator of images; give RUN/model/best of a run of lmol")
    return found


def _read(
    folder: Path, files: Sequence[Path], model: Comparator | None
) -> tuple[list[str], list[np.ndarray], list[str]]:
    """Return names and squares (C, S, S) or (S, S, 3) of the images that can be read, and why others cannot."""
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


def _from_texture(squares: Sequence[np.ndarray]) -> Prior:
    """Return the prior under which images that look alike in detail have like scores."""
    features = np.stack([texture_features(square) for square in squares])
    return Prior(np.zeros(len(squares)), np.full(len(squares), UNKNOWN), _standardised(features))


def _from_model(model: Comparator, squares: Sequence[np.ndarray]) -> Prior:
    """Return the prior that a comparator's scores give, whose errors are alike where its encodings are."""
    images = torch.from_numpy(np.stack(squares))
    scores, errors = model.score(images)
    encoded = model.encode_all(images).flatten(1).double().cpu().numpy()
    return Prior(scores.numpy(), errors.numpy(), _standardised(encoded))


def _standardised(features: np.ndarray) -> np.ndarray:
    return (features - features.mean(0)) / (features.std(0) + 1e-9)
