"""Folders of images with CSVs, as a user might give them."""

import csv
import tempfile
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

from common.errors import UserError
from pipelines.workloads.lmol import sources
from pipelines.workloads.lmol.config import Columns

SCORES = {
    f"{name}.png": score for name, score in zip("abcdefg", ["1", "1.2", "1.7", "1.9", "2.5", "3", "4"], strict=True)
}


def data(source, **fields):
    """A stand-in for the config's data section."""
    section = {
        "source": str(source),
        "columns": Columns(),
        "attribute": None,
        "attributes": (),
        "theta": None,
        "size": 16,
        "fit": "crop",
        "photos_crops": 1,
        "maximum_pixels": 1_000_000,
        "seed": 0,
    }
    return SimpleNamespace(**{**section, **fields})


def read(section):
    """What `sources.read` gives for the section, with the images in memory."""
    with tempfile.TemporaryDirectory() as folder:
        found = sources.read(section, Path(folder) / "images.npy")
        return replace(found, images=np.array(found.images))


def picture(seed):
    """A smooth picture, determined by the seed."""
    coarse = np.random.default_rng(seed).integers(0, 256, (4, 4, 3), np.uint8)
    return Image.fromarray(coarse).resize((24, 24), Image.Resampling.BILINEAR)


def table(path, *rows):
    """The path of a CSV with these rows."""
    with path.open("w", newline="") as file:
        csv.writer(file).writerows(rows)
    return path


def folder(path, scores):
    """A folder of images and its CSV, from {name: score as written}."""
    for seed, name in enumerate(scores):
        picture(seed).save(path / name)
    table(path / "scores.csv", ("image", "score"), *scores.items())
    return path


def refusal(source, **fields):
    """The message of a refused source, which must be short."""
    with pytest.raises(UserError) as refused:
        read(data(source, **fields))
    assert len(str(refused.value).splitlines()) <= 6
    return str(refused.value)


def paired(path, scores, theta, wrong=()):
    """A folder and a CSV of all its pairs, the labels of some of them `wrong`."""
    folder(path, scores)
    (path / "scores.csv").unlink()
    names, rows = list(scores), []
    for i, a in enumerate(names):
        for b in names[i + 1 :]:
            difference = Fraction(scores[a]) - Fraction(scores[b])
            label = "Similar" if abs(difference) <= theta else "First" if difference > 0 else "Second"
            rows.append((a, b, scores[a], scores[b], label))
    for row in wrong:
        rows[row] = (*rows[row][:4], {"First": "Second", "Second": "First", "Similar": "First"}[rows[row][4]])
    return table(path / "pairs.csv", ("img1", "img2", "score1", "score2", "label"), *rows)
