"""Untrusted image files, decoded within bounds into small squares of pixels or refused with the reason."""

import functools
import io
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from PIL import ExifTags, Image, ImageOps, UnidentifiedImageError, features

from common.workers import progress

# Formats whose header states the size before anything is decoded. Some others, such as EPS, start programs.
FORMATS = ("JPEG", "PNG", "GIF", "BMP", "TIFF", "WEBP", "PPM")
# AVIF and HEIC share a container (ISO/IEC 23008-12), whose first box lists what it holds.
AVIF_BRANDS = frozenset((b"avif", b"avis"))
HEIC_BRANDS = frozenset((b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"mif1", b"msf1"))
LONGEST_LIST = 256  # bytes of that box
MOST_PIXELS = 2 * (Image.MAX_IMAGE_PIXELS or 0)  # that Pillow opens at all
SMALLEST_SIDE = 8  # pixels; a smaller image shows nothing that could be ranked
SIXTEEN_BITS = ("I;16", "I;16L", "I;16B", "I;16N")
BARE = ("1", "L", "RGB", "CMYK", "YCbCr")  # modes without transparency, which convert to RGB directly
BACKGROUND = (255, 255, 255)  # behind transparent images
NEAR_BITS = 14  # of 56: images whose hashes differ in this many bits or fewer may be near duplicates
NEAR_LEVELS = 7.0  # of 255: largest mean absolute difference of near duplicates, both scaled to 16 x 16 pixels
NEAR_SHARE = 0.7  # the same, as a share of the mean deviation of an image's levels
DARKEST, FARTHEST = 0.7, 0.7  # least ratio of brightness; most pixels, of 16, of a near duplicate's shift or scaling
PLAIN = 2.0  # of 255: mean deviation of levels, below which an image counts as one flat shade
CELLS = np.kron(*[np.kron(np.eye(4), np.ones((4, 1)))] * 2).astype(np.float32) / 16  # (256, 16), means of 4 x 4 cells
AT_ONCE, FINE, CUT = 64, 32, 0.02  # images; pixels a side of thumbnails; the share that is cropped off a side
# Of crops: least correlation; largest difference of levels; candidates correlate at most this less than own crops do.
AS_CUT, CUT_LEVELS, MARGIN = 0.65, 6.0, 0.2
MIRRORED = np.arange(256).reshape(16, 16)[:, ::-1].ravel()  # the cells of 16 x 16, from right to left
TIFF, LARGEST = (b"II*\0", b"MM\0*"), 341  # how TIFF begins; its tag SMaxSampleValue


def _padded(image: Image.Image, size: tuple[int, int], resample: Image.Resampling) -> Image.Image:
    """Pad the whole image to `size` with white; it is at least a pixel thick, which ImageOps may make 0."""
    width, height = (max(1, round(side / max(image.size) * size[0])) for side in image.size)
    return ImageOps.pad(image.resize((width, height), resample), size, resample, BACKGROUND)


# How an image becomes a square of so many pixels a side: (image, (side, side), filter) -> square.
FITS: dict[str, Callable[[Image.Image, tuple[int, int], Image.Resampling], Image.Image]] = {
    "crop": ImageOps.fit,
    "pad": _padded,
    "stretch": Image.Image.resize,
}


def decode(source: Path | bytes, size: int, maximum_pixels: int, fit: str = "crop") -> np.ndarray:
    """Return an image as a square (size, size, 3) uint8, by FITS; ValueError says why it is refused."""
    return read(source, size, maximum_pixels, fit)[0]


def read(source: Path | bytes, size: int, maximum_pixels: int, fit: str = "crop") -> tuple[np.ndarray, bool]:
    """Return the square of `decode`, and whether the file has more frames than the first, the one decoded.

    The image is turned as its EXIF data say, transparent parts become white, and 16 bits are scaled to 8, as are grey
    floats from 0 to 1, or to the largest that a TIFF states; colour profiles are not applied. An image of more than
    `maximum_pixels` is refused before it is decoded.
    """
    if isinstance(source, Path) and not source.is_file():
        raise ValueError("there is no such file")
    with warnings.catch_warnings():
        # These warnings concern metadata that is not used; damaged pixels raise errors.
        warnings.simplefilter("ignore")
        try:
            file = io.BytesIO(source) if isinstance(source, bytes) else source
            with Image.open(file, formats=_formats(source)) as image:
                width, height = image.size
                if width * height > maximum_pixels:
                    many = f"{width:,} x {height:,} pixels, {maximum_pixels:,} are allowed"
                    raise TooLargeError(f"too large: {many}; scale it down first")
                if min(width, height) < SMALLEST_SIDE:
                    raise RefusedError(f"too small: {width} x {height} pixels, {SMALLEST_SIDE} a side are needed")
                animated = bool(getattr(image, "is_animated", False))
                image.load()
                square = FITS[fit](ImageOps.exif_transpose(_rgb(image)), (size, size), Image.Resampling.LANCZOS)
        except UnidentifiedImageError:
            if _head(source).startswith(TIFF):
                raise ValueError("a TIFF, but damaged or of coloured floats; save 8 or 16 bits a channel") from None
            raise ValueError(f"not an image in any of the formats {', '.join(FORMATS)}, AVIF, HEIC") from None
        except Image.DecompressionBombError:
            raise ValueError(f"too large: more than {MOST_PIXELS:,} pixels; scale it down first") from None
        except RefusedError:
            raise
        except PermissionError as error:
            raise ValueError(f"cannot be read: {error.strerror}") from None
        except Exception as error:  # the decoders raise a dozen unrelated types for damaged files
            raise ValueError(f"damaged: {' '.join(str(error).split()) or type(error).__name__}") from error
    return np.asarray(square), animated


class RefusedError(ValueError):
    """An image that is intact but cannot be used."""


class TooLargeError(RefusedError):
    """An image of more pixels than are allowed."""


def _head(source: Path | bytes) -> bytes:
    if isinstance(source, bytes):
        return source[:LONGEST_LIST]
    with source.open("rb") as file:
        return file.read(LONGEST_LIST)


def _formats(source: Path | bytes) -> tuple[str, ...]:
    """Return the formats, by Pillow's names, to try on an image; RefusedError if their decoder is missing."""
    if (head := _head(source))[4:8] != b"ftyp":
        return FORMATS
    brands = {head[place : place + 4] for place in (8, *range(16, min(len(head), int.from_bytes(head[:4])), 4))}
    if brands & AVIF_BRANDS:
        if not features.check("avif"):
            newer = "`pip install --upgrade pillow`, 11.3 or later"
            raise RefusedError(f"an AVIF image, which this Pillow is too old for; {newer}")
        return ("AVIF",)
    if brands & HEIC_BRANDS:
        if not reads_heic():
            way = "`pip install -e '.[heif]'`, or `pip install pillow-heif`"
            raise RefusedError(f"a HEIC image, which needs another package; {way}")
        return ("HEIF",)
    return FORMATS


@functools.cache
def reads_heic() -> bool:
    """Teach Pillow to read HEIC; False if the package for it is not installed."""
    try:
        import pillow_heif
    except ImportError:
        return False
    pillow_heif.register_heif_opener()
    return True


def _rgb(image: Image.Image) -> Image.Image:
    """Return the image in RGB with its orientation as the only EXIF data: malformed tags cannot be written again."""
    exif, turned = Image.Exif(), image.getexif().get(ExifTags.Base.Orientation, 1)
    exif[ExifTags.Base.Orientation] = int(turned) if turned in range(1, 9) else 1
    tags, stored, floats = getattr(image, "tag_v2", {}), (image.mode, image.format), image.mode == "F"
    if floats or image.mode in SIXTEEN_BITS or stored == ("I", "PPM"):  # of which Pillow scales all levels to 16 bits
        values = np.asarray(image) if floats else np.asarray(image) / np.float32(65535)
        low, high, most = values.min(), values.max(), max(1.0, np.max(tags.get(LARGEST, 1))) if floats else 1.0
        if not (low >= 0 and high <= most):  # false for NaN, too
            unknown = f"floats from {low:g} to {high:g} have no known range"
            raise RefusedError(f"{unknown}; save 16 bits, or floats from 0 to 1")
        shades = (values * (255 / most)).round().astype(np.uint8)  # Pillow's own conversion clips at 255
        white_is_zero = tags.get(ExifTags.Base.PhotometricInterpretation) == 0  # Pillow turns 8 bits over alone
        image = Image.fromarray(255 - shades if white_is_zero else shades)
    elif image.mode not in BARE or "transparency" in image.info:
        if image.mode == "I":
            raise RefusedError("its pixels (whole numbers of 32 bits) have no known range; save 8 or 16 bits a channel")
        image = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, BACKGROUND), image)
    image = image.convert("RGB")
    image.info["exif"] = exif.tobytes()
    return image


def thumbnail(image: np.ndarray) -> np.ndarray:
    """Return an image (S, S, C) uint8 in grey, scaled to (32, 32) uint8."""
    grey = Image.fromarray(image[..., 0] if image.shape[-1] == 1 else image).convert("L")
    return np.asarray(grey.resize((FINE, FINE), Image.Resampling.BOX))


def near_duplicates(thumbnails: np.ndarray) -> np.ndarray:
    """Return pairs i < j, (K, 2) int64, of near duplicates among thumbnails (N, 32, 32) uint8, mirrored or not.

    One is the other shifted or scaled a little, or cropped; looking for crops finds textures, too.
    """
    wide = (thumbnails[..., ::2] + np.uint16(1) + thumbnails[..., 1::2]) // 2
    coarse = (wide[:, ::2] + wide[:, 1::2] + 1) // 2  # as Pillow scales and rounds
    found = (*_moved_little(coarse), *_cut(thumbnails, coarse.reshape(-1, 256).astype(np.float32)))
    return np.unique(np.sort(np.concatenate([np.empty((0, 2), np.int64), *found]), axis=1), axis=0)


def _cut(thumbnails: np.ndarray, coarse: np.ndarray) -> Iterator[np.ndarray]:
    """Yield pairs (K, 2) whose second image is the first with 2 % cropped off some sides, brighter or darker."""
    edges = np.array([np.linspace(left, 1 - right, 17) for left in (0, CUT) for right in (0, CUT)]) * FINE
    below = (edges[..., None] - np.arange(FINE)).clip(0, 1)  # (4, 17, 32), shares of pixels before an edge
    shares = (np.diff(below, axis=1) / np.diff(edges)[..., None]).astype(np.float32)
    unit, contrast = _standard(coarse)
    starts = range(0, len(unit), AT_ONCE)
    for start in progress(starts, len(starts), f"looking for cropped duplicates, {AT_ONCE} images at a time"):
        part = slice(start, start + AT_ONCE)
        rows = shares @ thumbnails[part, None].astype(np.float32)  # (b, 4, 16, 32)
        cuts = (rows[:, :, None] @ shares.transpose(0, 2, 1)).reshape(-1, 16, 256)
        standard = _standard(cuts.reshape(-1, 256))[0].reshape(cuts.shape)
        uncut = (standard @ unit[part, :, None]).min((1, 2))[:, None] - MARGIN
        likely = ((unit[part] @ unit.T > uncut) | (unit[part][:, MIRRORED] @ unit.T > uncut)) & (contrast > PLAIN)
        likely[np.arange(len(likely)), np.arange(start, start + len(likely))] = False
        for i, near in enumerate(map(np.flatnonzero, likely)):
            alike = np.concatenate([standard[i], standard[i][:, MIRRORED]]) @ unit[near].T  # (32, n)
            best, sure = alike.argmax(0), alike.max(0) > AS_CUT
            near, shown = near[sure], np.concatenate([cuts[i], cuts[i][:, MIRRORED]])[best[sure]]
            bright = (shown * coarse[near]).sum(1) / (shown * shown).sum(1).clip(1)
            apart = np.abs(shown * bright[:, None] - coarse[near]).mean(1)
            near = near[(bright > DARKEST) & (bright < 1 / DARKEST) & (apart <= CUT_LEVELS)]
            yield np.stack([np.full(len(near), start + i), near], axis=1)


def _standard(levels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return levels (n, 256) less their mean, scaled to unit norm, and their mean deviations (n,)."""
    apart = levels - levels.mean(1, keepdims=True)
    return apart / np.linalg.norm(apart, axis=1, keepdims=True).clip(1e-6), np.abs(apart).mean(1)


def _moved_little(thumbnails: np.ndarray) -> Iterator[np.ndarray]:
    """Yield pairs (K, 2) of thumbnails (N, 16, 16) of which one is the other shifted or scaled by less than a pixel.

    Candidates have similar difference hashes (Krawetz 2013). Their levels must be close, too, after a least-squares fit
    of brightness, shift and scale.
    """
    contrast = np.abs(thumbnails - thumbnails.mean((1, 2), keepdims=True)).mean((1, 2))
    ways = [(each.reshape(-1, 256).astype(np.float32), _hashes(each)) for each in (thumbnails, thumbnails[:, :, ::-1])]
    (own, hashes), starts = ways[0], range(0, len(thumbnails), AT_ONCE)
    means = [shown @ CELLS for shown, _ in ways]
    for start in progress(starts, len(starts), f"looking for near duplicates, {AT_ONCE} images at a time"):
        part = slice(start, start + AT_ONCE)
        moved = _moved(thumbnails[part])
        fitting, most = np.linalg.pinv(moved).astype(np.float32), np.minimum(NEAR_LEVELS, NEAR_SHARE * contrast[part])
        basis = np.linalg.qr(CELLS.T @ moved)[0].astype(np.float32)  # (b, 16, 4)
        for (shown, marks), cells in zip(ways, means, strict=True):
            likely = np.bitwise_count(marks[start:] ^ hashes[part, None]) <= NEAR_BITS  # (b, n)
            for i, near in enumerate(start + i + 1 + np.flatnonzero(row[i + 1 :]) for i, row in enumerate(likely)):
                plain, seen = np.minimum(contrast[near], contrast[start + i]) < PLAIN, cells[near]
                # A lower bound of the levels' distance: that of their means over cells from the best fit.
                left = (seen * seen).sum(1) - ((seen @ basis[i]) ** 2).sum(1)
                kept = plain | (left <= (16 * most[i]) ** 2 + 1)  # 1: for rounding
                near, plain = near[kept], plain[kept]
                levels = shown[near].T  # (256, n)
                fitted = fitting[i] @ levels
                alike = (fitted[0] > DARKEST) & (fitted[0] < 1 / DARKEST) & (np.abs(fitted[1:]) < FARTHEST).all(0)
                alike[alike] = np.abs(moved[i] @ fitted[:, alike] - levels[:, alike]).mean(0) <= most[i]
                alike[plain] = np.abs(levels[:, plain] - own[start + i, :, None]).mean(0) <= NEAR_LEVELS
                near = near[alike]
                yield np.stack([np.full(len(near), start + i), near], axis=1)


def _moved(thumbnails: np.ndarray) -> np.ndarray:
    """Return levels of thumbnails (n, 16, 16) and their derivatives by shift and scale: (n, 256, 4) float64."""
    levels = thumbnails.astype(float)
    down, across = np.gradient(levels, axis=(1, 2))
    y, x = np.mgrid[-1:1:16j, -1:1:16j]
    return np.stack([levels, down, across, y * down + x * across], -1).reshape(-1, 256, 4)


def _hashes(thumbnails: np.ndarray) -> np.ndarray:
    """Return difference hashes (N,) uint64: whether the right one of two neighbours in 8 x 8 cells is brighter."""
    cells = thumbnails.reshape(-1, 8, 2, 8, 2).mean((2, 4))
    bits = np.packbits((np.diff(cells) > 0).reshape(-1, 56), axis=1)
    return np.pad(bits, ((0, 0), (1, 0))).view(np.uint64)[:, 0]
