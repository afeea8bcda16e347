"""HEIC images are read where the optional package for them is installed (tests/optional.txt)."""

import numpy as np
import pytest
from PIL import Image

from models.images import image_files
from tests.models.images.made_files import LIMIT, encoded, picture, refusal

pytestmark = pytest.mark.slow  # the gate installs the package before the slow tests


@pytest.fixture(autouse=True)
def _written_too():
    """Teach Pillow to write HEIC as well."""
    import pillow_heif

    pillow_heif.register_heif_opener()


def test_the_colours_are_those_of_the_picture():
    found = image_files.decode(encoded(picture().convert("RGBA"), "HEIF", quality=-1, chroma=444), 32, LIMIT)
    assert np.abs(found.astype(int) - np.asarray(picture())).mean() < 5


def test_an_image_that_the_library_turns_is_turned_once():
    exif = Image.Exif()
    exif[0x0112] = 6
    stored = encoded(picture().transpose(Image.Transpose.ROTATE_90), "HEIF", quality=95, exif=exif.tobytes())
    assert np.abs(image_files.decode(stored, 32, LIMIT).astype(int) - np.asarray(picture())).mean() < 5


def test_of_several_images_the_first_is_taken_and_it_is_said():
    first, second = (Image.new("RGB", (32, 32), colour) for colour in ("red", "blue"))
    found, animated = image_files.read(encoded(first, "HEIF", save_all=True, append_images=[second]), 32, LIMIT)
    assert animated
    assert (np.abs(found.astype(int) - (255, 0, 0)) <= 3).all()
    assert not image_files.read(encoded(first, "HEIF"), 32, LIMIT)[1]


def test_a_file_that_breaks_off_is_refused():
    whole = encoded(picture(side=64), "HEIF")
    for share in (0.5, 0.9):
        assert refusal(whole[: int(len(whole) * share)])


def test_no_damage_does_more_than_refuse_or_decode():
    generator = np.random.default_rng(0)
    whole = np.frombuffer(encoded(picture(side=24), "HEIF"), np.uint8)
    decoded = refused = 0
    for _ in range(40):
        broken = whole.copy()
        broken[generator.integers(0, len(whole), 5)] = generator.integers(0, 256, 5)
        try:
            decoded += image_files.decode(broken.tobytes(), 16, LIMIT).shape == (16, 16, 3)
        except ValueError:
            refused += 1
    assert decoded + refused == 40
