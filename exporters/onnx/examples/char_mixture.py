"""A text and the likeliest continuation: pip install onnxruntime; python example.py "The information manager is "."""

import sys
from pathlib import Path

import numpy as np
from reader import Reader

FOLDER = Path(__file__).parent


def complete(prompt, characters):
    """Return what follows the prompt, up to so many characters or the document's end."""
    reader = Reader(FOLDER)
    texts, end = reader.settings["texts"], reader.settings["end"]
    numbers = {text: number for number, text in enumerate(texts) if len(text) == 1 and number > end}
    prompt = prompt.lower() if reader.settings["lower_case"] else prompt
    tokens = np.array([numbers.get(character, 1) for character in prompt])
    reader.read(tokens[:1])
    reader.read(tokens[1:])
    found = ""
    while True:
        expected = reader.ahead()
        expected[:2] = -np.inf  # padding and unknown characters
        token = int(expected.argmax())
        if token == end or len(found + texts[token]) > characters:
            return found
        found += texts[token]
        reader.follow([token])


if __name__ == "__main__":
    text = sys.argv[1] if len(sys.argv) > 1 else "The information manager is "
    print(text + complete(text, 200))
