"""Untrusted image files, decoded within bounds into small squares of pixels or refused with the reason."""

import functools
import io
import warnings
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError, features

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
NEAR_BITS = 6  # of 64: images whose hashes differ in this many bits or fewer may be near duplicates
NEAR_LEVELS = 6.0  # of 255: largest mean absolute difference of near duplicates, both scaled to 16 x 16 pixels


def decode(source: Path | bytes, size: int, maximum_pixels: int) -> np.ndarray:
    """Return the middle square of an image, scaled, as (size, size, 3) uint8; ValueError says why it fails."""
    return read(source, size, maximum_pixels)[0]


def read(source: Path | bytes, size: int, maximum_pixels: int) -> tuple[np.ndarray, bool]:
    """Return the square as `decode` does, and True if the file has more frames than the first, the one decoded.

    The image is turned as its EXIF data say, transparent parts become white, and 16 bits are scaled to 8; colour
    profiles are not applied. An image of more than `maximum_pixels` is refused before it is decoded.
    """
    if isinstance(source, Path) and not source.is_file():
        raise ValueError("there is no such file")
    with warnings.catch_warnings():
        # These warnings concern metadata that is not used; damaged pixels raise errors.
        warnings.simplefilter("ignore")
        try:
            file = io.BytesIO(source) if isinstance(source, bytes) else source
            with Image.open(file, formats=_formats(source)) as image:
                _check_size(image, maximum_pixels)
                animated = bool(getattr(image, "is_animated", False))
                image.load()
                upright = ImageOps.exif_transpose(_rgb(image))
                square = ImageOps.fit(upright, (size, size), Image.Resampling.LANCZOS)
        except UnidentifiedImageError:
            raise ValueError(f"not an image, or of none of the formats {', '.join(FORMATS)}, AVIF, HEIC") from None
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


def _formats(source: Path | bytes) -> tuple[str, ...]:
    """Return the formats, by Pillow's names, to try on an image; RefusedError if their decoder is missing."""
    if isinstance(source, bytes):
        head = source[:LONGEST_LIST]
    else:
        with source.open("rb") as file:
            head = file.read(LONGEST_LIST)
    if head[4:8] != b"ftyp":
        return FORMATS
    end = min(len(head), int.from_bytes(head[:4]))
    brands = {head[place : place + 4] for place in (8, *range(16, end, 4))}
    if brands & AVIF_BRANDS:
        if not features.check("avif"):
            raise RefusedError(
                "an AVIF image, for which Pillow is too old; `pip install --upgrade pillow`, 11.3 or later"
            )
        return ("AVIF",)
    if brands & HEIC_BRANDS:
        if not reads_heic():
            raise RefusedError(
                "a HEIC image, for which a package is missing; `pip install -e '.[heif]'`, or `pip install pillow-heif`"
            )
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


def _check_size(image: Image.Image, maximum_pixels: int) -> None:
    width, height = image.size
    if width * height > maximum_pixels:
        raise TooLargeError(
            f"too large: {width:,} x {height:,} pixels, {maximum_pixels:,} are allowed; scale it down first"
        )
    if min(width, height) < SMALLEST_SIDE:
        raise RefusedError(f"too small: {width} x {height} pixels, {SMALLEST_SIDE} a side are needed")


def _rgb(image: Image.Image) -> Image.Image:
    """Return the image in RGB with its EXIF data."""
    exif = image.getexif()
    if image.mode in SIXTEEN_BITS:
        values = np.asarray(image).astype(np.uint32)
        image = Image.fromarray(((values + 128) // 257).astype(np.uint8))  # Pillow's own conversion clips at 255
    elif image.mode not in BARE or "transparency" in image.info:
        if image.mode in ("I", "F"):
            raise RefusedError(
                f"its pixels (mode {image.mode}) have no known range; save it with 8 or 16 bits a channel"
            )
        image = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, BACKGROUND), image)
    image = image.convert("RGB")
    image.info["exif"] = exif.tobytes()
    return image


def dhash(image: np.ndarray) -> int:
    """Return a 64-bit hash of an image (S, S, C) uint8: for neighbours in a row, which is brighter (Krawetz 2013)."""
    grey = np.asarray(_grey(image).resize((9, 8), Image.Resampling.BOX), np.int16)
    return int.from_bytes(np.packbits(grey[:, 1:] > grey[:, :-1]).tobytes())


def thumbnail(image: np.ndarray) -> np.ndarray:
    """Return an image (S, S, C) uint8 in grey, scaled to (16, 16) uint8."""
    return np.asarray(_grey(image).resize((16, 16), Image.Resampling.BOX))


def near_duplicates(hashes: np.ndarray, thumbnails: np.ndarray) -> np.ndarray:
    """Return pairs i < j, (K, 2) int64, of images that are the same up to small differences.

    Inputs are the `dhash` (N,) uint64 and the `thumbnail` (N, 16, 16) uint8 of each. All plain images have the
    same hash, so the pixels must be close too.
    """
    found = [np.empty((0, 2), np.int64)]
    last = len(hashes) - 1
    for i in progress(range(last), last, "looking for near duplicates, images"):
        near = i + 1 + np.flatnonzero(np.bitwise_count(hashes[i + 1 :] ^ hashes[i]) <= NEAR_BITS)
        near = near[np.abs(thumbnails[near] - thumbnails[i].astype(np.int16)).mean((1, 2)) <= NEAR_LEVELS]
        found.append(np.stack([np.full(len(near), i), near], axis=1))
    return np.concatenate(found)


def _grey(image: np.ndarray) -> Image.Image:
    return Image.fromarray(image[..., 0] if image.shape[-1] == 1 else image).convert("L")
