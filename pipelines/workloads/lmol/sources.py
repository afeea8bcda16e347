"""Where images and their scores come from: two embedded sources, and a user's files.

    digits    the handwritten digits of scikit-learn, scored by what they say
    photos    crops of photos inside scikit-image and scikit-learn, spoilt in four ways, scored by what is left of them
    a folder  images, and one CSV of image,score and, where some images belong together, group
    a CSV     the same, beside its images, or of pairs: img1,img2,score1,score2,label

Scores are whole numbers of a unit that is exact: hundredths where a CSV has two decimals, sixtieths where its decimals
are those of sixtieths.
"""

import csv
import difflib
import importlib.util
import io
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image, ImageFilter

from common.errors import UserError
from models import images as files
from models.ranking import FIRST, SECOND, SIMILAR
from pipelines.workloads.lmol import pairs

if TYPE_CHECKING:
    from pipelines.workloads.lmol import Data

EMBEDDED = ("digits", "photos")
WAYS = "give digits, photos, a folder of images with a CSV of image,score, or a CSV of img1,img2,score1,score2,label"
SIMILAR_SHARE = 0.2  # of all pairs at most, where theta is not given
LABELS = {"first": FIRST, "second": SECOND, "similar": SIMILAR}
PAIR_COLUMNS = ("img1", "img2", "score1", "score2", "label")
IMAGE_COLUMNS = ("image", "score")
LARGEST_DENOMINATOR = 1000  # of units that are no power of ten
DECIMALS = 9  # that count; and up to 3 are taken as they are, as they can hardly be a rounded fraction's
LARGEST_THETA = 2**61  # units: no scores are further apart, and sums with them stay below 2^63
NAMED = 10  # examples of what is wrong that facts name

FAMILIES = ("jpeg", "blur", "noise", "downscale")
# Four degrees of each, chosen to leave about as much structure in each family: SSIM .88, .74, .60 and .47.
QUALITY = (35, 9, 4, 1)  # of JPEG
RADIUS = (0.85, 1.27, 1.9, 3.0)  # pixels, of Gaussian blur
DEVIATION = (10, 18, 28, 41)  # of 255, of Gaussian noise
SCALE = (0.68, 0.42, 0.27, 0.18)  # of sides, down and up again
CROP = (1.5, 3.0)  # sides of crops, in sides of the stored image: what is stored has lost the photo's own artefacts
LEAST_CONTRAST = 6.0  # of 255, mean absolute difference of neighbours: an empty sky looks the same blurred
PHOTO_SIZES = (16, 200)  # sides of the stored image: more than the window of similarity, and 1.5 of them in a photo
TRIALS = 30  # crops from which the first with that contrast is taken, or the one with most
THOUSANDTH = Fraction(1, 1000)  # unit of photo scores
PHOTO_THETA = 65  # thousandths, half of what lies between two degrees at 32 to 96 pixels: similar are those of one


@dataclass(frozen=True)
class Source:
    """N images of one size, and what is known about them."""

    images: np.ndarray  # (N, S, S, C) uint8
    scores: np.ndarray  # (N,) int64, in units
    unit: Fraction
    theta: int  # of the source, or the config's, in units
    attribute: str  # "which ranks higher in ..."
    groups: list[str]  # images of a group stay together
    names: list[str]
    families: list[str]
    facts: Mapping[str, Any]


@dataclass
class Listed:
    """What a CSV says about images."""

    scores: dict[str, str] = field(default_factory=dict)  # as written, by the image's name
    groups: dict[str, str] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)  # reason by name
    pairs: list[tuple[int, str, str, int]] = field(default_factory=list)  # line, first, second, label
    repeated: int = 0


def read(data: "Data") -> Source:
    """The images and scores of `data.source`. UserError for what is not there or cannot be made sense of."""
    if data.source in EMBEDDED:
        return {"digits": digits, "photos": photos}[data.source](data)
    return user_files(data)


def digits(data: "Data") -> Source:
    """1,797 handwritten digits, each scored by its value."""
    from sklearn.datasets import load_digits

    pixels, labels = load_digits(return_X_y=True)
    eight = np.rint(pixels.reshape(-1, 8, 8) * (255 / 16)).astype(np.uint8)
    size = (data.size, data.size)
    drawn = [np.asarray(Image.fromarray(each).resize(size, Image.Resampling.BILINEAR)) for each in eight]
    names = [f"digit-{row:04d}" for row in range(len(labels))]
    scores = labels.astype(np.int64)
    return Source(
        images=np.stack(drawn)[..., None],
        scores=scores,
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


@dataclass(frozen=True)
class Photo:
    """A photo in an installed package."""

    package: str  # found, not imported
    path: str  # below it
    licence: str
    attribution: str
    url: str = ""

    def file(self) -> Path:
        spec = importlib.util.find_spec(self.package)
        return Path(spec.origin).parent / self.path


CC0, NO_RESTRICTIONS = "CC0 1.0", "no known copyright restrictions"
CC_BY = "CC BY 2.0"
# What is in the packages less what shows a person (astronaut, camera, lfw, retina), states no licence (moon, page,
# motorcycle), is no photo, or is blurred to begin with (clock).
PHOTOS = {
    "brick": Photo("skimage", "data/brick.png", CC0, "CC0Textures", "https://cc0textures.com/view.php?tex=Bricks25"),
    "chelsea": Photo("skimage", "data/chelsea.png", CC0, "Stefan van der Walt"),
    "coffee": Photo("skimage", "data/coffee.png", CC0, "Rachel Michetti, courtesy of Pikolo Espresso Bar"),
    "coins": Photo(
        "skimage",
        "data/coins.png",
        NO_RESTRICTIONS,
        "Brooklyn Museum Collection",
        "https://www.brooklynmuseum.org/opencollection/archives/image/51611",
    ),
    "grass": Photo(
        "skimage",
        "data/grass.png",
        CC0,
        "linolafett",
        "https://www.deviantart.com/linolafett/art/Grass-01-434853879",
    ),
    "gravel": Photo("skimage", "data/gravel.png", CC0, "CC0Textures", "https://cc0textures.com/view.php?tex=Gravel04"),
    "hubble": Photo(
        "skimage",
        "data/hubble_deep_field.jpg",
        "public domain",
        "NASA, HubbleSite",
        "http://hubblesite.org/newscenter/archive/releases/2012/37/image/a/",
    ),
    "rocket": Photo(
        "skimage",
        "data/rocket.jpg",
        "public domain",
        "SpaceX",
        "https://www.flickr.com/photos/spacexphotos/16511594820/in/photostream/",
    ),
    "tissue": Photo("skimage", "data/ihc.png", NO_RESTRICTIONS, "Center for Microscopy And Molecular Imaging (CMMI)"),
    "china": Photo(
        "sklearn",
        "datasets/images/china.jpg",
        CC_BY,
        "danielbuechele; cropped and altered",
        "https://www.flickr.com/photos/danielbuechele/6061409035/",
    ),
    "flower": Photo(
        "sklearn",
        "datasets/images/flower.jpg",
        CC_BY,
        "vultilion (scikit-learn's notice names danielbuechele); cropped and altered",
        "https://www.flickr.com/photos/vultilion/6056698931/",
    ),
}


def photos(data: "Data") -> Source:
    """Crops of photos, each as it is and spoilt to four degrees in four ways; a photo is a group.

    The score of a way and degree is the median, over all crops, of the structural similarity to the crop as it was
    (Wang et al. 2004): one scale for all ways. Of one crop it says as much about the picture as about the damage, which
    nobody could see who has not seen the crop as it was.
    """
    if not PHOTO_SIZES[0] <= data.size <= PHOTO_SIZES[1]:
        raise UserError(
            f"data.size={data.size}: for data.source=photos it must be {PHOTO_SIZES[0]} to {PHOTO_SIZES[1]}, so that "
            "there is something to be seen in a crop and photos are scaled down to it"
        )
    images, names, families, groups, kinds = [], [], [], [], []
    similarity: dict[tuple[str, int], list[float]] = {}
    for name, photo in PHOTOS.items():
        with Image.open(photo.file()) as file:
            whole = file.convert("RGB")
        for number in range(data.photos_crops):
            # What is drawn for a crop depends on nothing else that is drawn.
            generator = np.random.default_rng([data.seed, 2, *name.encode(), number])
            crop = _crop(whole, data.size, generator)
            for family, degree, image in [("pristine", 0, crop), *_spoilt(crop, generator)]:
                images.append(np.asarray(image))
                names.append(f"{name}-{number}-{family}" + (f"-{degree}" if degree else ""))
                families.append(family)
                groups.append(name)
                kinds.append((family, degree))
                similarity.setdefault((family, degree), []).append(structural_similarity(crop, image))
    score = {kind: round(float(np.median(values)) * 1000) for kind, values in similarity.items()}
    return Source(
        images=np.stack(images),
        scores=np.array([score[kind] for kind in kinds]),
        unit=THOUSANDTH,
        theta=PHOTO_THETA if data.theta is None else in_units(data.theta, THOUSANDTH),
        attribute=data.attribute or "quality",
        groups=groups,
        names=names,
        families=families,
        facts={
            "source": "photos, spoilt",
            "scores_by_kind": {
                f"{family} {degree}".removesuffix(" 0"): s / 1000 for (family, degree), s in score.items()
            },
            "licences": [
                {
                    "name": f"{photo.package}/{photo.path}",
                    "licence": photo.licence,
                    "attribution": photo.attribution,
                    "url": photo.url,
                }
                for photo in PHOTOS.values()
            ],
        },
    )


def _crop(whole: Image.Image, size: int, generator: np.random.Generator) -> Image.Image:
    """A square of the photo with something in it, scaled down to `size`."""
    best, most = whole, -1.0
    for _ in range(TRIALS):
        side = min(round(size * generator.uniform(*CROP)), *whole.size)
        x, y = (int(generator.integers(0, length - side + 1)) for length in whole.size)
        crop = whole.resize((size, size), Image.Resampling.LANCZOS, box=(x, y, x + side, y + side))
        contrast = float(np.abs(np.diff(np.asarray(crop.convert("L"), np.float32))).mean())
        if contrast > most:
            best, most = crop, contrast
        if contrast >= LEAST_CONTRAST:
            break
    return best


def _spoilt(crop: Image.Image, generator: np.random.Generator) -> Iterator[tuple[str, int, Image.Image]]:
    """(family, degree from 1, image) for every family and degree."""
    for degree in range(1, 5):
        file = io.BytesIO()
        crop.save(file, "JPEG", quality=QUALITY[degree - 1])
        with Image.open(file) as image:
            yield "jpeg", degree, image.convert("RGB")
        yield "blur", degree, crop.filter(ImageFilter.GaussianBlur(RADIUS[degree - 1]))
        noise = generator.normal(0, DEVIATION[degree - 1], (*crop.size, 3))
        noisy = np.rint(np.asarray(crop) + noise).clip(0, 255).astype(np.uint8)
        yield "noise", degree, Image.fromarray(noisy)
        small = max(1, round(crop.size[0] * SCALE[degree - 1]))
        shrunk = crop.resize((small, small), Image.Resampling.BOX)
        yield "downscale", degree, shrunk.resize(crop.size, Image.Resampling.BILINEAR)


def structural_similarity(one: Image.Image, other: Image.Image) -> float:
    """SSIM of luminance with the window and constants of Wang et al. (2004); 1 for equal images."""
    from skimage.metrics import structural_similarity

    return structural_similarity(
        np.asarray(one.convert("L")),
        np.asarray(other.convert("L")),
        data_range=255,
        gaussian_weights=True,
        sigma=1.5,
        use_sample_covariance=False,
    )


def user_files(data: "Data") -> Source:
    """The images that a CSV of the user's lists, less those that cannot be used, which the facts name."""
    table = find_table(data.source)
    listed = _listed(table)
    refused, kept, squares, animated = dict(listed.refused), [], [], []
    for name in listed.scores:
        try:
            square, moves = files.read(_within(table.parent, name), data.size, data.maximum_pixels)
        except ValueError as error:
            refused[name] = str(error)
            continue
        kept.append(name)
        squares.append(square)
        animated += [name] if moves else []
    if len(kept) < 2:
        reasons = "".join(f"\n  {name}: {reason}" for name, reason in list(refused.items())[:5])
        raise UserError(
            f"data.source={data.source}: {len(kept)} of the {len(listed.scores) + len(listed.refused)} images that "
            f"{table} lists can be used; two are needed for a pair, hundreds to learn from{reasons}"
        )
    scores, unit = whole([listed.scores[name] for name in kept])
    score = dict(zip(kept, scores.tolist(), strict=True))
    asked = [(line, a, b, given) for line, a, b, given in listed.pairs if a in score and b in score]
    if data.theta is not None:
        theta, how = in_units(data.theta, unit), "data.theta"
    elif asked:
        theta, how = fit_theta(asked, score), "what agrees with most labels"
    else:
        theta = pairs.widest_theta(scores, SIMILAR_SHARE)
        how = f"the largest that makes {SIMILAR_SHARE:.0%} of all pairs similar at most, or 0"
    facts = {
        "source": f"images of {table}",
        "listed": len(listed.scores) + len(listed.refused),
        "listed_again": listed.repeated,
        "quarantined": refused,
        "animated": animated,
        "theta_from": how,
        "licences": [],
    }
    if listed.pairs:
        facts["labels"] = _check_labels(asked, score, theta, unit, table, len(listed.pairs))
    return Source(
        images=np.stack(squares),
        scores=scores,
        unit=unit,
        theta=theta,
        attribute=data.attribute or "score",
        groups=[listed.groups.get(name) or name for name in kept],
        names=kept,
        families=["image"] * len(kept),
        facts=facts,
    )


def inputs(source: str) -> list[Path]:
    """The user's files that the images come from: the CSV, and of what it lists what is there."""
    if source in EMBEDDED or not Path(source).exists():
        return []
    table = find_table(source)
    found = []
    for name in _listed(table).scores:
        try:
            path = _within(table.parent, name)
        except ValueError:
            continue
        found += [path] if path.is_file() else []
    return [table, *found]


def find_table(source: str) -> Path:
    """The CSV of `data.source`, itself one or a folder with one in it."""
    path = Path(source)
    if path.is_dir():
        tables = sorted(each for each in path.iterdir() if each.suffix.lower() == ".csv")
        if len(tables) != 1:
            found = f"has {len(tables)}: {', '.join(each.name for each in tables[:5])}" if tables else "has none"
            raise UserError(
                f"data.source={source}: the folder of images must have one CSV in it, of image,score; it {found}"
                + ("; name the one that is meant, as in data.source=" + str(tables[0]) if tables else "")
            )
        return tables[0]
    if not path.is_file():
        near = difflib.get_close_matches(source, EMBEDDED, 1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise UserError(f"data.source={source}: there is no such file or folder{hint}; {WAYS}")
    return path


def _listed(table: Path) -> Listed:
    """What the CSV says, by name of image; nothing is opened."""
    columns, rows = _rows(table)
    listed = Listed()
    if set(columns) == set(PAIR_COLUMNS):
        for line, row in rows:
            given = LABELS.get(row["label"].rstrip(".").lower())
            if given is None:
                raise UserError(
                    f"{table}, line {line}: the label is {row['label']!r}; it must be First (img1 ranks higher), "
                    "Second or Similar"
                )
            _add(listed, row["img1"], row["score1"])
            _add(listed, row["img2"], row["score2"])
            listed.pairs.append((line, row["img1"], row["img2"], given))
    elif set(IMAGE_COLUMNS) <= set(columns) <= {*IMAGE_COLUMNS, "group"}:
        for _, row in rows:
            listed.repeated += row["image"] in listed.scores
            _add(listed, row["image"], row["score"])
            listed.groups.setdefault(row["image"], row.get("group", ""))
    else:
        raise UserError(
            f"{table} has the columns {', '.join(columns) or 'of an empty file'}; it must have image,score, "
            f"and group if some images belong together; or {','.join(PAIR_COLUMNS)}"
        )
    if not listed.scores:
        raise UserError(f"{table} lists no image; {WAYS}")
    for name in listed.refused:
        del listed.scores[name]
    return listed


def _rows(table: Path) -> tuple[list[str], list[tuple[int, dict[str, str]]]]:
    """The columns of a CSV, and (line, {column: value}) of its rows."""
    try:
        text = table.read_text(encoding="utf-8-sig")
        reader = csv.reader(io.StringIO(text, newline=""), strict=True)
        columns = [column.strip() for column in next(reader, [])]
        rows = [(reader.line_num, [value.strip() for value in row]) for row in reader if row]
    except UnicodeDecodeError as error:
        raise UserError(f"{table} is not UTF-8 (byte {error.start}); save it as CSV in UTF-8") from error
    except OSError as error:
        raise UserError(f"cannot read {table}: {error.strerror}") from error
    except csv.Error as error:
        raise UserError(f"{table}, line {reader.line_num}: this is not CSV: {error}") from error
    wrong = next(((line, row) for line, row in rows if len(row) != len(columns)), None)
    if wrong or len(set(columns)) < len(columns):
        raise UserError(
            f"{table}: the header names {len(columns)} columns ({', '.join(columns)})"
            + (f", line {wrong[0]} has {len(wrong[1])} values" if wrong else ", one of them twice")
        )
    return columns, [(line, dict(zip(columns, row, strict=True))) for line, row in rows]


def _add(listed: Listed, name: str, score: str) -> None:
    """Note an image's score; one that is no number, or another than before, makes the image unusable."""
    if number(score) is None:
        listed.refused[name] = f"its score is {score!r}, which is no number"
    elif name in listed.scores and number(listed.scores[name]) != number(score):
        listed.refused[name] = f"it has the scores {listed.scores[name]} and {score}"
    listed.scores.setdefault(name, score)


def _within(folder: Path, name: str) -> Path:
    """The image called `name` in a CSV of `folder`. ValueError if that is somewhere else."""
    path = folder / name
    if not name or "\0" in name or not path.resolve().is_relative_to(folder.resolve()):
        raise ValueError(f"not below {folder}, the folder of the CSV")
    return path


def number(text: str) -> Fraction | None:
    """The exact value of a decimal number, None if it is none or beyond 10^9."""
    try:
        value = Decimal(text)
    except InvalidOperation:
        return None
    return Fraction(value) if value.is_finite() and abs(value) <= 10**9 and value.adjusted() >= -30 else None


def whole(texts: Sequence[str]) -> tuple[np.ndarray, Fraction]:
    """Scores (N,) int64 in a unit that makes whole numbers of them, and the unit.

    With up to three decimals it is the last one's. With more it is the largest 1/q, q up to 1,000, of which all are
    multiples to the last decimal written: 2.883333 and 3.016667 are sixtieths. Else it is the last decimal's, of nine.
    """
    values = [number(text) for text in texts]
    decimals = max(max(0, -Decimal(text).normalize().as_tuple().exponent) for text in texts)
    denominators = range(1, LARGEST_DENOMINATOR + 1) if decimals > 3 else ()
    # Numbers as computers print them are off by more than half of a seventeenth decimal.
    slack = max(Fraction(51, 100 * 10**decimals), Fraction(1, 10**12))
    for q in denominators:
        if all(abs(value - Fraction(round(value * q), q)) <= slack for value in values):
            break
    else:
        q = 10 ** min(decimals, DECIMALS)
    return np.array([round(value * q) for value in values], np.int64), Fraction(1, q)


def in_units(theta: float, unit: Fraction) -> int:
    """The largest whole number of units that is no more than `theta` as it was typed: 0.2 has 12 sixtieths."""
    return min(Fraction(Decimal(str(theta))) // unit, LARGEST_THETA)


def fit_theta(asked: Sequence[tuple[int, str, str, int]], score: Mapping[str, int]) -> int:
    """The smallest theta, in units, among those that contradict the fewest labels."""
    distance = np.array([abs(score[a] - score[b]) for _, a, b, _ in asked])
    similar = np.sort(distance[np.array([given == SIMILAR for *_, given in asked])])
    others = np.sort(distance[np.array([given != SIMILAR for *_, given in asked])])
    tried = np.unique([0, *similar])
    wrong = len(similar) - np.searchsorted(similar, tried, "right") + np.searchsorted(others, tried, "right")
    return int(tried[wrong.argmin()])


def _check_labels(
    asked: Sequence[tuple[int, str, str, int]],
    score: Mapping[str, int],
    theta: int,
    unit: Fraction,
    table: Path,
    all_pairs: int,
) -> dict[str, Any]:
    """How far a CSV's labels agree with its scores, which are what pairs are labelled by."""
    names = {value: name.capitalize() for name, value in LABELS.items()}
    expected = [int(pairs.label(np.int64(score[a]), np.int64(score[b]), theta)) for _, a, b, _ in asked]
    contradictory = [
        f"line {line}: {a} ({float(score[a] * unit):g}), {b} ({float(score[b] * unit):g}) is labelled {names[given]}, "
        f"by its scores {names[right]}"
        for (line, a, b, given), right in zip(asked, expected, strict=True)
        if given != right
    ]
    if len(contradictory) > len(asked) / 2:
        raise UserError(
            f"{table}: {len(contradictory):,} of {len(asked):,} labels contradict the scores (theta "
            f"{float(theta * unit):g}), as {contradictory[0]}; First means that img1 has the larger score: turn the "
            "labels or the signs of the scores, or give the data.theta that the labels were made with"
        )
    return {
        "pairs": all_pairs,
        "of_usable_images": len(asked),
        "count": {names[value]: count for value, count in sorted(Counter(given for *_, given in asked).items())},
        "contradict_scores": len(contradictory),
        "examples": contradictory[:NAMED],
    }
