"""The embedded sources: `digits`, and `photos`, crops of installed packages' photos, degraded in four ways."""

import functools
import importlib.util
import io
import json
from collections.abc import Iterator
from fractions import Fraction
from functools import partial
from pathlib import Path

import numpy as np
from PIL import Image, ImageFilter

from common.errors import UserError
from common.workers import in_order
from pipelines.workloads.lmol.config import Data
from pipelines.workloads.lmol.sources.image_set import ImageSet, write
from pipelines.workloads.lmol.sources.scores import in_units

FAMILIES = ("jpeg", "blur", "noise", "downscale")
# Four degrees of each, chosen so that all families lose about as much structure: SSIM .88, .74, .60 and .47.
QUALITY = (35, 9, 4, 1)  # of JPEG
RADIUS = (0.85, 1.27, 1.9, 3.0)  # pixels, of Gaussian blur
DEVIATION = (10, 18, 28, 41)  # of 255, of Gaussian noise
SCALE = (0.68, 0.42, 0.27, 0.18)  # of the sides, down and up again
CROP = (1.5, 3.0)  # sides of crops, in sides of the stored image; scaling down removes the photo's own artefacts
LEAST_CONTRAST = 6.0  # of 255, mean absolute difference of neighbours; a blurred empty sky looks the same
PHOTO_SIZES = (16, 200)  # sides of the stored image: above the window of SSIM, and at most a photo's side / 1.5
TRIALS = 30  # crops tried; the first with that contrast is taken, or the one with the most
THOUSANDTH = Fraction(1, 1000)  # unit of photo scores
PHOTO_THETA = 65  # thousandths, half the step between two degrees at 32 to 96 pixels: one degree is similar
# The photos in these packages, except those that show a person (astronaut, camera, lfw, retina), state no licence
# (moon, page, motorcycle), are not photos, or are blurred to begin with (clock): package and path, and the licence.
LICENCES = json.loads(Path(__file__).with_name("licences.json").read_bytes())
PHOTOS: dict[str, dict[str, str]] = LICENCES["photos"]


def read_digits(data: Data, path: Path) -> ImageSet:
    """Return 1,797 handwritten digits, each scored by its value."""
    from sklearn.datasets import load_digits

    pixels, labels = load_digits(return_X_y=True)
    eight = np.rint(pixels.reshape(-1, 8, 8) * (255 / 16)).astype(np.uint8)
    size = (data.size, data.size)
    drawn = [np.asarray(Image.fromarray(each).resize(size, Image.Resampling.BILINEAR))[..., None] for each in eight]
    images, thumbnails = write(path, [np.array(drawn)])
    names = [f"digit-{row:04d}" for row in range(len(labels))]
    return ImageSet(
        images=images,
        thumbnails=thumbnails,
        scores=labels.astype(np.int64),
        unit=Fraction(1),
        theta=0 if data.theta is None else in_units(data.theta, Fraction(1)),
        attribute=data.attribute or "value",
        groups=names,
        names=names,
        families=["digit"] * len(names),
        facts={"source": "embedded handwritten digits", "licences": [LICENCES["digits"]]},
    )


Kind = tuple[str, int]  # family, degree


def read_photos(data: Data, path: Path) -> ImageSet:
    """Return crops of photos, each unchanged and degraded to four degrees in four ways; a photo is a group.

    The score of a way and degree is the median, over all crops, of the structural similarity to the original crop (Wang
    et al. 2004): that of a single crop would depend on the picture as much as on the damage.
    """
    if not PHOTO_SIZES[0] <= data.size <= PHOTO_SIZES[1]:
        sizes = f"{PHOTO_SIZES[0]} to {PHOTO_SIZES[1]}, so that a crop shows something and is smaller than the photo"
        raise UserError(f"data.size={data.size}: for data.source=photos it must be {sizes}")
    crops = [(name, number) for name in PHOTOS for number in range(data.photos_crops)]
    made = in_order(partial(_photo_crops, data.size, data.seed), crops, "degrading photos, crops")
    names: list[str] = []
    kinds: list[Kind] = []
    similarity: dict[Kind, list[float]] = {}

    def squares() -> Iterator[np.ndarray]:
        for (name, number), (part, similarities) in zip(crops, made, strict=True):
            for (family, degree), value in similarities.items():
                names.append(f"{name}-{number}-{family}" + (f"-{degree}" if degree else ""))
                similarity.setdefault((family, degree), []).append(value)
            kinds.extend(similarities)
            yield part

    images, thumbnails = write(path, squares())
    score = {kind: round(float(np.median(values)) * 1000) for kind, values in similarity.items()}
    return ImageSet(
        images=images,
        thumbnails=thumbnails,
        scores=np.array([score[kind] for kind in kinds]),
        unit=THOUSANDTH,
        theta=PHOTO_THETA if data.theta is None else in_units(data.theta, THOUSANDTH),
        attribute=data.attribute or "quality",
        groups=[name.partition("-")[0] for name in names],
        names=names,
        families=[family for family, _ in kinds],
        facts={
            "source": "embedded photos, degraded",
            "scores_by_kind": {
                f"{family} {degree}".removesuffix(" 0"): thousandths / 1000
                for (family, degree), thousandths in score.items()
            },
            "licences": list(PHOTOS.values()),
        },
    )


def _photo_crops(size: int, seed: int, crop: tuple[str, int]) -> tuple[np.ndarray, dict[Kind, float]]:
    """Return crop number `crop[1]` of a photo, unchanged and degraded, and the similarity of each kind to the first."""
    from skimage.metrics import structural_similarity

    name, number = crop
    generator = np.random.default_rng([seed, 2, *name.encode(), number])  # independent of other crops
    whole = _crop(_photo(name), size, generator)
    images = {("pristine", 0): whole, **dict(_degraded(whole, generator))}
    # SSIM of luminance with the window and constants of Wang et al. (2004).
    ssim = partial(structural_similarity, data_range=255, gaussian_weights=True, sigma=1.5, use_sample_covariance=False)
    grey = {kind: np.asarray(image.convert("L")) for kind, image in images.items()}
    similarities = {kind: float(ssim(grey["pristine", 0], each)) for kind, each in grey.items()}
    return np.array([np.asarray(image) for image in images.values()]), similarities


@functools.lru_cache(maxsize=1)
def _photo(name: str) -> Image.Image:
    package, _, path = PHOTOS[name]["name"].partition("/")
    spec = importlib.util.find_spec(package)  # not imported
    assert spec is not None, f"{package} is not installed"
    assert spec.origin is not None, f"{package} has no file"
    with Image.open(Path(spec.origin).parent / path) as file:
        return file.convert("RGB")


def _crop(whole: Image.Image, size: int, generator: np.random.Generator) -> Image.Image:
    """Return a square of the photo that shows something, scaled down to `size`."""
    best, most = whole, -1.0
    for _ in range(TRIALS):
        side = min(round(size * generator.uniform(*CROP)), *whole.size)
        x, y = (int(generator.integers(0, length - side + 1)) for length in whole.size)
        crop = whole.resize((size, size), Image.Resampling.LANCZOS, box=(x, y, x + side, y + side))
        if (contrast := float(np.abs(np.diff(np.asarray(crop.convert("L"), np.float32))).mean())) > most:
            best, most = crop, contrast
        if contrast >= LEAST_CONTRAST:
            break
    return best


def _degraded(crop: Image.Image, generator: np.random.Generator) -> Iterator[tuple[Kind, Image.Image]]:
    """Yield ((family, degree from 1), image) for every family and degree."""
    for degree in range(1, 5):
        file = io.BytesIO()
        crop.save(file, "JPEG", quality=QUALITY[degree - 1])
        with Image.open(file) as image:
            yield ("jpeg", degree), image.convert("RGB")
        yield ("blur", degree), crop.filter(ImageFilter.GaussianBlur(RADIUS[degree - 1]))
        noise = generator.normal(0, DEVIATION[degree - 1], (*crop.size, 3))
        yield ("noise", degree), Image.fromarray(np.rint(np.asarray(crop) + noise).clip(0, 255).astype(np.uint8))
        small = max(1, round(crop.size[0] * SCALE[degree - 1]))
        shrunk = crop.resize((small, small), Image.Resampling.BOX)
        yield ("downscale", degree), shrunk.resize(crop.size, Image.Resampling.BILINEAR)
