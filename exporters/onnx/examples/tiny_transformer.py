"""A story by step.onnx, the likeliest token each time: pip install onnxruntime tokenizers; python example.py PROMPT."""

import json
import sys
from pathlib import Path

import numpy as np
import onnxruntime

FOLDER = Path(__file__).parent
step = onnxruntime.InferenceSession(FOLDER / "step.onnx")
settings = json.loads((FOLDER / "settings.json").read_text())


def tell(prompt, max_tokens):
    """Return the tokens that follow the tokens `prompt`, up to the story's end, token 0."""
    none = np.zeros((settings["layers"], 1, 0, settings["width"]), np.float32)
    state = {"keys": none, "values": none}
    if settings["recent"]:
        state["recent"] = np.zeros((1, settings["recent"]), np.int64)
    new, told = [0, *prompt], []
    for _ in range(max_tokens):
        logits, *kept = step.run(None, {"tokens": np.array([new], np.int64), **state})
        state = dict(zip(state, kept, strict=True))
        for name in ("keys", "values"):  # what is further back than the context cannot be seen again
            state[name] = state[name][:, :, max(0, state[name].shape[2] - settings["context"] + 1) :]
        new = [int(logits[0, -1].argmax())]
        if new == [0]:
            break
        told += new
    return told


if __name__ == "__main__":
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(FOLDER / "tokenizer.json"))
    tokens = tokenizer.encode(" ".join(sys.argv[1:]) or "Once upon a time").ids
    print(tokenizer.decode(tokens + tell(tokens, 256)))
