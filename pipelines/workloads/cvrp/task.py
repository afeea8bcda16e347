"""Imitation and REINFORCE on routing policies."""

import copy
import functools
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from scipy import stats
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict

from common.random import derive_key, uniform
from models.routing import native
from models.routing.environment import Instances
from models.routing.policy import RoutingPolicy
from pipelines.distributed import deferred, ranks
from pipelines.engine.batches import Resident
from pipelines.engine.workload import Loss, MapItems, Source, Task
from pipelines.workloads.cvrp.config import Config
from pipelines.workloads.cvrp.imitation import Curriculum
from pipelines.workloads.cvrp.instances.distributions import PROBLEMS
from pipelines.workloads.cvrp.instances.generated import Generated, by_size, stream_key
from pipelines.workloads.cvrp.prepare import load

SIGNIFICANT = 0.05  # p-value below which the model replaces the rollout baseline (Kool et al. 2019)
WHOLE = StateDictOptions(full_state_dict=True)  # even if each process has a part of the weights


def advantages(cost: Tensor, best_of: int) -> Tensor:
    """Return the advantages (B, S) of tours for minimising the expected cost of the best of `best_of` tours.

    Their mean product with the gradients of the tours' log-probabilities estimates the gradient of that cost, without
    bias for tours drawn alike (Walder and Karkhanis 2025, Pass@K Policy Optimization). With `best_of` 1 an advantage is
    the cost less the mean cost, and estimates 1 - 1/S of the gradient. Otherwise it is minus `best_of` times the length
    the tour saves over the best of the others, averaged over all sets of `best_of` of the S tours that contain it;
    the same mean over the sets without it is subtracted as a baseline.
    """
    order = cost.argsort(1)
    ranked = cost.gather(1, order)
    found = (_by_rank(cost.shape[1], best_of, cost.dtype, cost.device) * (ranked - ranked[:, :1])[:, None]).sum(2)
    return found.gather(1, order.argsort(1))


@functools.cache  # else each update would wait for a copy to the GPU
def _by_rank(count: int, best_of: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return the weights (S, S) of the sorted costs in the advantage of the tour of each rank."""
    weights = torch.eye(count, dtype=torch.float64) - 1 / count
    if best_of > 1:
        sets = math.comb(count - 1, best_of - 1)
        for rank in range(count):  # it is the best of a set whose second best is `other`
            likely = [math.comb(count - 1 - other, best_of - 2) / sets for other in range(rank + 1, count)]
            weights[rank] = 0
            weights[rank, rank], weights[rank, rank + 1 :] = best_of * sum(likely), -best_of * torch.tensor(likely)
        if sets := math.comb(count - 1, best_of):  # the baseline: the best less the second of the others
            first = [math.comb(count - 2 - rank, best_of - 1) / sets for rank in range(count - 1)]
            second = [rank * math.comb(count - 2 - rank, best_of - 2) / sets for rank in range(count - 1)]
            mean = torch.tensor(first, dtype=torch.float64) - torch.tensor(second, dtype=torch.float64)
            for rank in range(count):
                weights[rank, :rank] -= mean[:rank]
                weights[rank, rank + 1 :] -= mean[rank:]
    return weights.to(device, dtype)


class CvrpTask(Task):
    """Imitation of given tours, then REINFORCE: sampled tours become likelier the shorter they are."""

    def __init__(self, config: Config, folder: Path, device: torch.device):
        self.config, self.device = config, device
        sizes = config.model.resolved(len(config.data.sizes) > 1, **PROBLEMS[config.data.problem].reads)
        copied = config.training.baseline == "rollout"
        self.model = deferred.made(lambda: RoutingPolicy(sizes), device, whole=copied)
        key, size = stream_key(config.seed, "train"), config.training.batch_size
        self.train: Source = Generated(config.data, key, device, group=size)
        if config.training.imitation_steps:
            self.train = Curriculum(config, folder, device)
        self.validation = Resident(load(folder, "validation"), device)
        if device.type == "cpu" and (reason := native.unavailable()):
            self.notes = [f"without native code tours are built by torch, which takes longer: {reason}"]
        self.noise_key = derive_key(config.seed, "cvrp", "sampling")
        self.baseline = copy.deepcopy(self.model).eval().requires_grad_(False) if copied else None
        self.replacements = 0

    @property
    def starts(self) -> int:
        """Number of tours per instance while training."""
        return 1 if self.baseline is not None else self.config.training.starts or self.config.data.sizes[0]

    def loss(self, model: nn.Module, batch: Mapping[str, Tensor]) -> Loss:
        """Return advantage times log-probability (Williams 1992), as mean over starts and sum over instances.

        For a batch with tours to imitate it is minus their log-probability per customer. The metric `cost` is the
        cost of the tours learnt from.
        """
        instances = Instances.of(batch)  # all of one size
        items, num_customers = batch["item"], instances.demand.shape[1] - 1
        if "tours" in batch:
            rollout = model(instances, tours=batch["tours"])
            value = -rollout.log_prob.mean(1).sum() / num_customers
            return Loss(value, len(items), {"cost": rollout.cost.mean(1).sum()})
        most_steps = 2 * num_customers
        noise = uniform(self.noise_key, items, self.starts * most_steps).view(len(items), self.starts, most_steps)
        rollout = model(instances, num_starts=self.starts, uniform=noise)
        if self.baseline is None:
            advantage = advantages(rollout.cost, self.config.training.best_of or min(4, self.starts))
        else:
            with torch.no_grad():
                advantage = rollout.cost - self.baseline(instances).cost
        value = (advantage * rollout.log_prob).mean(1).sum()
        return Loss(value, len(items), {"cost": rollout.cost.mean(1).sum()})

    def score(self, model: nn.Module, batch: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """Return the cost of the best greedy tour over the starts used in training."""
        return {"cost": self._greedy(model, batch, self.starts)}

    def _greedy(self, model: nn.Module, batch: Mapping[str, Tensor], starts: int) -> Tensor:
        """Return the costs (B,) of the best greedy tours."""
        cost = torch.empty_like(batch["capacity"])
        for rows, instances in ranks.evenly(list(by_size(batch))):
            cost[rows] = model(instances, num_starts=starts).cost.min(1).values
        return cost

    def after_validation(self, map_items: MapItems) -> Mapping[str, float]:
        """Replace the rollout baseline if the model beats it in a one-sided paired t-test (Kool et al. 2019)."""
        baseline, settings = self.baseline, self.config.training
        if baseline is None:
            return {}
        # A fresh set after each replacement: on the same one, a lucky winner would stay.
        key = derive_key(self.config.seed, "cvrp", "challenge", self.replacements)
        costs = map_items(
            Generated(self.config.data, key, self.device, settings.challenge_instances),
            lambda batch: {"model": self._greedy(self.model, batch, 1), "baseline": self._greedy(baseline, batch, 1)},
        )
        test = stats.ttest_rel(costs["model"].double(), costs["baseline"].double(), alternative="less")
        if test.pvalue < SIGNIFICANT:
            baseline.load_state_dict(get_model_state_dict(self.model, options=WHOLE))
            self.replacements += 1
        return {"baseline/replacements": self.replacements, "baseline/cost": float(costs["baseline"].mean())}

    def state_dict(self) -> dict[str, object]:
        """Return the rollout baseline."""
        if self.baseline is None:
            return {}
        return {"baseline": self.baseline.state_dict(), "replacements": self.replacements}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the rollout baseline."""
        if self.baseline is not None:
            self.baseline.load_state_dict(state["baseline"])
            self.replacements = state["replacements"]
