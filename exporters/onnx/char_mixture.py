"""A character mixture: programs of its LSTM and of the mixing, counts as arrays, and the look-ups as Python.

What a context is and how often a token followed it is no tensor program: the export has the counts of the training
text as flat arrays, models/plans/chains.py, which looks them up and counts what is read, and a reader that ties both to
the programs.

Shapes as in models/plans/char_mixture.py: N positions, K contexts, V tokens.
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
from exporters.onnx import Artifact, Program, examples
from exporters.onnx.char_lstm import compare_texts, network, settings
from models.plans import chains
from models.plans.char_mixture import CharMixture
from models.plans.mixture_weights import ADAPTING, ENTROPIES, FINE_ENTROPIES, FROZEN, LEAST, LENGTHS

TOLERANCE = 1e-4  # of log-probabilities
READ = 60  # characters of texts that are compared
SETS = {"frozen": (FROZEN, chains.STORED), "adapting": (ADAPTING, chains.CONTEXTS)}  # weights, and contexts they have


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


def describe(model: CharMixture) -> Artifact:
    """Return the programs, with the vocabulary, the counts and the look-ups beside them."""
    axes: dict[str, dict[int, str]] = {name: {0: "positions"} for name in ("network", "ratios", "states")}
    programs = [
        Program(name, Mixture(model, *which), axes, ["log_probabilities"], _fresh(model, which[1]))
        for name, which in SETS.items()
    ]
    counts = model.counted()
    arrays = io.BytesIO()
    np.savez_compressed(arrays, keys=counts.keys, offsets=counts.offsets, tokens=counts.tokens, counts=counts.counts)
    return Artifact(
        programs=[network(model), *programs],
        example=examples.script("char_mixture"),
        check=lambda example: compare(model, example),
        files={
            "settings.json": json.dumps(settings(model)).encode(),
            "counts.npz": arrays.getvalue(),
            **portable.copies("models.plans.chains"),
        },
    )


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
