"""The fit of the weights that mix an LSTM with chains of counted contexts (mixing.py).

Their fit is a convex problem. There are two sets, for a frozen model and for one that counts what it reads.

Shapes: as in mixing.py.
"""

from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from models.plans import chains, mixing
from models.plans.mixing import FEATURES, TABLES

FROZEN, ADAPTING = range(2)  # sets of weights
PRIOR, PRIOR_PRECISION, PRECISION = 0.3, 1.0, 40.0  # of normal priors: on common weights; on the tables, around 0
ITERATIONS = 40  # of L-BFGS


class Examples:
    """Places in uncounted text, to fit weights to.

    `network` (N, V) float32 are log-probabilities of an LSTM that has not learnt from the text.
    """

    def __init__(self, network: np.ndarray, found: chains.Layers, targets: np.ndarray):
        self.features = torch.from_numpy(mixing.features(network, found))  # (N, F, V)
        self.selected = [torch.from_numpy(each) for each in mixing.selected(network, found.states)]
        self.targets = torch.from_numpy(targets)  # (N,)


def mixture(network: Tensor, found: chains.Layers, tables: Sequence[np.ndarray]) -> Tensor:
    """Return `mixing.mixture` as a tensor (N, V), from the LSTM's log-probabilities (N, V) on the CPU."""
    return torch.from_numpy(mixing.mixture(network.detach().numpy(), found, tables))


def fitted(examples: Sequence[Examples]) -> tuple[list[Tensor], float]:
    """Return the tables of weights that predict the examples best, given their priors, and the nats per token."""
    shapes = ((FEATURES,), (TABLES[0], FEATURES), (TABLES[1], FEATURES), (FEATURES, chains.STATES))
    tables = [nn.Parameter(torch.zeros(shape)) for shape in shapes]
    tables[0].data.fill_(PRIOR)
    optimizer = torch.optim.LBFGS(tables, max_iter=ITERATIONS, history_size=20, line_search_fn="strong_wolfe")

    def nats_of(some: Examples) -> Tensor:
        logits = (mixing.weights(some.selected, tables)[:, None] @ some.features)[:, 0]
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
