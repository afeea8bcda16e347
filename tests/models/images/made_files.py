"""Image files made for tests, and what refuses them."""

import io

import numpy as np
import pytest
from PIL import Image

from models.images import image_files

LIMIT = 1_000_000  # pixels


def encoded(image, kind="PNG", **options):
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def picture(seed=0, side=32):
    """A smooth RGB picture whose four corners differ."""
    coarse = np.random.default_rng(seed).integers(0, 256, (4, 4, 3), np.uint8)
    return Image.fromarray(coarse).resize((side, side), Image.Resampling.BILINEAR)


def refusal(source, limit=LIMIT):
    with pytest.raises(ValueError) as refused:  # noqa: PT011 the text is what the tests look at
        image_files.decode(source, 16, limit)
    return str(refused.value)
