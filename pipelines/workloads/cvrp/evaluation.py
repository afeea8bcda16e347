"""Evaluation on problems: the model beside the methods it must be compared with."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from common.statistics import interval_around, mean_and_half_width
from pipelines.engine.workload import Evaluation, MapItems
from pipelines.workloads.cvrp import instances
from pipelines.workloads.cvrp.distributions import CAPACITY
from pipelines.workloads.cvrp.heuristics import HEURISTICS, pyvrp, pyvrp_label
from pipelines.workloads.cvrp.instance_files import read
from pipelines.workloads.cvrp.problems import Problem
from pipelines.workloads.cvrp.solutions import solution_text
from pipelines.workloads.cvrp.solving import Solved, solve_each, solve_with_model
from pipelines.workloads.cvrp.standard_sets import standard_test_set

if TYPE_CHECKING:
    from pipelines.workloads.cvrp import Config


def evaluate(
    config: "Config", models: Mapping[str, nn.Module], folder: Path, device: torch.device, map_items: MapItems
) -> list[Evaluation]:
    """Return one Evaluation per file, or one of the test set."""
    model = next(iter(models.values()), None)  # a heuristic has none
    return [
        _evaluate_split(config, model, device, map_items, name, problems)
        for name, problems in splits(config, folder).items()
    ]


def splits(config: "Config", folder: Path) -> dict[str, list[Problem]]:
    """Return the problems to solve, by the name of their evaluation."""
    if config.evaluation.instances == "test":
        return {"test": _test_set(config, folder)}
    return read(Path(config.evaluation.instances))


def _test_set(config: "Config", folder: Path) -> list[Problem]:
    """Return the standard test set where the config's distribution is that of Kool et al., else the prepared one."""
    data = config.data
    if data.distribution == "uniform" and CAPACITY.get(data.customers) == data.vehicle_capacity:
        return standard_test_set(data.customers, data.test_instances)
    return instances.problems_of(instances.load(folder, "test"), "test")


def _evaluate_split(
    config: "Config",
    model: nn.Module | None,
    device: torch.device,
    map_items: MapItems,
    name: str,
    problems: list[Problem],
) -> Evaluation:
    """Return the Evaluation of one set of problems, whose headline is the method that the config asks for."""
    simple = {kind: solve_each(label, problems, solve, map_items) for kind, (label, solve) in HEURISTICS.items()}
    methods = list(simple.values())
    if model is None:
        headline = simple[config.model.kind]
    else:
        for decode, augment in _ways(config):
            headline = solve_with_model(config, model, problems, decode, augment, device, map_items)
            methods.append(headline)
    if config.evaluation.polish_seconds:
        headline = _polished(config, problems, headline, map_items)
        methods.append(headline)
    reference = None
    if config.evaluation.reference_seconds:
        reference = _reference(config, problems, map_items)
        methods.append(reference)
    return Evaluation(
        split=name,
        summary=_summary(config, problems, headline, reference),
        table=[_row(method, reference) for method in methods],
        examples=_examples(problems, headline, reference),
        files=_files(name, problems, headline, reference),
    )


def _ways(config: "Config") -> list[tuple[str, bool]]:
    """Return pairs (decode, augment) from cheap to expensive; the last is the one that the config asks for."""
    asked = (config.evaluation.decode, config.evaluation.augment)
    cheaper = [("greedy", False), ("greedy", True), ("multistart", False)] if config.evaluation.compare else []
    return [way for way in cheaper if way != asked] + [asked]


def _polished(config: "Config", problems: Sequence[Problem], solved: Solved, map_items: MapItems) -> Solved:
    """Return the tours after PyVRP improved them; the seconds are those of both methods together."""
    seconds = config.evaluation.polish_seconds
    label = f"{solved.method} + PyVRP {seconds:g} s"
    starts = dict(zip(map(id, problems), solved.routes, strict=True))
    polished = solve_each(label, problems, lambda p: pyvrp(p, seconds, config.seed, starts[id(p)]), map_items)
    return Solved(label, polished.routes, polished.costs, solved.seconds + polished.seconds)


def _reference(config: "Config", problems: Sequence[Problem], map_items: MapItems) -> Solved:
    """Return PyVRP's own tours of the first problems, to which gaps are measured."""
    seconds = config.evaluation.reference_seconds
    few = problems[: config.evaluation.reference_instances]
    label = f"{pyvrp_label()}, at most {seconds:g} s"
    return solve_each(label, few, lambda p: pyvrp(p, seconds, config.seed), map_items)


def _summary(
    config: "Config", problems: Sequence[Problem], headline: Solved, reference: Solved | None
) -> dict[str, Any]:
    """Return the figures of the headline method."""
    gap = _row(headline, reference)
    mean, half = mean_and_half_width(headline.costs)
    summary = {
        "cost": mean,
        "cost_interval": interval_around(mean, half),
        "gap": gap.get("gap %"),
        "gap_interval": gap.get("gap 95 %"),
        "gap_to": reference.method if reference else None,
        "gap_instances": len(reference.costs) if reference else 0,
        "n": len(problems),
        "seconds": headline.seconds,
        "instances_per_s": len(problems) / headline.seconds,
        "decode": headline.method,
        "customers": sorted({problem.customers for problem in problems}),
    }
    if config.data.distribution == "grid" and config.evaluation.instances == "test":
        summary["cost_per_customer"] = mean / config.data.customers
    return summary


def _row(solved: Solved, reference: Solved | None) -> dict[str, Any]:
    """Return a method's row of the table."""
    mean, half = mean_and_half_width(solved.costs)
    row = {"method": solved.method, "cost": mean, "± 95 %": half, "n": len(solved.costs)}
    if reference is not None:
        few = len(reference.costs)
        # Gaps are paired: the reference solves the same instances, so that their difficulty cancels.
        gap, width = mean_and_half_width(100 * (solved.costs[:few] / reference.costs - 1))
        row |= {"gap %": gap, "gap 95 %": interval_around(gap, width)}
    row |= {"seconds": solved.seconds, "instances/s": len(solved.costs) / solved.seconds}
    return row


def _examples(problems: Sequence[Problem], solved: Solved, reference: Solved | None) -> dict[str, list[Any]]:
    """Return the columns of the file with one line per instance."""
    known = [] if reference is None else reference.costs.tolist()
    return {
        "instance": [problem.name for problem in problems],
        "customers": [problem.customers for problem in problems],
        "cost": solved.costs.tolist(),
        "reference": known + [None] * (len(problems) - len(known)),
        "routes": [" | ".join(" ".join(map(str, route)) for route in routes) for routes in solved.routes],
    }


def _files(name: str, problems: Sequence[Problem], solved: Solved, reference: Solved | None) -> dict[str, str]:
    """Return the tours that the report draws and, for a problem from a .vrp file, its solution in CVRPLIB's format."""
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
