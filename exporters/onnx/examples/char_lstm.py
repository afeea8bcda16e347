"""A text and the likeliest continuation: pip install onnxruntime; python example.py "The information manager is "."""

import json
import sys
from pathlib import Path

import numpy as np
import onnxruntime

FOLDER = Path(__file__).parent
network = onnxruntime.InferenceSession(FOLDER / "network.onnx")
settings = json.loads((FOLDER / "settings.json").read_text())
texts, end = settings["texts"], settings["end"]
numbers = {text: number for number, text in enumerate(texts) if len(text) == 1 and number > end}


def complete(prompt, characters):
    """Return what follows the prompt, up to so many characters or the document's end."""
    prompt = prompt.lower() if settings["lower_case"] else prompt
    tokens, found = [numbers.get(character, 1) for character in prompt], ""
    hidden = cell = np.zeros(settings["state"], np.float32)
    while True:
        given = {"tokens": np.array([tokens], np.int64), "hidden": hidden, "cell": cell}
        expected, hidden, cell = network.run(None, given)
        expected[0, -1, :2] = -np.inf  # padding and unknown characters
        tokens = [int(expected[0, -1].argmax())]
        if tokens == [end] or len(found + texts[tokens[0]]) > characters:
            return found
        found += texts[tokens[0]]


if __name__ == "__main__":
    text = sys.argv[1] if len(sys.argv) > 1 else "The information manager is "
    print(text + complete(text, 200))
