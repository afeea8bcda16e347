"""Signals from candles: pip install onnxruntime; python example.py CANDLES.csv [COIN].

The file has the columns time (ms), open, high, low, close and volume.
"""

import json
import sys
from pathlib import Path

import candle_features
import numpy as np
import onnxruntime
from candles import Candles

FOLDER = Path(__file__).parent
classifier = onnxruntime.InferenceSession(FOLDER / "classifier.onnx")
settings = json.loads((FOLDER / "settings.json").read_text())


def probabilities(columns, coin):
    """Return the probabilities (n, 3) of `settings["classes"]` after each candle that has enough candles before it."""
    candles = Candles(coin, settings["timeframe_ms"], **columns)
    table = candle_features.columns(candles, settings["features"]).astype(np.float32)
    windows = np.lib.stride_tricks.sliding_window_view(table, settings["lookback"], 0).transpose(0, 2, 1)
    windows = np.ascontiguousarray(windows[np.isfinite(windows).all((1, 2))])  # none in which a candle is missing
    coins = np.full(len(windows), settings["coins"].index(coin))
    return classifier.run(None, {"windows": windows, "coins": coins})[0]


if __name__ == "__main__":
    table = np.genfromtxt(sys.argv[1], delimiter=",", names=True)
    columns = {name: table[name] for name in ("open", "high", "low", "close", "volume")}
    found = probabilities({"time": table["time"].astype(np.int64), **columns}, (sys.argv[2:] or settings["coins"])[0])
    print(*settings["classes"], *found[-5:], sep="\n")
