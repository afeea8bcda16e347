"""The note beside answers about images unlike those that a comparator was trained on."""

from pathlib import Path

import numpy as np
import pytest
import sklearn
import torch
from PIL import Image, ImageDraw, ImageFont
from sklearn.datasets import load_digits

from models import io
from models.images.comparator.familiarity import FEWEST, NOTE, notes
from models.images.comparator.interface import FITTED, NOTHING_TOLD
from tests.models.images.comparator.small import make, pictures
from tests.stages import ROOT

PHOTOS = Path(sklearn.__file__).parent / "datasets/images"


@pytest.fixture(scope="module")
def model():
    return io.load(ROOT / "models/pretrained/lmol-digits")


def drawn(pixels):
    """A digit (8, 8) from 0 to 16 as the embedded source draws it."""
    return Image.fromarray(np.rint(pixels * (255 / 16)).astype(np.uint8)).resize((32, 32), Image.Resampling.BILINEAR)


def test_digits_are_ranked_without_a_note_and_photographs_with_one(model, tmp_path):
    pixels, _ = load_digits(return_X_y=True)
    for row in range(0, 200, 20):
        drawn(pixels[row].reshape(8, 8)).save(tmp_path / f"{row}.png")
    printed = Image.new("L", (32, 32))
    ImageDraw.Draw(printed).text((8, 2), "7", fill=255, font=ImageFont.load_default(28))
    printed.save(tmp_path / "printed.png")
    paths = [*map(str, sorted(tmp_path.glob("*.png"))), *(str(PHOTOS / name) for name in ("china.jpg", "flower.jpg"))]
    (found,) = model.predict([{"images": paths}])
    noted = {Path(row["image"]).name for row in found["ranking"] if row.get("note") == NOTE}
    assert noted == {"china.jpg", "flower.jpg", "printed.png"}
    assert all("note" not in row for row in found["ranking"] if Path(row["image"]).name not in noted)
    pairs = [{"first": paths[0], "second": other} for other in (paths[1], paths[-1])]
    alike, other = model.predict(pairs)
    assert "note" not in alike
    assert other["note"] == NOTE


def test_a_ranking_by_a_model_that_tells_no_images_apart_says_so(tmp_path):
    model = io.load(ROOT / "models/pretrained/lmol-digits")
    pixels, _ = load_digits(return_X_y=True)
    for row in range(4):
        drawn(pixels[row].reshape(8, 8)).save(tmp_path / f"{row}.png")
    paths = sorted(map(str, tmp_path.glob("*.png")))
    (told,) = model.predict([{"images": paths}])
    assert "note" not in told
    model.fitted[FITTED.index("slope")] = 0
    found, alone = model.predict([{"images": paths}, {"images": paths[:1]}])
    assert len({row["score"] for row in found["ranking"]}) == 1
    assert found["note"] == NOTHING_TOLD
    assert "note" not in alone


def test_few_of_the_digits_that_the_model_is_for_get_a_note(model):
    pixels, _ = load_digits(return_X_y=True)
    images = torch.stack([torch.from_numpy(np.array(drawn(each.reshape(8, 8))))[None] for each in pixels])
    assert np.mean([bool(note) for note in notes(images, model.reference_images)]) < 0.025
    assert all(notes(255 - images[:100], model.reference_images))  # black on white


def test_of_random_images_no_more_are_noted_than_chance_explains():
    images, references = pictures(4000), pictures(4100)[-100:]
    assert np.mean([bool(note) for note in notes(images, references)]) < 0.03


def test_a_model_of_few_references_cannot_tell_and_notes_nothing():
    model = make(references=FEWEST - 1)
    assert notes(pictures(3), model.reference_images) == [{}, {}, {}]
