"""Image files of every kind are decoded to the same square, and unusable ones are refused with the reason."""

import os
import struct
import sys
import zlib
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image, ImageOps, PngImagePlugin, features
from sklearn.datasets import load_digits

from exporters.onnx import examples
from models.images import image_files
from tests.models.images.made_files import LIMIT, encoded, picture, refusal


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def black_png(side):
    """A PNG of side x side black pixels of one bit, a few kilobytes for any side."""
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", side, side, 1, 0, 0, 0, 0))
    pixels = zlib.compress(bytes(side * (1 + (side + 7) // 8)))
    return b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")


def test_an_image_comes_back_pixel_by_pixel():
    image = picture()
    assert (image_files.decode(encoded(image), 32, LIMIT) == np.asarray(image)).all()


def test_a_path_and_its_bytes_give_the_same(tmp_path):
    path = tmp_path / "a.png"
    path.write_bytes(encoded(picture()))
    square = image_files.decode(path, 16, LIMIT)
    assert square.shape == (16, 16, 3)
    assert square.dtype == np.uint8
    assert (square == image_files.decode(path.read_bytes(), 16, LIMIT)).all()


def test_the_middle_square_of_a_wide_image_is_kept():
    wide = np.zeros((32, 96, 3), np.uint8)
    wide[:, 32:64] = np.asarray(picture())
    assert (image_files.decode(encoded(Image.fromarray(wide)), 32, LIMIT) == np.asarray(picture())).all()


@pytest.mark.parametrize("turned", [False, True])
def test_the_whole_of_a_wide_image_is_padded_with_white_or_stretched(turned):
    wide = np.zeros((32, 96, 3), np.uint8)
    wide[:, 48:] = 200
    turn = (lambda square: square.swapaxes(0, 1)) if turned else (lambda square: square)
    given = encoded(Image.fromarray(np.ascontiguousarray(turn(wide))))
    padded = turn(image_files.decode(given, 48, LIMIT, "pad"))
    assert (padded[:16] == 255).all()
    assert (padded[32:] == 255).all()
    assert (padded[16:32, :20] == 0).all()
    assert (padded[16:32, 28:] == 200).all()
    stretched = turn(image_files.decode(given, 48, LIMIT, "stretch"))
    assert (stretched[:, :20] == 0).all()
    assert (stretched[:, 28:] == 200).all()


@pytest.mark.parametrize("fit", image_files.FITS)
def test_an_exported_program_sees_what_the_model_does(fit, monkeypatch):
    monkeypatch.setattr(examples, "settings", lambda: SimpleNamespace(size=32, channels=3, fit=fit))
    image = picture().resize((50, 81))
    assert (examples.pixels(image).transpose(1, 2, 0) == image_files.decode(encoded(image), 32, LIMIT, fit)).all()


@pytest.mark.parametrize(
    ("convert", "kind", "options"),
    [
        (lambda image: image.convert("CMYK"), "TIFF", {}),
        (lambda image: image.convert("CMYK"), "JPEG", {"quality": 100, "subsampling": 0}),
        (lambda image: image.quantize(256), "PNG", {}),
        (lambda image: image.quantize(256), "GIF", {}),
        (lambda image: image.convert("RGBA"), "PNG", {}),
        (lambda image: image, "BMP", {}),
        (lambda image: image, "WEBP", {"lossless": True}),
        (lambda image: image, "AVIF", {"quality": 100, "subsampling": "4:4:4"}),
        (lambda image: image, "JPEG", {"quality": 100, "subsampling": 0, "progressive": True}),
    ],
)
def test_every_colour_model_and_format_shows_the_same_colours(convert, kind, options):
    found = image_files.decode(encoded(convert(picture()), kind, **options), 32, LIMIT)
    assert np.abs(found.astype(int) - np.asarray(picture())).mean() < 5


def test_sixteen_bits_are_scaled_and_not_clipped():
    values = np.linspace(0, 65535, 32 * 32).reshape(32, 32)
    for kind in ("PNG", "TIFF"):
        found = image_files.decode(encoded(Image.fromarray(values.astype(np.uint16)), kind), 32, LIMIT)
        assert np.abs(found.astype(float) - values[..., None] / 257).max() <= 0.5 + 1 / 257
        assert len(np.unique(found)) == 256


def test_sixteen_bits_whose_zero_is_white_are_turned_over_as_eight_bits_are():
    black, white = (
        b"\x06\x01\x03\x00\x01\x00\x00\x00\x01\x00",
        b"\x06\x01\x03\x00\x01\x00\x00\x00\x00\x00",
    )  # which is 0
    values = np.linspace(0, 255, 32).round()[None].repeat(32, 0)
    for kind, scale in ((np.uint8, 1), (np.uint16, 257)):
        content = encoded(Image.fromarray((values * scale).astype(kind)), "TIFF")
        assert content.count(black) == 1
        found = image_files.decode(content.replace(black, white), 32, LIMIT)
        assert (found[..., 0] == 255 - values).all()


def test_grey_floats_are_shares_of_1_or_of_the_largest_that_a_tiff_states_and_else_refused(tmp_path):
    known = np.asarray(picture())[..., 0].astype(np.float32)

    def tiff(values, tags=(), **options):
        return encoded(Image.fromarray(values), "TIFF", tiffinfo=dict(tags), **options)

    (tmp_path / "a.pfm").write_bytes(b"Pf\n32 32\n-1.0\n" + (known[::-1] / 255).tobytes())
    states = {341: 255.0}, {341: 0.5}, {341: 2.0}
    given = [tiff(known / 255), tiff(known / 255, compression="tiff_lzw"), tmp_path / "a.pfm", tiff(known, states[0])]
    for each in (*given, tiff(known / 255, states[1]), tiff(known * (2 / 255), states[2])):
        found = image_files.decode(each, 32, LIMIT)
        assert (found == known[..., None]).all()
    turned = image_files.decode(tiff(known / 255, {274: 3}), 32, LIMIT)
    assert (turned[..., 0] == known[::-1, ::-1]).all()
    negative = tiff(known / 255).replace(b"\x06\x01\x03\0\x01\0\0\0\x01\0", b"\x06\x01\x03\0\x01\0\0\0\0\0")
    assert (image_files.decode(negative, 32, LIMIT)[..., 0] == 255 - known).all()
    for wrong in (known, -known / 255, known * np.nan):
        ends = f"{wrong.min():g} to {wrong.max():g}"
        assert refusal(tiff(wrong)) == f"floats from {ends} have no known range; save 16 bits, or floats from 0 to 1"
    assert refusal(tiff(known)[:-9]).startswith("damaged")


def test_a_tiff_of_pixels_that_pillow_has_no_mode_for_is_said_to_be_one(tmp_path):
    colours = encoded(picture(), "TIFF")
    eight, floats = ((b"\x02\x01\x03\0\x03\0\0\0", b"\x53\x01\x03\0\x03\0\0\0")[n] for n in (0, 1))
    assert colours.count(eight) == 1
    (tmp_path / "a.tif").write_bytes(colours.replace(eight, floats))  # its bits a channel are their format
    for source in (tmp_path / "a.tif", b"MM\0*" + bytes(50)):
        assert refusal(source) == ("a TIFF, but damaged or of coloured floats; save 8 or 16 bits a channel")


@pytest.mark.parametrize(("most", "kind"), [(65535, ">u2"), (4095, ">u2"), (255, "u1"), (100, "u1")])
def test_the_levels_of_a_pgm_are_shares_of_its_largest(most, kind):
    levels = np.linspace(0, most, 32 * 32).round().astype(kind).reshape(32, 32)
    found = image_files.decode(f"P5\n32 32\n{most}\n".encode() + levels.tobytes(), 32, LIMIT)
    assert np.abs(found[..., 0] - levels / most * 255).max() <= 0.51


@pytest.mark.parametrize("sides", [(3000, 8), (8, 3000), (1025, 16), (1023, 16), (1024, 16)])
def test_a_very_long_image_is_padded_to_a_line(sides):
    found = image_files.decode(encoded(Image.new("RGB", sides)), 32, LIMIT, "pad")
    line = found if sides[0] > sides[1] else found.swapaxes(0, 1)
    assert (line[15:16] == 0).all() or (line[16:17] == 0).all()
    assert (line == 255).all((1, 2)).sum() == 31


def test_transparent_parts_are_white_in_every_mode():
    image = np.zeros((32, 32, 4), np.uint8)
    image[:, 16:, 3] = 255  # the left half is transparent black, the right half opaque black
    whole = Image.fromarray(image)
    palette = Image.fromarray((np.arange(32) < 16).astype(np.uint8)[None].repeat(32, 0))
    palette.putpalette([0, 0, 0, 10, 20, 30])
    for data in (encoded(whole), encoded(whole.convert("LA")), encoded(palette, transparency=1)):
        found = image_files.decode(data, 32, LIMIT)
        assert (found[:, :16] == 255).all()
        assert (found[:, 16:] == 0).all()


@pytest.mark.parametrize("orientation", range(1, 9))
def test_images_are_turned_as_their_exif_data_say(orientation):
    inverse = {
        2: Image.Transpose.FLIP_LEFT_RIGHT,
        3: Image.Transpose.ROTATE_180,
        4: Image.Transpose.FLIP_TOP_BOTTOM,
        5: Image.Transpose.TRANSPOSE,
        6: Image.Transpose.ROTATE_90,
        7: Image.Transpose.TRANSVERSE,
        8: Image.Transpose.ROTATE_270,
    }
    upright = picture()
    stored = upright.transpose(inverse[orientation]) if orientation > 1 else upright
    exif = Image.Exif()
    exif[0x0112] = orientation
    for image, kind in ((stored, "PNG"), (stored.convert("RGBA"), "PNG")):
        assert (image_files.decode(encoded(image, kind, exif=exif), 32, LIMIT) == np.asarray(upright)).all()


@pytest.mark.parametrize("wrong", [(0x0112, 3, 2), (0x011A, 5, 2), (0x011A, 5, 7)])  # tag, its type, and another
def test_exif_data_of_other_types_do_not_make_an_image_a_damaged_one(wrong):
    exif = Image.Exif()
    exif[0x0112], exif[0x011A] = 6, 72.0
    tag, *types = (number.to_bytes(2) for number in wrong)
    assert exif.tobytes().count(tag + types[0]) == 1
    stored = encoded(picture(), "JPEG", quality=95, exif=exif.tobytes().replace(tag + types[0], tag + types[1]))
    upright = picture() if wrong[0] == 0x0112 else picture().transpose(Image.Transpose.ROTATE_270)
    assert np.abs(image_files.decode(stored, 32, LIMIT) - np.asarray(upright).astype(float)).mean() < 12


def test_avif_is_turned_once_though_pillow_turns_it_itself():
    exif = Image.Exif()
    exif[0x0112] = 6
    stored = encoded(picture().transpose(Image.Transpose.ROTATE_90), "AVIF", quality=95, exif=exif.tobytes())
    assert np.abs(image_files.decode(stored, 32, LIMIT).astype(int) - np.asarray(picture())).mean() < 5


def test_avif_and_heic_are_refused_by_name_where_nothing_reads_them(monkeypatch, tmp_path):
    image_files.reads_heic.cache_clear()
    monkeypatch.setitem(sys.modules, "pillow_heif", None)  # as if it were not installed
    monkeypatch.setattr(features, "check", lambda feature: False)
    (tmp_path / "a.heic").write_bytes(b"\0\0\0\x18ftypheic\0\0\0\0mif1heic" + bytes(100))
    assert refusal(tmp_path / "a.heic") == (
        "a HEIC image, which needs another package; `pip install -e '.[heif]'`, or `pip install pillow-heif`"
    )
    assert "`pip install --upgrade pillow`, 11.3 or later" in refusal(encoded(picture(), "AVIF"))
    image_files.reads_heic.cache_clear()


def test_sixteen_bits_are_turned_too():
    exif = Image.Exif()
    exif[0x0112] = 3
    values = np.linspace(0, 65535, 32 * 32).reshape(32, 32).astype(np.uint16)
    found = image_files.decode(encoded(Image.fromarray(values), "TIFF", exif=exif), 32, LIMIT)
    assert found[0, 0, 0] == 255
    assert found[-1, -1, 0] == 0


@pytest.mark.parametrize("kind", ["GIF", "PNG", "WEBP", "TIFF", "AVIF"])
def test_of_an_animation_the_first_frame_is_taken_and_it_is_said(kind):
    first, second = (Image.new("RGB", (32, 32), colour) for colour in ("red", "blue"))
    found, animated = image_files.read(encoded(first, kind, save_all=True, append_images=[second]), 32, LIMIT)
    assert animated
    assert (np.abs(found.astype(int) - (255, 0, 0)) <= 3).all()
    assert not image_files.read(encoded(first, kind), 32, LIMIT)[1]


def test_a_small_file_that_would_become_huge_is_refused_before_it_is_decoded(monkeypatch):
    small, large, huge = black_png(1000), black_png(8000), black_png(20_000)
    assert len(huge) < 100_000
    assert not image_files.decode(small, 16, 1_000_000).any()
    monkeypatch.setattr(PngImagePlugin.PngImageFile, "load", lambda image: pytest.fail("decoded"))
    assert refusal(large, 50_000_000) == "too large: 8,000 x 8,000 pixels, 50,000,000 are allowed; scale it down first"
    assert refusal(large, 8000**2 - 1).startswith("too large: 8,000 x 8,000")
    assert refusal(huge, 50_000_000).startswith("too large")
    assert refusal(huge, 10**10) == f"too large: more than {image_files.MOST_PIXELS:,} pixels; scale it down first"


@pytest.mark.parametrize("sides", [(1, 1), (7, 100), (100, 7)])
def test_an_image_too_small_to_show_anything_is_refused(sides):
    assert f"too small: {sides[0]} x {sides[1]} pixels" in refusal(encoded(Image.new("RGB", sides)))


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "GIF", "BMP", "TIFF", "WEBP", "AVIF"])
def test_a_file_that_breaks_off_is_refused_and_never_filled_up(kind):
    whole = encoded(picture(side=64), kind)
    for share in (0.5, 0.9):
        assert refusal(whole[: int(len(whole) * share)])
    assert refusal(b"")


def test_no_damage_does_more_than_refuse_or_decode():
    generator = np.random.default_rng(0)
    decoded = refused = 0
    for kind in ("PNG", "JPEG", "GIF", "TIFF", "WEBP", "AVIF"):
        whole = np.frombuffer(encoded(picture(side=24), kind), np.uint8)
        for _ in range(40):
            broken = whole.copy()
            broken[generator.integers(0, len(whole), 5)] = generator.integers(0, 256, 5)
            try:
                decoded += image_files.decode(broken.tobytes(), 16, LIMIT).shape == (16, 16, 3)
            except ValueError:
                refused += 1
    assert decoded + refused == 240
    assert min(decoded, refused) > 10


def test_what_is_no_image_is_refused_by_what_it_is(tmp_path):
    assert refusal(tmp_path / "none.png") == "there is no such file"
    assert refusal(b"image,score\n").startswith("not an image in any of the formats JPEG, PNG")
    assert refusal(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 50 50\n").startswith("not an image")
    assert refusal(tmp_path) == "there is no such file"
    os.mkfifo(tmp_path / "pipe")
    assert refusal(tmp_path / "pipe") == "there is no such file"
    assert "whole numbers of 32 bits) have no known range" in refusal(
        encoded(Image.fromarray(np.zeros((32, 32), np.int32)), "TIFF")
    )


def near_duplicates(squares):
    return image_files.near_duplicates(np.array([image_files.thumbnail(image) for image in squares]))


def test_near_duplicates_are_copies_saved_again_scaled_or_slightly_changed():
    original = picture(1, 128)
    copies = [
        encoded(original),
        encoded(original, "JPEG", quality=40),
        encoded(original.resize((60, 60)), "PNG"),
        encoded(original.point(lambda value: min(255, value + 3))),
    ]
    others = [encoded(picture(seed, 128)) for seed in range(2, 6)]
    squares = np.stack([image_files.decode(data, 32, LIMIT) for data in copies + others])
    found = {tuple(pair) for pair in near_duplicates(squares).tolist()}
    assert found == {(i, j) for i in range(4) for j in range(i + 1, 4)}


def test_plain_images_are_duplicates_only_of_their_own_shade():
    shades = np.array([0, 2, 100, 255], np.uint8)[:, None, None, None].repeat(16, 1).repeat(16, 2)
    assert near_duplicates(shades).tolist() == [[0, 1]]


@pytest.mark.parametrize("seeds", [range(2), pytest.param(range(2, 8), marks=pytest.mark.slow)], ids=["two", "six"])
def test_near_duplicates_are_found_mirrored_cropped_and_darkened_and_in_all_at_once(seeds):
    def square(image):
        return image_files.decode(encoded(image), 64, LIMIT)

    others = [square(photo(other)) for other in range(10, 40)]
    for seed in seeds:
        original = photo(seed)
        side = original.size[0]
        cut = round(0.02 * side)
        ways = {
            "mirrored": ImageOps.mirror(original),
            "cropped": original.crop((cut, cut, side, side)),
            "darkened": original.point(lambda value: round(0.8 * value)),
        }
        ways["all"] = ImageOps.mirror(ways["cropped"]).point(lambda value: round(0.8 * value))
        squares = np.stack([*map(square, (original, *ways.values())), *others])
        found = {tuple(pair) for pair in near_duplicates(squares).tolist()}
        assert found == {(i, j) for i in range(5) for j in range(i + 1, 5)}


@pytest.mark.parametrize("count", [24, pytest.param(100, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", ["photos", "smooth", "textures", "digits"])
def test_each_of_many_copies_is_found_mirrored_cropped_by_2_percent_and_darkened(kind, count):
    make = {"photos": photo, "smooth": lambda seed: light(seed, (2, 3)), "textures": texture, "digits": digit}[kind]
    originals = [make(seed) for seed in range(count)]
    images = originals + [doctored(image, number) for number, image in enumerate(originals)]
    squares = np.stack([image_files.decode(encoded(image, "JPEG", quality=85), 64, LIMIT) for image in images])
    found = {tuple(pair) for pair in near_duplicates(squares).tolist()}
    assert {(i, i + count) for i in range(count)} <= found
    # Of distinct images, at most 4 in 100,000 pairs count as duplicates: none or one's of 200 images.
    assert len({frozenset((i % count, j % count)) for i, j in found if (j - i) % count}) <= 1


def test_means_over_cells_rule_out_no_near_duplicate(monkeypatch):
    images = [digit(seed).convert("L") for seed in range(60)]
    moved = [doctored(image, 1 + number % 3).rotate(number % 5) for number, image in enumerate(images)]
    shades = [Image.new("L", (64, 64), shade) for shade in (90, 93, 200)]
    squares = np.stack([np.asarray(image.resize((32, 32)))[..., None] for image in (*images, *moved, *shades)])
    found = near_duplicates(squares)
    monkeypatch.setattr(image_files, "CELLS", np.zeros_like(image_files.CELLS))  # then they rule out none
    assert np.array_equal(near_duplicates(squares), found)
    assert 20 < len(found) < 500


def doctored(image, number):
    side = image.size[0]
    cut = round(0.02 * side)
    box = [
        (cut, cut, side, side),
        (0, 0, side - cut, side - cut),
        (cut, 0, side, side),
        (cut, cut, side - cut, side - cut),
    ]
    cropped = image.crop(box[number // 6 % 4])
    dark = [each.point(lambda value: round(0.8 * value)) for each in (image, cropped)]
    return [ImageOps.mirror(image), cropped, dark[0], ImageOps.mirror(cropped), dark[1], ImageOps.mirror(dark[1])][
        number % 6
    ]


def texture(seed):
    """Grain without any coarse light and dark, as of gravel or cloth."""
    return light([seed, 1], (int(np.random.default_rng(seed).integers(25, 120)),), 50)


def digit(seed):
    level = (load_digits().images[7 * seed] * 15.9).astype(np.uint8)
    return Image.fromarray(level).resize((150, 150), 3).convert("RGB")


def light(seed, cells, contrast=40):
    generator = np.random.default_rng(seed)
    noise = [Image.fromarray(generator.normal(size=(each, each)).astype(np.float32)) for each in cells]
    levels = sum(np.asarray(each.resize((150, 150), 3)) for each in noise)
    return Image.fromarray((128 + contrast * levels).clip(0, 255).astype(np.uint8)).convert("RGB")


def photo(seed):
    """Random light and dark patches, coarse and fine, as a photo has them."""
    generator = np.random.default_rng(seed)
    levels = sum(
        np.asarray(Image.fromarray(generator.normal(size=(cells, cells)).astype(np.float32)).resize((150, 150), 3))
        * cells**-0.5
        for cells in (3, 6, 12, 40)
    )
    return Image.fromarray((128 + 70 * levels).clip(0, 255).astype(np.uint8)).convert("RGB")
