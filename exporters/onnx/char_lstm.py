"""A character LSTM as one program that carries its state; a mixture has two more, its counts and their look-ups.

What a context is and how often a token followed it is no tensor program: the export of a mixture has the counts of the
training text as flat arrays, models/plans/chains.py, which looks them up and counts what is read, and a reader that
ties both to the programs.

Shapes as in models/plans: B sequences, S positions, V tokens, H units, L layers; N positions, K contexts.
"""

import io
import json
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from exporters import portable
from exporters.onnx import TOLERANCE, Artifact, Part, Program, examples
from models.plans import chains
from models.plans.char_lstm import CharLSTM
from models.plans.char_mixture import CharMixture
from models.plans.characters import END
from models.plans.mixture_weights import ADAPTING, ENTROPIES, FINE_ENTROPIES, FROZEN, LEAST, LENGTHS

INPUTS = {"tokens": {0: "texts", 1: "characters"}, "hidden": {1: "texts"}, "cell": {1: "texts"}}
TEXTS, CHARACTERS = 20, 40  # completions that are compared
READ = 60  # characters of texts that are compared
SETS = {"frozen": (FROZEN, chains.STORED), "adapting": (ADAPTING, chains.CONTEXTS)}  # weights, and contexts they have


class Network(Part[CharLSTM]):
    """From tokens (B, S) and a state, two tensors (L, B, H), to log-probabilities (B, S, V) and the next state."""

    def forward(self, tokens: Tensor, hidden: Tensor, cell: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return log-probabilities and the next state."""
        logits, (hidden, cell) = CharLSTM.forward(self.model, tokens, (hidden, cell))
        return F.log_softmax(logits, -1), hidden, cell


class Mixture(nn.Module):
    """From the LSTM's log-probabilities and what each context changes to those of the mixture."""

    def __init__(self, model: CharMixture, which: int, contexts: int):
        super().__init__()
        self.contexts = contexts
        tables = [table[which] for table in model.weights()]
        self.tables = nn.ParameterList(nn.Parameter(table, requires_grad=False) for table in tables)

    def forward(self, network: Tensor, ratios: Tensor, states: Tensor) -> Tensor:
        """Return log-probabilities (N, V); `network` (N, V), `ratios` (N, K, V) and `states` (N, K) as in `chains`."""
        entropy = -(network.exp() * network.clamp(min=LEAST)).sum(1)
        first, *others = [self._length(states, levels) for levels in chains.CHAINS]
        by_length = first * (len(ENTROPIES) + 1) + _place(entropy, ENTROPIES)
        by_lengths = torch.zeros_like(first)
        for length, lengths in zip(others, LENGTHS[1:], strict=True):
            by_lengths = by_lengths * lengths + length
        features = torch.cat([network.clamp(min=LEAST)[:, None], ratios], 1)
        states = torch.cat([_place(entropy, FINE_ENTROPIES)[:, None], states], 1)
        num = self.contexts + 1
        common, lengths_of_one, lengths_of_others, by_state = self.tables
        weights = common[:num] + lengths_of_one[by_length, :num] + lengths_of_others[by_lengths, :num]
        weights = weights + by_state[torch.arange(num), states]
        return F.log_softmax((weights[:, None] @ features)[:, 0], -1)

    def _length(self, states: Tensor, levels: range) -> Tensor:
        """Return the number (N,) of the last context of a chain that was seen, 0 if none was or could have been."""
        if levels.start >= self.contexts:
            return torch.zeros_like(states[:, 0])
        numbers = torch.arange(1, len(levels) + 1) * (states[:, levels.start : levels.stop] > 0)
        return numbers.amax(1)


def _place(values: Tensor, borders: tuple[float, ...]) -> Tensor:
    """Return how many borders lie below each of the values (N,)."""
    return (values[:, None] > torch.tensor(borders)).sum(1)


def describe(model: CharLSTM) -> Artifact:
    """Return the programs, with the vocabulary beside them, and for a mixture the counts and the look-ups."""
    config = model.config

    def fresh(number: int) -> tuple[Tensor, ...]:
        generator = torch.Generator().manual_seed(number)
        batch = 1 + number % 3
        tokens = torch.randint(len(model.characters), (batch, 1 + number), generator=generator)
        shape = (config.layers, batch, config.width)
        return tokens, *(torch.randn(shape, generator=generator).tanh() for _ in range(2))

    outputs = ["log_probabilities", "next_hidden", "next_cell"]
    programs = [Program("network", Network(model), INPUTS, outputs, fresh)]
    settings = {
        "texts": list(model.characters.texts),  # of the tokens, in order; unknown characters are token 1
        "lower_case": config.lower_case,
        "state": [config.layers, 1, config.width],
        "end": END,
    }
    files = {"settings.json": json.dumps(settings).encode()}
    if not isinstance(model, CharMixture):
        return Artifact(programs, examples.script("char_lstm"), lambda example: compare_texts(model, example), files)
    axes: dict[str, dict[int, str]] = {name: {0: "positions"} for name in ("network", "ratios", "states")}
    for name, which in SETS.items():
        programs.append(Program(name, Mixture(model, *which), axes, ["log_probabilities"], _fresh(model, which[1])))
    counts = model.counted()
    arrays = io.BytesIO()
    np.savez_compressed(arrays, keys=counts.keys, offsets=counts.offsets, tokens=counts.tokens, counts=counts.counts)
    files |= {"counts.npz": arrays.getvalue(), **portable.copies("models.plans.chains")}
    return Artifact(programs, examples.script("char_mixture"), lambda example: compare(model, example), files)


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


def _fresh(model: CharMixture, contexts: int) -> Callable[[int], Sequence[Tensor]]:
    """Return a function that makes inputs as `chains` gives them, with contexts seen and unseen."""

    def fresh(number: int) -> tuple[Tensor, ...]:
        generator = torch.Generator().manual_seed(number)
        shape = (1 + number % 5, contexts)
        states = torch.randint(chains.STATES, shape, generator=generator)
        states = states * (torch.rand(shape, generator=generator) < 0.6)
        ratios = torch.randn(*shape, len(model.characters), generator=generator) * (states > 0)[..., None]
        spread = 1 + number % 4
        logits = spread * torch.randn(shape[0], len(model.characters), generator=generator)
        return logits.log_softmax(-1), ratios, states

    return fresh


def compare(model: CharMixture, example: ModuleType) -> Mapping[str, object]:
    """Read and complete texts by the example and by the model; RuntimeError unless they agree."""
    generator = torch.Generator().manual_seed(2)
    drawn = torch.randint(len(model.config.vocabulary), (READ,), generator=generator).tolist()
    tokens = np.array(model.characters.encode("".join(model.config.vocabulary[place] for place in drawn)))
    found = {}
    for name in SETS:
        reader = example.Reader(adapting=name == "adapting")
        ours = model.reader(int(tokens[0]), reader.adapting)
        reader.read(tokens[:1])
        worst = 0.0
        for token in tokens[1:]:
            worst = max(worst, float(abs(reader.ahead() - ours.ahead().numpy()).max()))
            for each in (reader, ours):
                each.read(np.array([token]))
        if worst > TOLERANCE:
            raise RuntimeError(f"the example's log-probabilities, {name}, are {worst} from the model's")
        found[f"largest_difference_{name}"] = worst
    return {**found, **compare_texts(model, example)}
