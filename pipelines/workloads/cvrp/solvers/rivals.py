"""The methods beside the model in the table of an evaluation."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from models.routing import native
from models.routing.problems import Problem
from pipelines.engine.workload import MapItems
from pipelines.workloads.cvrp.solvers.heuristics import HEURISTICS
from pipelines.workloads.cvrp.solvers.reference import SOLVERS
from pipelines.workloads.cvrp.solvers.solving import Solved, solve_by_local_search, solve_each

if TYPE_CHECKING:
    from pipelines.workloads.cvrp import Config

TRIFLE = Problem("trifle", np.array([[0, 0], [0, 1], [1, 0], [1, 1]], np.float64), np.array([0, 1, 1, 1]), 2, "exact")
MORE_TOURS = (2, 8, 64)  # times evaluation.local_search: random tours of the further rows


def constructions(config: "Config", problems: Sequence[Problem], map_items: MapItems) -> dict[str, Solved]:
    """Return the tours of each heuristic, by name."""
    return {kind: solve_each(label, problems, solve, map_items) for kind, (label, solve) in HEURISTICS.items()}


def local_searches(
    config: "Config", problems: Sequence[Problem], built: Solved, few: int, map_items: MapItems
) -> list[Solved]:
    """Return tours after a local search from `built` and from random ones; from many, on `few` problems."""
    count = config.evaluation.local_search
    if not count or native.unavailable():
        return []
    return [
        solve_by_local_search(config, problems, 1, map_items, built),
        solve_by_local_search(config, problems, count, map_items),
        *(solve_by_local_search(config, problems[:few], times * count, map_items) for times in MORE_TOURS),
    ]


def solvers(config: "Config", problems: Sequence[Problem], map_items: MapItems) -> list[Solved]:
    """Return the tours of each configured solver that runs on this machine, for each time budget."""
    settings = config.evaluation
    return [
        solve_for(name, seconds, config, problems, map_items)
        for name in settings.reference
        if not (SOLVERS[name].native and native.unavailable())
        for seconds in settings.reference_seconds
    ]


def solve_for(name: str, seconds: float, config: "Config", problems: Sequence[Problem], map_items: MapItems) -> Solved:
    """Return the tours of the solver `name` after `seconds` of CPU time per problem."""
    solver = SOLVERS[name]
    label = f"{solver.label()}, {1000 * seconds:.3g} ms"
    solver.solve(TRIFLE, 1e-4, config.seed)  # imports and the like are not the method's time
    return solve_each(label, problems, lambda problem: solver.solve(problem, seconds, config.seed), map_items)
