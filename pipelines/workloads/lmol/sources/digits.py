"""The embedded source `digits`."""

from fractions import Fraction
from pathlib import Path

import numpy as np
from PIL import Image

from pipelines.workloads.lmol.config import Data
from pipelines.workloads.lmol.sources.image_set import ImageSet, as_squares, write
from pipelines.workloads.lmol.sources.units import in_units


def read_digits(data: Data, path: Path) -> ImageSet:
    """Return 1,797 handwritten digits, each scored by its value."""
    from sklearn.datasets import load_digits

    pixels, labels = load_digits(return_X_y=True)
    eight = np.rint(pixels.reshape(-1, 8, 8) * (255 / 16)).astype(np.uint8)
    size = (data.size, data.size)
    drawn = [np.asarray(Image.fromarray(each).resize(size, Image.Resampling.BILINEAR))[..., None] for each in eight]
    names = [f"digit-{row:04d}" for row in range(len(labels))]
    return ImageSet(
        squares=write(path, [as_squares(drawn)]),
        scores=labels.astype(np.int64),
        unit=Fraction(1),
        theta=0 if data.theta is None else in_units(data.theta, Fraction(1)),
        attribute=data.attribute or "value",
        groups=names,
        names=names,
        families=["digit"] * len(names),
        facts={
            "source": "handwritten digits",
            "licences": [
                {
                    "name": "digits.csv.gz of scikit-learn",
                    "licence": "shipped with scikit-learn, which names none of its own for it",
                    "attribution": "E. Alpaydin and C. Kaynak (1998), Optical Recognition of Handwritten Digits, "
                    "UCI Machine Learning Repository",
                    "url": "https://archive.ics.uci.edu/dataset/80",
                }
            ],
        },
    )
