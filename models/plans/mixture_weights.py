"""Weights that mix an LSTM with chains of counted contexts, and their fit.

The distributions are multiplied, each to a power (logarithmic opinion pool): log p(v) = sum_k w_k f_k(v) - log Z, where
f_0 is the LSTM's log-probability of token v and f_k the change by the k-th context of its chain (chains.py). The
weights are sums over tables, looked up by the longest contexts seen, the LSTM's entropy and the counts of each
context; their fit is a convex problem. There are two sets, for a frozen model and for one that counts what it reads.

Shapes: as in char_network.py and chains.py; F features, the LSTM's and one for each of K contexts.
"""

from collections.abc import Sequence
from typing import TypeVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from models.plans import chains

Values = TypeVar("Values", np.ndarray, Tensor)

FEATURES = 1 + chains.CONTEXTS
FROZEN, ADAPTING = range(2)  # sets of weights
LEAST = -16.0  # log-probability; what is less likely counts as this likely
ENTROPIES = (0.15, 0.7, 1.5)  # nats, borders of the LSTM's entropy by which weights are looked up, ...
FINE_ENTROPIES = (0.05, 0.15, 0.4, 0.7, 1.1, 1.5, 2.0, 2.5)  # ... and of its own feature's state
LENGTHS = [len(levels) + 1 for levels in chains.CHAINS]  # 0: no context of the chain was seen
TABLES = (LENGTHS[0] * (len(ENTROPIES) + 1), LENGTHS[1] * LENGTHS[2] * LENGTHS[3])
_PLACES = np.concatenate([np.arange(1, len(levels) + 1) for levels in chains.CHAINS])  # of contexts in their chain
_STRIDES = np.array([LENGTHS[2] * LENGTHS[3], LENGTHS[3], 1])
_NUMBERS = np.arange(FEATURES)
_CHAIN_BEGINS = np.array([levels.start for levels in chains.CHAINS])
_BORDERS, _FINE_BORDERS = np.array(ENTROPIES), np.array(FINE_ENTROPIES)
PRIOR, PRIOR_PRECISION, PRECISION = 0.3, 1.0, 40.0  # of normal priors: on common weights; on the tables, around 0
ITERATIONS = 40  # of L-BFGS


class Examples:
    """Places in uncounted text, to fit weights to.

    `network` (N, V) float32 are log-probabilities of an LSTM that has not learnt from the text.
    """

    def __init__(self, network: np.ndarray, found: chains.Layers, targets: np.ndarray):
        self.features = torch.from_numpy(_features(network, found))  # (N, F, V)
        self.selected = [torch.from_numpy(each) for each in _selected(network, found.states)]
        self.targets = torch.from_numpy(targets)  # (N,)


def mixture(network: Tensor, found: chains.Layers, tables: Sequence[np.ndarray]) -> Tensor:
    """Return log-probabilities (N, V) by one set of `tables`; `network` (N, V) is the LSTM's, on the CPU."""
    own = network.detach().numpy()
    features, weights = _features(own, found), _weights(_selected(own, found.states), tables)
    logits = np.matmul(weights[:, None], features)[:, 0]
    logits -= logits.max(1, keepdims=True)
    return torch.from_numpy(logits - np.log(np.exp(logits).sum(1, keepdims=True)))


def _selected(network: np.ndarray, states: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the rows (N,) of both tables of lengths, and the states (N, F) of all features."""
    entropy = -(np.exp(network) * np.maximum(network, LEAST)).sum(1)
    found = np.zeros((len(states), chains.CONTEXTS), np.int64)  # 0 where the chain was not looked up
    np.multiply(states > 0, _PLACES[: states.shape[1]], out=found[:, : states.shape[1]])
    lengths = np.maximum.reduceat(found, _CHAIN_BEGINS, 1)
    first = lengths[:, 0] * (len(ENTROPIES) + 1) + np.searchsorted(_BORDERS, entropy)
    own = np.searchsorted(_FINE_BORDERS, entropy)[:, None]
    return first, lengths[:, 1:] @ _STRIDES, np.concatenate([own, states], 1)


def _features(network: np.ndarray, found: chains.Layers) -> np.ndarray:
    """Return the features (N, F, V), of the contexts that were looked up."""
    return np.concatenate([np.maximum(network, LEAST)[:, None], chains.sharpened(found, network)], 1)


def _weights(selected: Sequence[Values], tables: Sequence[Values]) -> Values:
    """Return the weights (N, F) of the features."""
    first, second, states = selected
    num = states.shape[1]
    common, by_length, by_lengths, by_state = tables
    found: Values = common[:num] + by_length[first, :num] + by_lengths[second, :num] + by_state[_NUMBERS[:num], states]
    return found


def fitted(examples: Sequence[Examples]) -> tuple[list[Tensor], float]:
    """Return the tables of weights that predict the examples best, given their priors, and the nats per token."""
    shapes = ((FEATURES,), (TABLES[0], FEATURES), (TABLES[1], FEATURES), (FEATURES, chains.STATES))
    tables = [nn.Parameter(torch.zeros(shape)) for shape in shapes]
    tables[0].data.fill_(PRIOR)
    optimizer = torch.optim.LBFGS(tables, max_iter=ITERATIONS, history_size=20, line_search_fn="strong_wolfe")

    def nats_of(some: Examples) -> Tensor:
        logits = (_weights(some.selected, tables)[:, None] @ some.features)[:, 0]
        return F.cross_entropy(logits, some.targets, reduction="sum")

    def loss() -> Tensor:
        optimizer.zero_grad()
        far = PRECISION * sum(table.square().sum() for table in tables[1:])
        total = far + PRIOR_PRECISION * (tables[0] - PRIOR).square().sum()
        total.backward()
        for some in examples:
            nats = nats_of(some)
            nats.backward()
            total = total.detach() + nats.detach()
        return total

    with torch.enable_grad():
        optimizer.step(loss)
    with torch.no_grad():
        nats = sum(float(nats_of(some)) for some in examples) / sum(len(some.targets) for some in examples)
        return [table.detach() for table in tables], nats
