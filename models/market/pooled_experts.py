"""Three experts on a window of market features, pooled into logits of SHORT, NO_TRADE and LONG.

linear    a location-scale family: the return over the horizon is logistic around a location that is linear in the
          window's returns and in the last row, with a scale that is log-linear in how much prices have moved
network   the same family; causal dilated convolutions (van den Oord et al. 2016) give its location and scale
trees     boosted regression trees on the last row and the newest returns (Friedman 2001), kept as tables

The pool is log-linear: softmax of the weighted sum of their log probabilities (Genest and Zidek 1986). Only the network
learns by gradients. The linear expert and the trees depend on the data alone, the weights of the pool on validation
rows; all three are buffers that the training code fills. The network computes a row of logits for every candle at once,
so a label costs a fraction of a pass over its window.

Shapes: B sequences, L candles of a window (lookback), S consecutive rows that windows end at, T = L - 1 + S candles of
a sequence, F features, C coins, R rounds of boosting, M nodes of a tree.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from models.market.inputs import CLASSES
from models.market.signal_model import SignalConfig, SignalModel

EXPERTS = ("linear", "network", "trees")
NEEDED = ("log_return_1", "volatility_50")  # features
DEPTH = 6  # of a tree
TREE_LAGS = 24  # newest returns that the trees see
LARGEST = 8.0  # standard deviations of a feature, at which the network's inputs are clipped
LARGEST_RETURN = 5.0  # in units of the volatility
LEAST_VOLATILITY = 0.05  # of its mean; markets stand still at times
LEAST_SIDE, LEAST_REST = 1e-4, 1e-3  # probabilities of SHORT and LONG, of NO_TRADE


@dataclass(frozen=True)
class PooledExpertsConfig(SignalConfig):
    """Size of the experts and description of their input."""

    width: int = 24  # channels of the network
    dropout: float = 0.2  # of the network
    rounds: int = 100  # of boosting, a tree per class in each; unused ones give 0
    nodes: int = 29  # of a tree, leaves included

    def __post_init__(self) -> None:
        super().__post_init__()
        if min(self.width, self.rounds, self.nodes) < 1 or not 0 <= self.dropout < 1:
            sizes = f"width={self.width}, rounds={self.rounds} and nodes={self.nodes} must be 1 or more"
            raise ValueError(f"{sizes}, and dropout={self.dropout} 0 or more and below 1")
        if not set(NEEDED) <= set(self.features):
            raise ValueError(f"the features must hold {' and '.join(NEEDED)} (given: {', '.join(self.features)})")


class PooledExperts(SignalModel):
    """Classifier of the next move: logits of SHORT, NO_TRADE and LONG after each candle."""

    family = "pooled_experts"
    stretch = 192
    config: PooledExpertsConfig

    def __init__(self, config: PooledExpertsConfig):
        super().__init__()
        self.config = config
        inputs, lookback = len(config.features), config.lookback
        places = [config.features.index(name) for name in NEEDED]
        self.return_place, self.volatility_place = places
        returns = {f"{coin}:{NEEDED[0]}" for coin in config.context}
        self.context_places = [place for place, name in enumerate(config.features) if name in returns]
        self.network = Network(inputs + 3, config.width, config.dropout, lookback)
        self.trees = Trees(inputs + min(TREE_LAGS, lookback), config.rounds, config.nodes)
        scalers = [config.scalers.get(coin, {"mean": [0.0] * inputs, "std": [1.0] * inputs}) for coin in config.coins]
        # The return's mean in units of its deviation, and the volatility's deviation in units of its mean.
        drift = [each["mean"][places[0]] / each["std"][places[0]] for each in scalers]
        spread = [each["std"][places[1]] / (each["mean"][places[1]] or 1.0) for each in scalers]
        self.drift, self.spread = nn.Buffer(torch.tensor(drift)), nn.Buffer(torch.tensor(spread))
        # The last entry is the bias, as in `scale`.
        self.location = nn.Buffer(torch.zeros((2 + len(self.context_places)) * lookback + inputs + 1))
        self.scale = nn.Buffer(torch.zeros(inputs + 4))
        self.level = nn.Buffer(torch.zeros(()))  # of the log scale
        self.thresholds = nn.Buffer(torch.ones(2))  # which a move must exceed, LONG and SHORT
        self.slopes = nn.Buffer(torch.zeros(2))  # of the thresholds in the volatility
        self.weights = nn.Buffer(torch.full((len(EXPERTS),), 1 / len(EXPERTS)))

    def check(self) -> None:
        """Raise ValueError for trees that point to missing nodes or features."""
        trees, nodes = self.trees, self.config.nodes
        for places, count in ((trees.left, nodes), (trees.right, nodes), (trees.feature, trees.inputs)):
            if not ((places >= 0) & (places < count)).all():
                raise ValueError("the model's trees are damaged")

    def forward(
        self, windows: Tensor, coins: Tensor | None = None, fixed: Tensor | None = None, alone: bool = False
    ) -> Tensor:
        """Return logits (B, S, 3) of scaled features (B, T, F); a model of several coins also needs their numbers (B,).

        `fixed` is the result of `fixed` for these windows, if known; with `alone` the logits are the network's, the
        part that learns by gradients.
        """
        if alone:
            return self._network(windows, coins)
        return (self.experts(windows, coins, fixed) * self.weights[:, None]).sum(-2)

    def experts(self, windows: Tensor, coins: Tensor | None = None, fixed: Tensor | None = None) -> Tensor:
        """Return the log probabilities (B, S, 3, 3) of each of EXPERTS."""
        fixed = self.fixed(windows, coins) if fixed is None else fixed
        return torch.stack([fixed[..., 0, :], self._network(windows, coins), fixed[..., 1, :]], -2)

    def fixed(self, windows: Tensor, coins: Tensor | None = None) -> Tensor:
        """Return the log probabilities (B, S, 2, 3) of the linear expert and the trees, which no gradient changes."""
        trees = self.trees(self.tree_inputs(windows, coins)).log_softmax(-1)
        return torch.stack([self.linear(windows, coins), trees], -2)

    def linear(self, windows: Tensor, coins: Tensor | None = None) -> Tensor:
        """Return the log probabilities (B, S, 3) of the linear expert."""
        location, scale, volatility = self.linear_inputs(windows, coins)
        mean = location @ self.location[:-1] + self.location[-1]
        log_scale = bounded_scale(scale @ self.scale[:-1] + self.scale[-1]) + self.level
        return class_log_probabilities(mean, log_scale, self.thresholds + self.slopes * volatility[..., None])

    def linear_inputs(self, windows: Tensor, coins: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """Return the inputs of the location (B, S, P), the log scale (B, S, F + 3) and the thresholds (B, S).

        P = (K + 2) L + F with the K coins of the context, whose returns come first, then the window's own.
        """
        returns, volatility = self._moves(windows, coins)
        lookback = self.config.lookback
        past = returns.unfold(1, lookback, 1)
        last, now = windows[:, lookback - 1 :], volatility[:, lookback - 1 :, None]
        scaled = (returns / volatility).unfold(1, lookback, 1) * now
        size = past.abs()
        moved = [size.mean(-1).add(1e-3).log(), size[..., -5:].mean(-1).add(1e-2).log()]
        scale = torch.cat([now.log(), *(each[..., None] for each in moved), last], -1)
        theirs = [windows[..., place].unfold(1, lookback, 1) for place in self.context_places]
        return torch.cat([*theirs, past, scaled, last * now], -1), scale, now[..., 0]

    def tree_inputs(self, windows: Tensor, coins: Tensor | None = None) -> Tensor:
        """Return the trees' inputs (B, S, F + TREE_LAGS): the last row, and the newest returns over their volatility.

        By elementwise operations alone, so that the rest of the batch cannot change the side of a split.
        """
        returns, volatility = self._moves(windows, coins)
        lookback, lags = self.config.lookback, min(TREE_LAGS, self.config.lookback)
        scaled = (returns / volatility)[:, lookback - lags :].unfold(1, lags, 1)
        return torch.cat([windows[:, lookback - 1 :], scaled], -1)

    def _moves(self, windows: Tensor, coins: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return the returns in units of their deviation, and the volatility in units of its mean; both (B, T)."""
        coins = windows.new_zeros(len(windows), dtype=torch.long) if coins is None else coins
        returns = windows[..., self.return_place] + self.drift[coins, None]
        volatility = 1 + windows[..., self.volatility_place] * self.spread[coins, None]
        return returns, volatility.clamp(min=LEAST_VOLATILITY)

    def _network(self, windows: Tensor, coins: Tensor | None) -> Tensor:
        """Return the network's log probabilities (B, S, 3), from a location and a scale of its own."""
        returns, volatility = self._moves(windows, coins)
        scaled = (returns / volatility).clamp(-LARGEST_RETURN, LARGEST_RETURN)
        added = torch.stack([scaled, scaled.abs() - 0.75, volatility.log()], -1)
        found = self.network(torch.cat([windows, added], -1).clamp(-LARGEST, LARGEST))
        now = volatility[:, self.config.lookback - 1 :]
        log_scale = self.level + found[..., 1].clamp(-2, 2)
        return class_log_probabilities(found[..., 0] * now, log_scale, self.thresholds + self.slopes * now[..., None])


def bounded_scale(log_scale: Tensor) -> Tensor:
    """Clamp what the inputs add to the log scale to a factor of 20 either way."""
    return log_scale.clamp(-3, 3)


def class_log_probabilities(mean: Tensor, log_scale: Tensor, thresholds: Tensor) -> Tensor:
    """Return log probabilities (..., 3) of a logistic variable below -thresholds[1], between, above thresholds[0]."""
    precision = torch.exp(-log_scale)
    long = torch.sigmoid((mean - thresholds[..., 0]) * precision)
    short = torch.sigmoid((-mean - thresholds[..., 1]) * precision)
    rest = (1 - long - short).clamp(min=LEAST_REST)
    sides = torch.stack([short.clamp(min=LEAST_SIDE), rest, long.clamp(min=LEAST_SIDE)], -1)
    return (sides / sides.sum(-1, keepdim=True)).log()


def dilations(lookback: int) -> list[int]:
    """Return the distance between the three taps of each layer, doubling, so that they see `lookback` candles."""
    left = (lookback - 1) // 2
    found: list[int] = []
    while left:
        found.append(min(2 ** len(found), left))
        left -= found[-1]
    return found


class Network(nn.Module):
    """Gated causal convolutions with residual connections; untrained, it returns 0."""

    def __init__(self, inputs: int, width: int, dropout: float, lookback: int):
        super().__init__()
        self.dilations, self.lookback = dilations(lookback), lookback
        self.enter = nn.Conv1d(inputs, width, 1)
        self.gated = nn.ModuleList(nn.Conv1d(width, 2 * width, 3, dilation=each) for each in self.dilations)
        self.mixed = nn.ModuleList(nn.Conv1d(width, width, 1) for _ in self.dilations)
        self.dropout = nn.Dropout(dropout)
        self.head, self.out = nn.Conv1d(width, width, 1), nn.Conv1d(width, 2, 1)
        for parameter in self.out.parameters():
            nn.init.zeros_(parameter)

    def forward(self, x: Tensor) -> Tensor:
        """Return location and log scale (B, T - L + 1, 2) of x (B, T, inputs)."""
        rows = x.shape[1] - self.lookback + 1
        x = self.enter(x.transpose(1, 2))
        for gated, mixed, dilation in zip(self.gated, self.mixed, self.dilations, strict=True):
            signal, gate = gated(x).chunk(2, 1)
            x = x[:, :, 2 * dilation :] + mixed(self.dropout(torch.tanh(signal) * torch.sigmoid(gate)))
        x = self.head(x[:, :, x.shape[2] - rows :])  # an even lookback leaves one candle more than is seen
        # The bias apart: from 16 sequences on, oneDNN adds the slopes of a convolution's bias in one running sum.
        assert self.out.bias is not None
        found: Tensor = F.conv1d(self.dropout(F.gelu(x)), self.out.weight) + self.out.bias[:, None]
        return found.transpose(1, 2)


class Trees(nn.Module):
    """R rounds of a tree per class. A node sends inputs up to its threshold left; a leaf is its own child."""

    def __init__(self, inputs: int, rounds: int, nodes: int):
        super().__init__()
        count, self.inputs = rounds * len(CLASSES), inputs
        own = torch.arange(nodes, dtype=torch.int32).expand(count, nodes)
        self.feature = nn.Buffer(torch.zeros(count, nodes, dtype=torch.int32))
        self.threshold = nn.Buffer(torch.zeros(count, nodes))
        self.left, self.right = nn.Buffer(own.clone()), nn.Buffer(own.clone())
        self.value = nn.Buffer(torch.zeros(count, nodes))  # of a leaf
        self.start = nn.Buffer(torch.zeros(len(CLASSES)))  # logits before the first tree

    def forward(self, x: Tensor) -> Tensor:
        """Return logits (..., 3) of x (..., inputs)."""
        rows, trees = x.reshape(-1, self.inputs), torch.arange(len(self.feature), device=x.device)
        node = torch.zeros(rows.shape[0], len(trees), dtype=torch.int32, device=x.device)
        for _ in range(DEPTH):
            at = trees, node.long()
            goes_left = rows.gather(1, self.feature[at].long()) <= self.threshold[at]
            node = torch.where(goes_left, self.left[at], self.right[at])
        values = self.value[trees, node.long()].view(rows.shape[0], -1, len(CLASSES))
        return (self.start + values.sum(1)).view(*x.shape[:-1], len(CLASSES))
