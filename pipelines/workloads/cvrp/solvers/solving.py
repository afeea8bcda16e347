"""The rows of an evaluation: many problems solved by one method, spread over the processes, timed and validated."""

import sys
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from common.errors import UserError
from models.routing import native
from models.routing.environment import Instances, Routes, routes_of
from models.routing.fleet import plan
from models.routing.inputs import RoutingSettings, SearchSettings
from models.routing.policy import RoutingPolicy
from models.routing.problems import Plan, Problem, cost_of, to_instances
from models.routing.solve import (
    Asked,
    actions_of,
    at_once,
    best_tours,
    mended,
    padded,
    plan_from,
    searched,
    takes_policy,
)
from pipelines.engine.batches import Resident
from pipelines.engine.workload import MapItems
from pipelines.workloads.cvrp.solvers import validator
from pipelines.workloads.cvrp.solvers.pyvrp_search import pyvrp_label, pyvrp_plan
from pipelines.workloads.cvrp.solvers.reference import SOLVERS, lacking

if TYPE_CHECKING:
    from pipelines.workloads.cvrp import Config, EvaluationSettings

TRIFLE = Problem("trifle", np.array([[0, 0], [0, 1], [1, 0], [1, 1]], np.float64), np.array([0, 1, 1, 1]), 2, "exact")
Solve = Callable[[Mapping[str, Tensor]], Tensor]  # a batch of instances with their numbers -> actions (B, T)


@dataclass(frozen=True)
class Solved:
    """One method's tours of the problems."""

    method: str
    routes: list[Routes]
    costs: np.ndarray  # (K,) in the problems' own metric
    seconds: float  # of wall time
    core_seconds: float  # of CPU time, of all threads and processes together
    on: str  # device and threads

    @property
    def core_ms(self) -> float:
        """Milliseconds of CPU time per instance."""
        return 1000 * self.core_seconds / len(self.routes)


def solve_with_model(
    config: "Config",
    model: RoutingPolicy,
    problems: Sequence[Problem],
    decode: str,
    augment: bool,
    device: torch.device,
    map_items: MapItems,
    milliseconds: float = 0,
) -> Solved:
    """Return the model's tours, or those found from them in `milliseconds`."""
    way = {"decode": decode, "augment": augment, "milliseconds": milliseconds}
    if decode != "multistart" or (milliseconds and config.evaluation.starts_from == "mix"):  # knows best what it holds
        way["starts"] = None
    settings = config.evaluation.model_copy(update=way)
    tours = f"{decode}({settings.samples})" if decode == "sampling" else decode
    label = f"{config.model.kind}, {tours}" + (" x 8 symmetries" if augment else "")
    if milliseconds:
        most = max(each.customers for each in problems)
        taken = takes_policy(most, milliseconds, settings.starts_from, settings.starts)
        sources = [config.model.kind] * taken + [settings.starts_from] * (settings.starts_from != "policy")
        label = f"search from {' and '.join(sources)}, {milliseconds:.3g} ms"

    def solve(batch: Mapping[str, Tensor]) -> Tensor:
        instances = Instances.of(batch)
        chosen = [problems[i] for i in batch["item"].tolist()]
        return best_tours(model, chosen, instances, batch["item"], settings, config.seed)

    return _solve_batches(label, problems, solve, device, map_items, model.config.rules)


def solve_from_savings(
    config: "Config", problems: Sequence[Problem], milliseconds: float, ruin: bool, map_items: MapItems
) -> Solved:
    """Return the tours of a local search from randomised savings, or of ruin and recreate that goes on from there."""
    label = "savings, then ruin and recreate" if ruin else "randomised savings + local search"

    def solve(batch: Mapping[str, Tensor]) -> Tensor:
        chosen, share = [problems[i] for i in batch["item"].tolist()], None if ruin else 1.0
        return searched(chosen, batch["item"], config.seed, milliseconds / 1000, "savings", share=share)

    cpu = torch.device("cpu")
    return _solve_batches(f"{label}, {milliseconds:.3g} ms", problems, solve, cpu, map_items)


def searches(config: "Config", problems: Sequence[Problem], milliseconds: float, map_items: MapItems) -> list[Solved]:
    """Return the tours of our own searches from savings, in each budget of the solvers and in that of the model."""
    settings = config.evaluation
    if not milliseconds or native.unavailable():
        return []
    budgets = sorted({*(1000 * seconds for seconds in times(settings, milliseconds)), milliseconds})
    return [
        solve_from_savings(config, problems, budget, ruin, map_items) for ruin in (False, True) for budget in budgets
    ]


def times(settings: "EvaluationSettings", milliseconds: float) -> Sequence[float]:
    """Return the seconds that each solver has, where the model's search takes `milliseconds`."""
    return (milliseconds / 1000,) if settings.reference_seconds is None else settings.reference_seconds


def solve_fleets(
    config: "Config", model: RoutingPolicy | None, problems: Sequence[Problem], map_items: MapItems
) -> list[Solved]:
    """Return plans of more than the plain CVRP: our own, and others of the first problems in the same times.

    A `model` that reads them builds starts, of our own if `starts_from` asks for it, else of another row.
    """
    settings, found = config.evaluation, list[Solved]()
    few = settings.reference_instances
    own = settings.milliseconds or max(problem.customers for problem in problems)
    budgets = [own / 1000, *(each for each in times(settings, own) if 1000 * each != own)]
    solvers: list[tuple[str, Callable[[Problem, float], Plan | None]]] = [
        ("ruin and recreate", lambda problem, seconds: plan(problem, seconds=seconds, seed=config.seed)),
        (pyvrp_label(), lambda problem, seconds: pyvrp_plan(problem, seconds, config.seed)),
    ]
    if model is not None:
        started = RoutingSettings(**settings.model_dump(include=set(SearchSettings.model_fields)), seed=config.seed)
        started = started.model_copy(update={"starts_from": "policy", "milliseconds": None})
        name = f"ruin and recreate from {config.model.kind}"
        first = 0 if settings.starts_from == "policy" else 1
        solvers.insert(first, (name, lambda problem, seconds: plan_from(model, Asked(problem), started, seconds)))
    for seconds in budgets:
        for name, solve in solvers if settings.reference else solvers[:1]:
            label, asked = f"{name}, {1000 * seconds:.3g} ms", problems if not found else problems[:few]
            try:
                found.append(solve_each(label, asked, partial(_plan, solve, seconds), map_items))
            except validator.InvalidTourError as error:
                if name == solvers[0][0]:
                    raise
                print(f"{label}: left out, as it found no plan in time ({error})", file=sys.stderr)
    return found


def _plan(solve: Callable[[Problem, float], Plan | None], seconds: float, problem: Problem) -> Plan:
    try:
        return solve(problem, seconds) or Plan([], [])
    except ValueError as error:
        raise UserError(f"{problem.name}: {error}") from error


def solve_by_solvers(
    config: "Config", problems: Sequence[Problem], milliseconds: float, map_items: MapItems
) -> list[Solved]:
    """Return the tours of each configured solver that runs on this machine, for each time budget."""
    names, budgets = list(config.evaluation.reference), times(config.evaluation, milliseconds)
    if "hgs" in names and budgets and (reason := lacking()):
        print(f"{reason}: PyVRP is compared with, HGS is left out", file=sys.stderr)
        names.remove("hgs")
    return [solve_for(name, seconds, config, problems, map_items) for name in names for seconds in budgets]


def solve_for(name: str, seconds: float, config: "Config", problems: Sequence[Problem], map_items: MapItems) -> Solved:
    """Return the tours of the solver `name` after `seconds` of CPU time per problem."""
    solver = SOLVERS[name]
    label = f"{solver.label()}, {1000 * seconds:.3g} ms"
    solver.solve(TRIFLE, 1e-4, config.seed)  # imports and the like are not the method's time
    return solve_each(label, problems, lambda problem: solver.solve(problem, seconds, config.seed), map_items)


def _solve_batches(
    label: str,
    problems: Sequence[Problem],
    solve: Solve,
    device: torch.device,
    map_items: MapItems,
    rules: bool = False,
) -> Solved:
    """Return the tours of a method for batches of problems of one size, with their rules if it reads them."""

    def batch_of(chosen: Sequence[Problem]) -> dict[str, Tensor]:
        fields = to_instances(chosen, device, rules)._asdict()
        return {name: tensor for name, tensor in fields.items() if tensor is not None}

    by_size: dict[int, list[int]] = defaultdict(list)
    for i, problem in enumerate(problems):
        by_size[problem.customers].append(i)
    routes: list[Routes] = [[] for _ in problems]
    # Starting threads and the like is not the method's time.
    solve({**batch_of(problems[:1]), "item": torch.zeros(1, dtype=torch.long, device=device)})
    began, core = time.perf_counter(), 0.0
    for customers, members in by_size.items():
        source = Resident({**batch_of([problems[i] for i in members]), "item": torch.tensor(members)}, device)

        def timed(batch: Mapping[str, Tensor], steps: int = 2 * customers) -> Mapping[str, Tensor]:
            began = time.process_time()
            actions = padded(solve(batch).to(device), steps)
            share = (time.process_time() - began) / len(actions)
            return {"actions": actions, "core": torch.full((len(actions),), share, device=device)}

        found = map_items(source, timed, at_once(problems[members[0]]))
        core += float(found["core"].sum())
        for i, actions in zip(members, found["actions"], strict=True):
            routes[i] = routes_of(actions) if problems[i].plain else mended(problems[i], routes_of(actions))
    on = f"{device.type} x {torch.get_num_threads()}" if device.type == "cpu" else device.type
    return _validated(label, problems, routes, time.perf_counter() - began, core, on)


def solve_each(
    label: str, problems: Sequence[Problem], solve: Callable[[Problem], Routes | Plan], map_items: MapItems
) -> Solved:
    """Return the tours of a method for single problems, on one thread."""
    longest = 2 * max(problem.customers for problem in problems)

    def encode(batch: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        rows, core, vehicles = [], [], []
        for i in batch["item"].tolist():
            began = time.process_time()
            found = solve(problems[i])
            core.append(time.process_time() - began)
            routes, kinds = found if isinstance(found, Plan) else (found, [0] * len(found))
            vehicles.append(padded(torch.tensor(kinds, dtype=torch.long), longest))
            rows.append(actions_of(routes, longest))
        solved = {"actions": torch.stack(rows), "core": torch.tensor(core), "kinds": torch.stack(vehicles)}
        return {name: tensor.to(batch["item"].device) for name, tensor in solved.items()}

    began = time.perf_counter()
    numbers = Resident({"item": torch.arange(len(problems))}, torch.device("cpu"))
    found = map_items(numbers, encode, 1)
    seconds, core = time.perf_counter() - began, float(found["core"].sum())
    routes = [routes_of(row) for row in found["actions"]]
    kinds = [row[: len(each)].tolist() for row, each in zip(found["kinds"], routes, strict=True)]
    return _validated(label, problems, routes, seconds, core, "cpu x 1", kinds)


def _validated(
    method: str,
    problems: Sequence[Problem],
    routes: list[Routes],
    seconds: float,
    core_seconds: float,
    on: str,
    kinds: list[list[int]] | None = None,
) -> Solved:
    """Return tours with their costs; the independent validator raises InvalidTourError for a wrong one."""
    kinds = kinds or [[0] * len(each) for each in routes]
    for solution in zip(problems, routes, kinds, strict=True):
        validator.check(*solution)
    costs = np.array([cost_of(*solution) for solution in zip(problems, routes, kinds, strict=True)])
    return Solved(method, routes, costs, seconds, core_seconds, on)
