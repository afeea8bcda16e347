"""Make two folders of images with scores, to judge comparators by: texture is the score in one, layout in the other.

    python tests/peers/made_images.py /tmp/made      # texture/ and layout/, 600 images of 64 pixels each

texture  coloured noise of power 1 / frequency^a under discs that say nothing; the score, from 0 to 10, grows with a
layout   two discs over noise that says nothing; the score is their distance, from 0 to 10, wherever they are
"""

import sys
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

COUNT, SIDE = 600, 64


def noise(exponent: float, generator: np.random.Generator) -> np.ndarray:
    """Return noise (SIDE, SIDE, 3), of deviation 1, whose power falls with frequency to the power `exponent`."""
    frequency = np.hypot(np.fft.fftfreq(SIDE)[:, None], np.fft.fftfreq(SIDE)) * SIDE
    spectrum = np.fft.fft2(generator.standard_normal((3, SIDE, SIDE))) / np.maximum(frequency, 1) ** (exponent / 2)
    spectrum[:, 0, 0] = 0
    made = np.fft.ifft2(spectrum).real
    return np.moveaxis(made / made.std((1, 2), keepdims=True), 0, -1)


def discs(places: np.ndarray, radii: np.ndarray, colours: np.ndarray, below: np.ndarray) -> Image.Image:
    """Return an image of discs at `places` (n, 2) of `radii` (n,) and `colours` (n, 3) over an image."""
    image = Image.fromarray(below.clip(0, 255).astype(np.uint8))
    draw = ImageDraw.Draw(image)
    for (x, y), radius, colour in zip(places, radii, colours, strict=True):
        draw.ellipse([x - radius, y - radius, x + radius, y + radius], fill=tuple(colour.tolist()))
    return image


def texture(generator: np.random.Generator) -> tuple[float, Image.Image]:
    """Return a score and an image of noise under three discs."""
    score = generator.uniform(0, 10)
    below = generator.uniform(80, 176, 3) + generator.uniform(20, 50) * noise(0.6 + 0.14 * score, generator)
    places, radii = generator.uniform(8, SIDE - 8, (3, 2)), generator.uniform(4, 10, 3)
    return score, discs(places, radii, generator.integers(40, 216, (3, 3)), below)


def layout(generator: np.random.Generator) -> tuple[float, Image.Image]:
    """Return a score and an image of two discs over noise."""
    radii, apart = generator.uniform(4, 7, 2), 0.0
    while not 10 <= apart <= 50:
        places = generator.uniform(8, SIDE - 8, (2, 2))
        apart = float(np.hypot(*(places[0] - places[1])))
    below = generator.uniform(90, 166, 3) + 20 * noise(generator.uniform(0.6, 2), generator)
    colours = np.array([[230, 60, 50], [50, 80, 230]]) + generator.integers(-25, 26, (2, 3))
    return (apart - 10) / 4, discs(places, radii, colours, below)


def main() -> None:
    """Write both folders below the folder given."""
    for number, make in enumerate((texture, layout)):
        folder = Path(sys.argv[1]) / make.__name__
        folder.mkdir(parents=True, exist_ok=True)
        rows, generator = ["image,score"], np.random.default_rng(number)
        for i in range(COUNT):
            score, image = make(generator)
            image.save(folder / f"{i:03d}.png")
            rows.append(f"{i:03d}.png,{score:.2f}")
        (folder / "scores.csv").write_text("\n".join(rows) + "\n")


if __name__ == "__main__":
    main()
