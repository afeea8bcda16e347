"""An LSTM's predictions mixed with chains of counted contexts, by numpy alone: exports take this file along.

The distributions are multiplied, each to a power (logarithmic opinion pool): log p(v) = sum_k w_k f_k(v) - log Z, where
f_0 is the LSTM's log-probability of token v and f_k the change by the k-th context of its chain (chains.py). The
weights are sums over tables, looked up by the longest contexts seen, the LSTM's entropy and the counts of each
context; mixture_weights.py fits them.

Shapes: as in char_network.py and chains.py; F features, the LSTM's and one for each of K contexts.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from models.plans.chains import CHAINS, CONTEXTS, Layers, sharpened

if TYPE_CHECKING:
    from torch import Tensor

Values = TypeVar("Values", np.ndarray, "Tensor")

FEATURES = 1 + CONTEXTS
LEAST = -16.0  # log-probability; what is less likely counts as this likely
ENTROPIES = (0.15, 0.7, 1.5)  # nats, borders of the LSTM's entropy by which weights are looked up, ...
FINE_ENTROPIES = (0.05, 0.15, 0.4, 0.7, 1.1, 1.5, 2.0, 2.5)  # ... and of its own feature's state
LENGTHS = [len(levels) + 1 for levels in CHAINS]  # 0: no context of the chain was seen
TABLES = (LENGTHS[0] * (len(ENTROPIES) + 1), LENGTHS[1] * LENGTHS[2] * LENGTHS[3])
_PLACES = np.concatenate([np.arange(1, len(levels) + 1) for levels in CHAINS])  # of contexts in their chain
_STRIDES = np.array([LENGTHS[2] * LENGTHS[3], LENGTHS[3], 1])
_NUMBERS = np.arange(FEATURES)
_CHAIN_BEGINS = np.array([levels.start for levels in CHAINS])
_BORDERS, _FINE_BORDERS = np.array(ENTROPIES), np.array(FINE_ENTROPIES)


def mixture(network: np.ndarray, found: Layers, tables: Sequence[np.ndarray]) -> np.ndarray:
    """Return log-probabilities (N, V) by one set of `tables`; `network` (N, V) float32 is the LSTM's."""
    logits = np.matmul(weights(selected(network, found.states), tables)[:, None], features(network, found))[:, 0]
    logits -= logits.max(1, keepdims=True)
    mixed: np.ndarray = logits - np.log(np.exp(logits).sum(1, keepdims=True))
    return mixed


def selected(network: np.ndarray, states: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the rows (N,) of both tables of lengths, and the states (N, F) of all features."""
    entropy = -(np.exp(network) * np.maximum(network, LEAST)).sum(1)
    found = np.zeros((len(states), CONTEXTS), np.int64)  # 0 where the chain was not looked up
    np.multiply(states > 0, _PLACES[: states.shape[1]], out=found[:, : states.shape[1]])
    lengths = np.maximum.reduceat(found, _CHAIN_BEGINS, 1)
    first = lengths[:, 0] * (len(ENTROPIES) + 1) + np.searchsorted(_BORDERS, entropy)
    own = np.searchsorted(_FINE_BORDERS, entropy)[:, None]
    return first, lengths[:, 1:] @ _STRIDES, np.concatenate([own, states], 1)


def features(network: np.ndarray, found: Layers) -> np.ndarray:
    """Return the features (N, F, V), of the contexts that were looked up."""
    return np.concatenate([np.maximum(network, LEAST)[:, None], sharpened(found, network)], 1)


def weights(places: Sequence[Values], tables: Sequence[Values]) -> Values:
    """Return the weights (N, F) of the features, at the places of `selected` in the tables."""
    first, second, states = places
    num = states.shape[1]
    common, by_length, by_lengths, by_state = tables
    found: Values = common[:num] + by_length[first, :num] + by_lengths[second, :num] + by_state[_NUMBERS[:num], states]
    return found
