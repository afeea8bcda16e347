"""The solvers of `evaluation.reference`: a trained policy learns from them and is measured against them.

Budgets are CPU time, so that a busy machine changes no figure, or iterations, which give the same tours everywhere. A
new solver is one entry of SOLVERS, by which configs name it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from models.routing.problems import Problem
from pipelines.workloads.cvrp.solvers.heuristics import savings
from pipelines.workloads.cvrp.solvers.hgs import hgs, lacking
from pipelines.workloads.cvrp.solvers.pyvrp_search import pyvrp, pyvrp_label

if TYPE_CHECKING:
    from models.routing.environment import Routes


ROUNDS = 200  # of ruin and recreate in place of an iteration of HGS, for tours about as short


class Solver(NamedTuple):
    """A solver with a time budget."""

    label: Callable[[], str]
    solve: Callable[[Problem, float, int], Routes]  # problem, seconds of CPU time, seed
    native: bool = False  # our own native code, which ignores limits on the length of routes


def sisrs(problem: Problem, *, rounds: int = 0, seconds: float = 0, seed: int = 0) -> Routes:
    """Return routes from native ruin and recreate, after `rounds` or `seconds` of CPU time."""
    import torch

    from models.routing.environment import routes_of
    from models.routing.solve import ruined

    return routes_of(ruined([problem], torch.zeros(1), seed, rounds=rounds, seconds=seconds)[0])


def to_imitate(problem: Problem, iterations: int) -> Routes:
    """Return routes to learn from, a pure function of the problem: HGS's after `iterations` without improvement.

    Without HGS they are those of ruin and recreate, without native code PyVRP's.
    """
    from models.routing import native

    if not lacking():
        return hgs(problem, iterations=iterations)
    if not native.unavailable():
        return sisrs(problem, rounds=ROUNDS * iterations)
    return pyvrp(problem, math.inf, 0)  # until it has long found nothing better


SOLVERS = {
    "sisrs": Solver(
        lambda: "ruin and recreate",
        lambda problem, seconds, seed: sisrs(problem, seconds=seconds, seed=seed),
        native=True,
    ),
    "hgs": Solver(lambda: "HGS", lambda problem, seconds, seed: hgs(problem, seconds=seconds, seed=seed)),
    "pyvrp": Solver(pyvrp_label, pyvrp),
    "pyvrp_from_savings": Solver(
        lambda: f"{pyvrp_label()} from savings",
        lambda problem, seconds, seed: pyvrp(problem, seconds, seed, savings(problem)),
    ),
}
