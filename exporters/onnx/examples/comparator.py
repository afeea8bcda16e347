"""Which of two images ranks higher: pip install onnxruntime pillow; python example.py FIRST.jpg SECOND.jpg."""

import json
import sys
from pathlib import Path

import numpy as np
import onnxruntime
from PIL import Image, ImageOps

FOLDER = Path(__file__).parent
encoder, comparison = (onnxruntime.InferenceSession(FOLDER / f"{name}.onnx") for name in ("encoder", "comparison"))
settings = json.loads((FOLDER / "settings.json").read_text())
side = (settings["size"], settings["size"])


def pixels(image):
    """Return the middle square of an opaque image, scaled, as (C, S, S) uint8."""
    square = ImageOps.fit(ImageOps.exif_transpose(image).convert("RGB"), side, Image.Resampling.LANCZOS)
    found = np.asarray(square).transpose(2, 0, 1)
    grey = (found * np.array([0.299, 0.587, 0.114], np.float32)[:, None, None]).sum(0, keepdims=True)
    return found if settings["channels"] == 3 else grey.round().astype(np.uint8)


def compare(first, second):
    """Return the probabilities (3,) of `settings["answers"]`, the mean over both orders of the images."""
    encoded = encoder.run(None, {"images": np.stack([pixels(first), pixels(second)])})[0]
    pairs = {"first": np.array([0, 1]), "second": np.array([1, 0])}
    logits = comparison.run(None, {"encoded": encoded, **pairs})[0]
    shares = np.exp(logits - logits.max(1, keepdims=True))
    given, swapped = shares / shares.sum(1, keepdims=True)
    return (given + swapped[[1, 0, 2]]) / 2


if __name__ == "__main__":
    found = compare(*(Image.open(path) for path in sys.argv[1:3]))
    print(*(f"{answer}: {share:.1%}" for answer, share in zip(settings["answers"], found, strict=True)), sep="\n")
