"""Solving many problems with one method: spread over the processes, timed, and every tour validated."""

import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

from models.routing.environment import DEPOT, Instances, Routes, routes_of
from models.routing.search import search
from pipelines.engine.batches import Resident
from pipelines.engine.workload import MapItems
from pipelines.workloads.cvrp import validator
from pipelines.workloads.cvrp.problems import Problem, cost_of, to_instances

if TYPE_CHECKING:
    from pipelines.workloads.cvrp import Config

INSTANCES_AT_ONCE = 256  # instances given to one search, which bounds its own memory


@dataclass(frozen=True)
class Solved:
    """One method's tours on the problems it was given."""

    method: str
    routes: list[Routes]
    costs: np.ndarray  # (K,) in the problems' own metric
    seconds: float


def solve_with_model(
    config: "Config",
    model: nn.Module,
    problems: Sequence[Problem],
    decode: str,
    augment: bool,
    device: torch.device,
    map_items: MapItems,
) -> Solved:
    """Return the model's tours; problems of one size are solved together."""
    settings = config.evaluation
    tours = f"{decode}({settings.samples})" if decode == "sampling" else decode
    label = f"{config.model.kind}, {tours}" + (" x 8 symmetries" if augment else "")
    by_size: dict[int, list[int]] = defaultdict(list)
    for i, problem in enumerate(problems):
        by_size[problem.customers].append(i)

    def solve(batch: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        instances = Instances(batch["locs"], batch["demand"], batch["capacity"])
        actions, _ = search(
            model,
            instances,
            decode,
            samples=settings.samples,
            augment=augment,
            seed=config.seed,
            items=batch["item"],
        )
        return {"actions": _padded(actions, 2 * instances.demand.shape[1])}

    routes: list[Routes] = [[] for _ in problems]
    began = time.perf_counter()
    for members in by_size.values():
        batch = to_instances([problems[i] for i in members], device)
        source = Resident({**batch._asdict(), "item": torch.tensor(members)}, device)
        for i, actions in zip(members, map_items(source, solve, INSTANCES_AT_ONCE)["actions"], strict=True):
            routes[i] = routes_of(actions)
    return _validated(label, problems, routes, time.perf_counter() - began)


def solve_each(
    label: str, problems: Sequence[Problem], solve: Callable[[Problem], Routes], map_items: MapItems
) -> Solved:
    """Return the tours of a method that takes one problem at a time."""
    longest = 2 * max(len(problem.demand) for problem in problems)

    def encode(batch: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        rows = []
        for i in batch["item"].tolist():
            # As in a policy's actions, the depot stands between routes.
            tour = torch.tensor([node for route in solve(problems[i]) for node in (*route, DEPOT)])
            rows.append(_padded(tour, longest))
        return {"actions": torch.stack(rows).to(batch["item"].device)}

    began = time.perf_counter()
    numbers = Resident({"item": torch.arange(len(problems))}, torch.device("cpu"))
    actions = map_items(numbers, encode, 1)["actions"]
    seconds = time.perf_counter() - began
    return _validated(label, problems, [routes_of(row) for row in actions], seconds)


def _validated(method: str, problems: Sequence[Problem], routes: list[Routes], seconds: float) -> Solved:
    """Return tours with their costs; raises InvalidTour for one that the independent validator refuses."""
    for problem, tour in zip(problems, routes, strict=True):
        validator.check(problem, tour)
    costs = np.array([cost_of(problem, tour) for problem, tour in zip(problems, routes, strict=True)])
    return Solved(method, routes, costs, seconds)


def _padded(actions: Tensor, length: int) -> Tensor:
    """Pad (..., T) to (..., length) with the depot, so that all processes gather equal shapes."""
    return torch.nn.functional.pad(actions, (0, length - actions.shape[-1]), value=DEPOT)
