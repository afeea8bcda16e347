"""Solve instances with the model and with the methods it must be compared to, every tour checked."""

import json
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from models.routing.environment import Instances, routes_of
from models.routing.search import search
from pipelines.engine.batches import Resident
from pipelines.engine.workload import Evaluation, MapItems
from pipelines.workloads.cvrp import CAPACITY, heuristics, instances, validator
from pipelines.workloads.cvrp.problems import Problem, cost_of, read, solution_text, standard_test_set, to_instances

if TYPE_CHECKING:
    from pipelines.workloads.cvrp import Config

Routes = list[list[int]]
Z95 = 1.96  # two-sided 95 % of the normal distribution
INSTANCES_AT_ONCE = 256  # handed to one search, which bounds its own memory


@dataclass(frozen=True)
class Solved:
    """One method's tours on the problems it was given."""

    method: str
    routes: list[Routes]
    costs: np.ndarray  # (K,) in the problems' own metric
    seconds: float


def evaluate(
    config: "Config", models: Mapping[str, nn.Module], folder: Path, device: torch.device, map_items: MapItems
) -> list[Evaluation]:
    """One Evaluation per file, or one of the test split."""
    model = next(iter(models.values()), None)  # a heuristic has none
    return [
        _evaluate_split(config, model, device, map_items, name, problems)
        for name, problems in splits(config, folder).items()
    ]


def splits(config: "Config", folder: Path) -> dict[str, list[Problem]]:
    """Problems to solve, by the name of their evaluation."""
    if config.evaluation.instances == "test":
        return {"test": _test_set(config, folder)}
    return read(Path(config.evaluation.instances))


def _test_set(config: "Config", folder: Path) -> list[Problem]:
    """Kool et al.'s published instances where the config's distribution is theirs, else the prepared ones."""
    data = config.data
    if data.distribution == "uniform" and CAPACITY.get(data.customers) == data.vehicle_capacity:
        return standard_test_set(data.customers, data.test_instances)
    fields = {name: tensor.numpy() for name, tensor in instances.load(folder, "test").items()}
    return [
        Problem(f"test-{i}", locs.astype(np.float64), demand.astype(np.int64), int(capacity), rounded=False)
        for i, (locs, demand, capacity) in enumerate(
            zip(fields["locs"], fields["demand"], fields["capacity"], strict=True)
        )
    ]


def _evaluate_split(
    config: "Config",
    model: nn.Module | None,
    device: torch.device,
    map_items: MapItems,
    name: str,
    problems: list[Problem],
) -> Evaluation:
    settings = config.evaluation
    solved = {
        "nearest neighbour": _each("nearest neighbour", problems, heuristics.nearest_neighbour, map_items),
        "savings": _each("savings (Clarke-Wright)", problems, heuristics.savings, map_items),
    }
    if model is None:
        headline = solved["nearest neighbour" if config.model.kind == "greedy" else "savings"]
    else:
        for decode, augment in _ways(config):
            label = f"{config.model.kind}, {_label(config, decode, augment)}"
            solved[label] = headline = _by_model(config, model, problems, decode, augment, device, map_items, label)
    if settings.polish_seconds:
        label = f"{headline.method} + PyVRP {settings.polish_seconds:g} s"
        starts = dict(zip(map(id, problems), headline.routes, strict=True))
        polished = _each(
            label,
            problems,
            lambda p: heuristics.pyvrp(p, settings.polish_seconds, config.seed, starts[id(p)]),
            map_items,
        )
        headline = Solved(label, polished.routes, polished.costs, headline.seconds + polished.seconds)
        solved[label] = headline
    reference = None
    if settings.reference_seconds:
        label = f"{heuristics.pyvrp_label()}, at most {settings.reference_seconds:g} s"
        few = problems[: settings.reference_instances]
        reference = _each(label, few, lambda p: heuristics.pyvrp(p, settings.reference_seconds, config.seed), map_items)
        solved["reference"] = reference
    table = [_row(method, reference) for method in solved.values()]
    gap = _row(headline, reference)
    mean, half = _mean(headline.costs)
    summary = {
        "cost": mean,
        "cost_interval": _interval(mean, half),
        "gap": gap.get("gap %"),
        "gap_interval": gap.get("gap 95 %"),
        "gap_to": reference.method if reference else None,
        "gap_instances": len(reference.costs) if reference else 0,
        "n": len(problems),
        "seconds": headline.seconds,
        "instances_per_s": len(problems) / headline.seconds,
        "decode": headline.method,
        "customers": sorted({len(p.demand) - 1 for p in problems}),
    }
    if config.data.distribution == "grid" and settings.instances == "test":
        summary["cost_per_customer"] = mean / config.data.customers
    return Evaluation(
        split=name,
        summary=summary,
        table=table,
        examples=_examples(problems, headline, reference),
        files=_files(name, problems, headline, reference),
    )


def _ways(config: "Config") -> list[tuple[str, bool]]:
    """(decode, augment) from cheap to dear; the last is the one asked for."""
    asked = (config.evaluation.decode, config.evaluation.augment)
    cheaper = [("greedy", False), ("greedy", True), ("multistart", False)] if config.evaluation.compare else []
    return [way for way in cheaper if way != asked] + [asked]


def _label(config: "Config", decode: str, augment: bool) -> str:
    tours = f"sampling({config.evaluation.samples})" if decode == "sampling" else decode
    return f"{tours} x 8 symmetries" if augment else tours


def _by_model(
    config: "Config",
    model: nn.Module,
    problems: Sequence[Problem],
    decode: str,
    augment: bool,
    device: torch.device,
    map_items: MapItems,
    label: str,
) -> Solved:
    """The model's tours, problems of one size at a time."""
    by_size: dict[int, list[int]] = defaultdict(list)
    for i, problem in enumerate(problems):
        by_size[len(problem.demand)].append(i)
    routes: list[Routes] = [[] for _ in problems]
    began = time.perf_counter()
    for members in by_size.values():
        batch = to_instances([problems[i] for i in members], device)
        source = Resident({**batch._asdict(), "item": torch.tensor(members)}, device)

        def solve(batch: Mapping[str, Tensor], decode: str = decode) -> Mapping[str, Tensor]:
            found = Instances(batch["locs"], batch["demand"], batch["capacity"])
            actions, _ = search(
                model,
                found,
                decode,
                samples=config.evaluation.samples,
                augment=augment,
                seed=config.seed,
                items=batch["item"],
            )
            return {"actions": _padded(actions, 2 * found.demand.shape[1])}

        for i, actions in zip(members, map_items(source, solve, INSTANCES_AT_ONCE)["actions"], strict=True):
            routes[i] = routes_of(actions)
    return _checked(label, problems, routes, time.perf_counter() - began)


def _each(label: str, problems: Sequence[Problem], solve: Callable[[Problem], Routes], map_items: MapItems) -> Solved:
    """A method that takes one problem at a time, problems spread over the processes."""
    longest = 2 * max(len(problem.demand) for problem in problems)

    def encode(batch: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        rows = []
        for i in batch["item"].tolist():
            # The 0 between routes stands for the depot, as in a policy's actions.
            tour = [node for route in solve(problems[i]) for node in (*route, 0)]
            rows.append(torch.tensor(tour + [0] * (longest - len(tour))))
        return {"actions": torch.stack(rows).to(batch["item"].device)}

    began = time.perf_counter()
    numbers = Resident({"item": torch.arange(len(problems))}, torch.device("cpu"))
    actions = map_items(numbers, encode, 1)["actions"]
    seconds = time.perf_counter() - began
    return _checked(label, problems, [routes_of(row) for row in actions], seconds)


def _checked(method: str, problems: Sequence[Problem], routes: list[Routes], seconds: float) -> Solved:
    """Costs of tours that the independent validator accepts; it raises for one that it does not."""
    for problem, tour in zip(problems, routes, strict=True):
        validator.check(problem, tour)
    costs = np.array([cost_of(problem, tour) for problem, tour in zip(problems, routes, strict=True)])
    return Solved(method, routes, costs, seconds)


def _padded(actions: Tensor, length: int) -> Tensor:
    """(B, T) -> (B, length) with the depot behind, so that all processes gather equal shapes."""
    return torch.nn.functional.pad(actions, (0, length - actions.shape[1]))


def _mean(values: np.ndarray) -> tuple[float, float | None]:
    """Mean and half width of its 95 % interval, which a single value does not have."""
    if len(values) == 1:
        return float(values[0]), None
    return float(values.mean()), float(Z95 * values.std(ddof=1) / len(values) ** 0.5)


def _interval(mean: float, half: float | None) -> list[float] | None:
    return None if half is None else [mean - half, mean + half]


def _row(solved: Solved, reference: Solved | None) -> dict[str, Any]:
    mean, half = _mean(solved.costs)
    row = {"method": solved.method, "cost": mean, "± 95 %": half, "n": len(solved.costs)}
    if reference is not None:
        few = len(reference.costs)
        # Paired: the reference solves the same instances, so their differing difficulty cancels.
        gap, width = _mean(100 * (solved.costs[:few] / reference.costs - 1))
        row |= {"gap %": gap, "gap 95 %": _interval(gap, width)}
    row |= {"seconds": solved.seconds, "instances/s": len(solved.costs) / solved.seconds}
    return row


def _examples(problems: Sequence[Problem], solved: Solved, reference: Solved | None) -> dict[str, list[Any]]:
    known = [] if reference is None else reference.costs.tolist()
    return {
        "instance": [problem.name for problem in problems],
        "customers": [len(problem.demand) - 1 for problem in problems],
        "cost": solved.costs.tolist(),
        "reference": known + [None] * (len(problems) - len(known)),
        "routes": [" | ".join(" ".join(map(str, route)) for route in routes) for routes in solved.routes],
    }


def _files(name: str, problems: Sequence[Problem], solved: Solved, reference: Solved | None) -> dict[str, str]:
    """The tours that the report draws and, for a problem out of a .vrp file, its solution in CVRPLIB's format."""
    few = len(reference.costs) if reference else len(problems)
    badness = solved.costs[:few] / reference.costs if reference else solved.costs
    order = np.argsort(badness)
    picks = {"best": order[0], "median": order[len(order) // 2], "worst": order[-1]} if few > 1 else {"only": 0}
    drawings = [
        {
            "which": which,
            "name": problems[i].name,
            "locs": problems[i].locs.tolist(),
            "routes": solved.routes[i],
            "cost": float(solved.costs[i]),
            "reference": float(reference.costs[i]) if reference else None,
        }
        for which, i in picks.items()
    ]
    files = {f"{name}.tours.jsonl": "".join(json.dumps(drawing) + "\n" for drawing in drawings)}
    if problems[0].rounded:  # the metric of .vrp files, which hold one problem each
        files[f"{name}.sol"] = solution_text(solved.routes[0], solved.costs[0])
    return files
