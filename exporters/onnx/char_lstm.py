"""A character LSTM as one program that carries its state; a mixture comes with its counts, look-ups and weights.

Contexts and their counts are no tensor program: the export of a mixture has the counts of the training text and the
weights as flat arrays, models/plans/chains.py, which looks them up and counts the text read, mixing.py beside it, which
mixes, and a reader that ties them to the program.

Shapes as in models/plans: B sequences, S positions, V tokens, H units, L layers; N positions, K contexts.
"""

import json

import torch
import torch.nn.functional as F
from torch import Tensor

from exporters import portable
from exporters.onnx import Artifact, Part, Program, examples
from models.plans.char_lstm import CharLSTM
from models.plans.char_mixture import CharMixture
from models.plans.characters import END

INPUTS = {"tokens": {0: "texts", 1: "characters"}, "hidden": {1: "texts"}, "cell": {1: "texts"}}


class Network(Part[CharLSTM]):
    """From tokens (B, S) and a state, two tensors (L, B, H), to log-probabilities (B, S, V) and the next state."""

    def forward(self, tokens: Tensor, hidden: Tensor, cell: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return log-probabilities and the next state."""
        logits, (hidden, cell) = CharLSTM.forward(self.model, tokens, (hidden, cell))
        return F.log_softmax(logits, -1), hidden, cell


def describe(model: CharLSTM) -> Artifact:
    """Return the programs with the vocabulary, and for a mixture with the counts and the look-ups."""
    config = model.config

    def fresh(number: int) -> tuple[Tensor, ...]:
        generator = torch.Generator().manual_seed(number)
        batch = 1 + number % 3
        tokens = torch.randint(len(model.characters), (batch, 1 + number), generator=generator)
        shape = (config.layers, batch, config.width)
        return tokens, *(torch.randn(shape, generator=generator).tanh() for _ in range(2))

    programs = [Program("network", Network(model), INPUTS, ["log_probabilities", "next_hidden", "next_cell"], fresh)]
    settings = {
        "texts": list(model.characters.texts),  # of the tokens, in order; unknown characters are token 1
        "lower_case": config.lower_case,
        "state": [config.layers, 1, config.width],
        "end": END,
    }
    files = {"settings.json": json.dumps(settings).encode()}
    if not isinstance(model, CharMixture):
        return Artifact(programs, examples.script("char_lstm"), files)
    tables = {f"weights_{number}": table.numpy() for number, table in enumerate(model.weights())}
    counts = portable.packed({**vars(model.counted()), **tables})
    files |= {"counts.npz": counts, **portable.copies("models.plans.mixing")}
    return Artifact(programs, examples.script("char_mixture"), files)
