"""An LSTM's predictions mixed with chains of counted contexts, by numpy alone: exports take this file along.

The distributions are multiplied, each to a power (logarithmic opinion pool): log p(v) = sum_k w_k f_k(v) - log Z, where
f_0 is the LSTM's log-probability of token v and f_k the change by the k-th context of its chain (chains.py). The
weights are sums over tables, looked up by the longest contexts seen, the LSTM's entropy and the counts of each
context; mixture_weights.py fits them.

Shapes: as in lstm_network.py and chains.py; F features, the LSTM's and one for each of K contexts.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from models.plans.chains import CHAINS, CONTEXTS, Layers

if TYPE_CHECKING:
    from torch import Tensor

Values = TypeVar("Values", np.ndarray, "Tensor")

FEATURES = 1 + CONTEXTS
BASES = {1: 1, 2: 3}  # the context of the first chain whose distribution the second and the third begin with
UNIFORM, NETWORK = -1, -2  # distributions that the first and the last chain begin with
_BEGINS = {0: UNIFORM, **BASES, len(CHAINS) - 1: NETWORK}
_BEFORE = [each for number, levels in enumerate(CHAINS) for each in (_BEGINS[number], *levels[:-1])]
SMALLEST = 1e-7  # of a probability that the last chain begins with
LEAST = -16.0  # log-probability at which lower ones are clipped
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
    return np.asarray(logits - np.log(np.exp(logits).sum(1, keepdims=True)))


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


def sharpened(found: Layers, network: np.ndarray) -> np.ndarray:
    """Return (N, K, V), the change of the log-probabilities by each context of its chain.

    The first chain begins with a uniform distribution, the next two with that of a short context of the first, the last
    with the `network`'s, log-probabilities (N, V).
    """
    num, depth, num_tokens = found.own.shape
    seen = np.flatnonzero(found.states.any(0)).tolist()  # at others, nothing changes
    rows, begins = {UNIFORM: 0, NETWORK: 1}, []
    after = np.empty((2 + len(seen), num, num_tokens), np.float32)
    after[0] = 1 / num_tokens
    after[1] = np.exp(network, dtype=np.float32) + np.float32(SMALLEST)
    own, share = found.own.transpose(1, 0, 2), found.share.T[:, :, None]
    for row, level in enumerate(seen, 2):
        before = _BEFORE[level]
        while before not in rows:
            before = _BEFORE[before]
        rows[level] = row
        begins.append(rows[before])
        after[row] = after[begins[-1]] * share[level] + own[level]
    logs = np.log(after, out=after)
    changes = np.zeros((num, depth, num_tokens), np.float32)
    changes[:, seen] = (logs[2:] - logs[begins]).transpose(1, 0, 2)
    return changes


def weights(places: Sequence[Values], tables: Sequence[Values]) -> Values:
    """Return the weights (N, F) of the features, at the places of `selected` in the tables."""
    first, second, states = places
    num = states.shape[1]
    common, by_length, by_lengths, by_state = tables
    found: Values = common[:num] + by_length[first, :num] + by_lengths[second, :num] + by_state[_NUMBERS[:num], states]
    return found
