"""Fits of the parts of pooled experts that gradients do not train: the linear expert, the trees, the pool's weights."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
import torch
import torch.nn.functional as F
from scipy.optimize import minimize
from scipy.special import log_softmax
from sklearn.ensemble import HistGradientBoostingClassifier
from threadpoolctl import threadpool_limits
from torch import Tensor

from models.market.inputs import CLASSES
from models.market.pooled_experts import DEPTH, PooledExperts, Trees, bounded_scale, class_log_probabilities
from pipelines.workloads.crypto.verdict.classification import class_shares
from pipelines.workloads.crypto.windows import IGNORED, Windows

# On the squared weights of the log scale. Weights of the location cost LOCATION times as much, and more the older their
# lag, as in the Minnesota prior (Litterman 1986): old lags are many and seldom matter.
PENALTIES = (0.25, 6e-2, 1.6e-2, 4e-3, 1e-3, 3e-4)
LOCATION = 10.0
AGEING = 0.5  # share of that cost added by each candle of a lag
ITERATIONS = 30  # of L-BFGS for each penalty, from where the stronger one ended
LOGISTIC = 0.55  # scale of a logistic variable whose deviation is 1
LEAST_SIZE = 1e-6  # deviation below which an input counts as constant
LARGEST_WEIGHT = 1.5  # of an expert in the pool
DISTANCE = 30.0  # nats, over all rows, per squared distance of the weights from their centre
BLOCK, RESAMPLES = 64, 500  # rows that are resampled together
AT_ONCE = 32  # stretches
THEIRS = -1  # in place of the rounds of boosting if the trees are a base's
Base: TypeAlias = "PooledExperts | None"
Known: TypeAlias = "tuple[bool, float] | None"


def over(source: Windows, function: Callable[[Tensor, Tensor], tuple[Tensor, ...]]) -> list[Tensor]:
    """Return each output of `function(windows, coins)` at the rows (M, ...) where windows end."""
    found = []
    with torch.no_grad():
        for items in torch.split(torch.arange(source.size), AT_ONCE):
            batch = source.batch(items)
            known = batch["labels"] != IGNORED
            found.append([each[known] for each in function(batch["windows"], batch["coins"])])
    return [torch.cat(each) for each in zip(*found, strict=True)]


def rows_of(source: Windows) -> Tensor:
    """Return the rows (M,) of the source's table where its windows end, in the order of `over`."""
    return (source.labels != IGNORED).nonzero()[:, 0]


def fixed(model: PooledExperts, source: Windows) -> Tensor:
    """Return `model.fixed` for every row of the source's table (N, 2, 3), 0 where no window ends."""
    (found,) = over(source, lambda windows, coins: (model.fixed(windows, coins),))
    table = found.new_zeros(len(source.labels), *found.shape[1:])
    table[rows_of(source)] = found
    return table


class _Rows(NamedTuple):
    """M rows to fit the linear expert to."""

    location: Tensor  # (M, P) inputs of the location, of mean 0 and deviation 1 over the training rows
    scale: Tensor  # (M, Q) those of the log scale
    volatility: Tensor  # (M,)
    labels: Tensor  # (M,)


class _Linear:
    """A linear expert in standardised inputs.

    `costs` (P,) are those of the location's squared weights, `centre` the weights from which their distance counts.
    """

    def __init__(self, thresholds: Tensor, costs: Tensor, centre: Mapping[str, Tensor]):
        self.costs, self.centre = costs, centre
        self.weights = {
            "location": centre["location"].clone(),
            "bias": torch.zeros(()),
            "scale": centre["scale"].clone(),
            "level": torch.tensor(math.log(LOGISTIC)),
            "thresholds": thresholds.clone(),
            "slopes": centre["slopes"].clone(),
        }
        for each in self.weights.values():
            each.requires_grad_(True)

    def __call__(self, rows: _Rows) -> tuple[Tensor, Tensor, Tensor]:
        """Return the location (M,), the log scale (M,) and the log probabilities (M, 3)."""
        weights = self.weights
        mean = rows.location @ weights["location"] + weights["bias"]
        log_scale = bounded_scale(rows.scale @ weights["scale"]) + weights["level"]
        thresholds = weights["thresholds"] + weights["slopes"] * rows.volatility[:, None]
        return mean, log_scale, class_log_probabilities(mean, log_scale, thresholds)

    def fit(self, rows: _Rows, moves: Tensor, penalty: float) -> None:
        """Minimise, from the present weights, the penalised loss of the classes and of the logistic moves (M,)."""
        weights = self.weights
        optimizer = torch.optim.LBFGS(
            weights.values(), max_iter=ITERATIONS, history_size=10, line_search_fn="strong_wolfe"
        )

        def closure() -> Tensor:
            optimizer.zero_grad()
            mean, log_scale, log_probabilities = self(rows)
            z = (moves - mean) * torch.exp(-log_scale)
            loss = F.nll_loss(log_probabilities, rows.labels) + (log_scale + z + 2 * F.softplus(-z)).mean()
            apart = {name: (weights[name] - each).square() for name, each in self.centre.items()}
            loss = loss + penalty * (self.costs @ apart["location"] + (apart["scale"].sum() + apart["slopes"].sum()))
            loss.backward()
            return loss

        optimizer.step(closure)


def fit_linear(
    model: PooledExperts, train: Windows, validation: Windows, returns: Tensor, base: Base = None, known: Known = None
) -> tuple[bool, float]:
    """Set the linear expert by maximum likelihood of the classes and of the return over the horizon.

    `returns` (N,) are those after each row of the table, in deviations of such returns. The penalty, one of PENALTIES,
    is on the distance from 0 or from the weights of a `base`, whichever has the lowest log loss on validation windows.
    Returns (True for the base's weights, penalty), which may be `known` from an earlier fit.
    """
    seen = [over(source, model.linear_inputs) for source in (train, validation)]
    moments = [(each.mean(0), each.std(0).clamp(min=LEAST_SIZE)) for each in seen[0][:2]]
    scaled = [[(each - mean) / std for each, (mean, std) in zip(found[:2], moments, strict=True)] for found in seen]
    labels = [source.labels[rows_of(source)] for source in (train, validation)]
    rows = zip(scaled, seen, labels, strict=True)
    fitted, judged = (_Rows(location, scale, found[2], own) for (location, scale), found, own in rows)
    moves = returns[rows_of(train)]
    short, _, long = class_shares(fitted.labels.numpy())
    ends = np.quantile(moves.numpy(), [1 - long, short])
    by_age = [1 + AGEING * torch.arange(model.config.lookback - 1, -1, -1.0)] * (2 + len(model.context_places))
    costs = LOCATION * torch.cat([*by_age, torch.ones(len(model.config.features))])
    thresholds, best = torch.tensor([ends[0], -ends[1]], dtype=torch.float32), math.inf
    chosen = False, PENALTIES[0]
    for centre in (None,) if base is None else (None, base):
        linear = _Linear(thresholds, costs, _centre(centre, moments))
        for penalty in PENALTIES:
            linear.fit(fitted, moves, penalty)
            with torch.no_grad():
                reached = float(F.nll_loss(linear(judged)[2], judged.labels))
                if (centre is not None, penalty) == known or (known is None and reached < best):
                    best, chosen = reached, (centre is not None, penalty)
                    _set_linear(model, linear.weights, moments)
            if chosen == known:
                return chosen
    return chosen


def _centre(base: PooledExperts | None, moments: list[tuple[Tensor, Tensor]]) -> dict[str, Tensor]:
    """Return the weights that a linear expert is shrunk towards, for standardised inputs: 0 or a base's."""
    (_, location), (_, scale) = moments
    if base is None:
        return {"location": torch.zeros_like(location), "scale": torch.zeros_like(scale), "slopes": torch.zeros(2)}
    return {"location": base.location[:-1] * location, "scale": base.scale[:-1] * scale, "slopes": base.slopes}


def _set_linear(model: PooledExperts, weights: Mapping[str, Tensor], moments: list[tuple[Tensor, Tensor]]) -> None:
    """Set the model's weights for raw inputs, from those for standardised inputs."""
    biases = {"location": weights["bias"], "scale": torch.zeros(())}
    for (name, bias), (mean, std) in zip(biases.items(), moments, strict=True):
        own = weights[name] / std
        getattr(model, name).copy_(torch.cat([own, (bias - own @ mean)[None]]))
    for name in ("level", "thresholds", "slopes"):
        getattr(model, name).copy_(weights[name])


def fit_trees(
    model: PooledExperts, train: Windows, validation: Windows, base: Base = None, known: int | None = None
) -> int:
    """Set the trees by gradient boosting, stopped by the log loss on the validation windows.

    Without all three classes in training they give the classes' shares. Those of a `base` are taken over if their log
    loss on the validation windows is lower. Returns the number of rounds, THEIRS for a base's, which may be `known`.
    """
    labels = [source.labels[rows_of(source)] for source in (train, validation)]
    seen = [over(source, lambda *given: (model.tree_inputs(*given),))[0] for source in (train, validation)]
    model.trees.start.copy_(torch.from_numpy(np.log(class_shares(labels[0].numpy()))))
    rounds = 0
    if len(np.unique(labels[0].numpy())) == len(CLASSES) and known not in (0, THEIRS):
        rounds = set_trees(model.trees, _boosted(model, seen, labels, known))
    if base is not None and known in (None, THEIRS):
        own, others = (F.cross_entropy(trees(seen[1]), labels[1]) for trees in (model.trees, base.trees))
        if others < own or known == THEIRS:
            model.trees.load_state_dict(base.trees.state_dict())
            return THEIRS
    return rounds


def _boosted(
    model: PooledExperts, inputs: Sequence[Tensor], labels: Sequence[Tensor], rounds: int | None
) -> HistGradientBoostingClassifier:
    boosted = HistGradientBoostingClassifier(
        max_iter=rounds or model.config.rounds,
        early_stopping=rounds is None,
        n_iter_no_change=10,
        learning_rate=0.08,
        max_leaf_nodes=(model.config.nodes + 1) // 2,
        max_depth=DEPTH,
        min_samples_leaf=50,
        random_state=0,
    )
    with threadpool_limits(1):
        judged = {"X_val": inputs[1].numpy(), "y_val": labels[1].numpy()} if rounds is None else {}
        return boosted.fit(inputs[0].numpy(), labels[0].numpy(), **judged)


def set_trees(trees: Trees, boosted: HistGradientBoostingClassifier) -> int:
    """Copy the trees of a HistGradientBoostingClassifier, which are not public; return the best round."""
    trees.start.copy_(torch.from_numpy(boosted._baseline_prediction.ravel()))
    # It keeps the rounds after the best one too. The first score is that before any round.
    best = int(np.argmax(boosted.validation_score_)) if boosted.do_early_stopping_ else len(boosted._predictors)
    for number, each in enumerate(tree.nodes for of_round in boosted._predictors[:best] for tree in of_round):
        inner = each["is_leaf"] == 0
        # A number of float32 is at most the exact threshold if it is at most the next lower float32.
        limits = each["num_threshold"].astype(np.float32)
        limits = np.where(limits > each["num_threshold"], np.nextafter(limits, np.float32(-np.inf)), limits)
        table = {
            "feature": np.where(inner, each["feature_idx"], 0),
            "threshold": np.where(inner, limits, 0),
            "left": np.where(inner, each["left"], np.arange(len(each))),
            "right": np.where(inner, each["right"], np.arange(len(each))),
            "value": np.where(inner, 0, each["value"]),
        }
        for name, column in table.items():
            getattr(trees, name)[number, : len(each)] = torch.from_numpy(column)
    return best


def pool_weights(log_probabilities: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Return the weights (K,), 0 to LARGEST_WEIGHT, by which a pool of experts (M, K, 3) has the lowest log loss.

    They are shrunk towards the mean of equal weights and the shares of resamples, of blocks of rows, in which an expert
    by itself is the best (Yao et al. 2018).
    """
    rows, count = np.arange(len(labels)), log_probabilities.shape[1]
    chosen = log_probabilities[rows, :, labels]
    blocks = np.stack([each.mean(0) for each in np.array_split(chosen, max(len(rows) // BLOCK, min(len(rows), 8)))])
    won = (np.random.default_rng(0).dirichlet(np.ones(len(blocks)), RESAMPLES) @ blocks).argmax(1)
    centre = (np.eye(count)[won].mean(0) + 1 / count) / 2

    def loss(weights: np.ndarray) -> tuple[float, np.ndarray]:
        logits = log_softmax(np.einsum("k,mkc->mc", weights, log_probabilities), 1)
        slope = np.einsum("mc,mkc->k", np.exp(logits), log_probabilities) - chosen.sum(0)
        apart = weights - centre
        value = float(DISTANCE * (apart @ apart) - logits[rows, labels].sum())
        return value / len(rows), (slope + 2 * DISTANCE * apart) / len(rows)

    return np.asarray(minimize(loss, centre, jac=True, bounds=[(0.0, LARGEST_WEIGHT)] * count).x)
