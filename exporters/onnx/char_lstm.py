"""A character LSTM as one program that carries its state.

Shapes as in models/plans/char_lstm.py: B sequences, S positions, V tokens, H units, L layers.
"""

import json
from collections.abc import Mapping
from types import ModuleType

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from exporters.onnx import Artifact, Program, examples
from models.plans.char_lstm import CharLSTM
from models.plans.characters import END

INPUTS: dict[str, dict[int, str]] = {
    "tokens": {0: "texts", 1: "characters"},
    "hidden": {1: "texts"},
    "cell": {1: "texts"},
}
TEXTS, CHARACTERS = 20, 40  # completions that are compared


class Network(nn.Module):
    """From tokens (B, S) and a state, two tensors (L, B, H), to log-probabilities (B, S, V) and the next state."""

    def __init__(self, model: CharLSTM):
        super().__init__()
        self.model = model

    def forward(self, tokens: Tensor, hidden: Tensor, cell: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return log-probabilities and the next state."""
        logits, (hidden, cell) = CharLSTM.forward(self.model, tokens, (hidden, cell))
        return F.log_softmax(logits, -1), hidden, cell


def describe(model: CharLSTM) -> Artifact:
    """Return the program, with the vocabulary beside it."""
    return Artifact(
        programs=[network(model)],
        example=examples.script("char_lstm"),
        check=lambda example: compare_texts(model, example),
        files={"settings.json": json.dumps(settings(model)).encode()},
    )


def network(model: CharLSTM) -> Program:
    """Return the program of the LSTM."""

    def fresh(number: int) -> tuple[Tensor, ...]:
        generator = torch.Generator().manual_seed(number)
        batch = 1 + number % 3
        tokens = torch.randint(len(model.characters), (batch, 1 + number), generator=generator)
        shape = (model.config.layers, batch, model.config.width)
        return tokens, *(torch.randn(shape, generator=generator).tanh() for _ in range(2))

    return Program("network", Network(model), INPUTS, ["log_probabilities", "next_hidden", "next_cell"], fresh)


def settings(model: CharLSTM) -> dict[str, object]:
    """Return what the example needs to know."""
    config = model.config
    return {
        "texts": list(model.characters.texts),  # of the tokens, in order; unknown characters are token 1
        "lower_case": config.lower_case,
        "state": [config.layers, 1, config.width],
        "end": END,
    }


def compare_texts(model: CharLSTM, example: ModuleType) -> Mapping[str, object]:
    """Complete texts by the example and by the model; RuntimeError unless all characters are equal."""
    generator = torch.Generator().manual_seed(1)
    count = 0
    for number in range(TEXTS):
        places = torch.randint(len(model.config.vocabulary), (5 + 7 * number,), generator=generator)
        prompt = "".join(model.config.vocabulary[place] for place in places.tolist())
        expected = model.complete(prompt, CHARACTERS, temperature=0)
        found = example.complete(prompt, CHARACTERS)
        if found != expected:
            raise RuntimeError(f"after {prompt!r} the example goes on with {found!r}, the model with {expected!r}")
        count += len(expected)
    return {"texts": TEXTS, "characters": count, "characters_equal": count}
