"""Reading a text with network.onnx, counts.npz and the mixing of both: what is expected next after what was read."""

import json

import chains
import numpy as np
import onnxruntime


class Reader:
    """What has been read of one document. An adapting reader counts it, beside the counts of the training text."""

    def __init__(self, folder, adapting=True):
        self.settings = json.loads((folder / "settings.json").read_text())
        self.adapting, self.contexts = adapting, chains.CONTEXTS if adapting else chains.STORED
        mixture = "adapting.onnx" if adapting else "frozen.onnx"
        self.network, self.mixture = (onnxruntime.InferenceSession(folder / name) for name in ("network.onnx", mixture))
        arrays = np.load(folder / "counts.npz")
        self.counts = [chains.Counts(*(arrays[name] for name in ("keys", "offsets", "tokens", "counts")))]
        self.classes = chains.classes_of(self.settings["texts"])
        self.text = np.zeros(0, np.int64)
        self.state = [np.zeros(self.settings["state"], np.float32)] * 2

    def read(self, tokens):
        """Read tokens (N,), and count them unless they are the first of the document."""
        if self.adapting and len(self.text):
            keys = self._keys(tokens)
            self.counts.append(chains.count(keys, tokens, chains.counted(keys, tokens, self.counts)))
        self.follow(tokens)

    def follow(self, tokens):
        """Go on with tokens (N,) that are not counted, such as generated ones."""
        hidden, cell = self.state
        given = {"tokens": np.array(tokens, np.int64)[None], "hidden": hidden, "cell": cell}
        expected, *self.state = self.network.run(None, given)
        self.expected, self.text = expected[0, -1:], np.concatenate([self.text, tokens])

    def ahead(self):
        """Return the log-probabilities (V,) of the next token."""
        found = chains.layers(self._keys([0]), np.zeros(1, np.int64), self.expected.shape[1], self.counts, None)
        given = {"network": self.expected, "ratios": chains.sharpened(found, self.expected)}
        return self.mixture.run(None, {**given, "states": found.states.astype(np.int64)})[0][0]

    def _keys(self, tokens):
        """Return the keys (N, K) of the contexts of tokens that come next."""
        whole = np.concatenate([self.text, tokens]).astype(np.int64)
        return chains.contexts(whole, self.classes)[len(self.text) :, : self.contexts]
