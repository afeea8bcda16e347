"""The next value of a wave by onnxruntime alone: python example.py 0.1 0.5 0.8 ..."""

import sys
from pathlib import Path

import numpy as np
import onnxruntime

SESSION = onnxruntime.InferenceSession(Path(__file__).with_name("waves.onnx"))


def predict(past):
    """Return the value after `past`, a window of numbers."""
    return float(SESSION.run(["next"], {"past": np.asarray([past], np.float32)})[0][0])


if __name__ == "__main__":
    print(predict([float(word) for word in sys.argv[1:]]))
