"""The rows of an evaluation: many problems solved by one method, spread over the processes, timed and validated."""

import sys
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch
from torch import Tensor

from common.errors import as_user_error
from models.routing import native
from models.routing.config import RoutingConfig
from models.routing.environment import Instances, Routes, actions_of, padded, routes_of
from models.routing.fleet import plan
from models.routing.inputs import RoutingSettings, SearchSettings
from models.routing.policy import RoutingPolicy
from models.routing.problems import Plan, Problem, cost_of, to_instances
from models.routing.solve import Asked, at_once, best_tours, mended, plan_from, searched, takes_policy
from pipelines.engine.batches import Resident
from pipelines.engine.workload import MapItems
from pipelines.workloads.cvrp.config import Config
from pipelines.workloads.cvrp.solvers import validator
from pipelines.workloads.cvrp.solvers.pyvrp_search import pyvrp_label, pyvrp_plan
from pipelines.workloads.cvrp.solvers.reference import SOLVERS, lacking

TRIFLE = Problem("trifle", np.array([[0, 0], [0, 1], [1, 0], [1, 1]], np.float64), np.array([0, 1, 1, 1]), 2, "exact")
CPU = torch.device("cpu")
Policy = RoutingPolicy | Callable[[int], RoutingPolicy]  # perhaps another for each number of customers
Solve = Callable[[list[Problem], Mapping[str, Tensor]], Tensor]  # problems, as a batch of instances -> actions (B, T)


@dataclass(frozen=True)
class Solved:
    """One method's tours of the problems."""

    method: str
    plans: list[Plan]
    costs: np.ndarray  # (K,) in the problems' own metric
    seconds: float  # of wall time
    core_ms: float  # of CPU time per instance, of all threads and processes together
    on: str  # device and threads


@dataclass(frozen=True)
class Bench:
    """Problems to solve by one method after another, as the config says, spread over the processes by `map_items`."""

    config: Config
    problems: Sequence[Problem]
    map_items: MapItems

    def few(self) -> "Bench":
        """Return the bench of the first problems, the only ones that other solvers solve."""
        return replace(self, problems=self.problems[: self.config.evaluation.reference_instances])

    def times(self, milliseconds: float) -> Sequence[float]:
        """Return the solvers' budgets in milliseconds: the configured ones, else the model's search's."""
        asked = self.config.evaluation.reference_seconds
        return (milliseconds,) if asked is None else [round(1000 * seconds, 6) for seconds in asked]

    def with_model(
        self, model: Policy, device: torch.device, decode: str, augment: bool, milliseconds: float = 0
    ) -> Solved:
        """Return the model's tours, or those found from them in `milliseconds`."""
        asked, seed = self.config.evaluation, self.config.seed
        way: dict[str, object] = {"decode": decode, "augment": augment, "milliseconds": milliseconds}
        if decode != "multistart" or (milliseconds and asked.starts_from == "mix"):  # these choose their starts
            way["starts"] = None
        settings, kind = asked.model_copy(update=way), self.config.model.kind
        tours = f"{decode}({settings.samples})" if decode == "sampling" else decode
        label = f"{kind}, {tours}" + (" x 8 symmetries" if augment else "")
        if milliseconds:
            most = max(each.customers for each in self.problems)
            taken = takes_policy(most, milliseconds, settings.starts_from, settings.starts)
            sources = [kind] * taken + [settings.starts_from] * (settings.starts_from != "policy")
            label = f"search from {' and '.join(sources)}, {milliseconds:.3g} ms"

        def solve(chosen: list[Problem], batch: Mapping[str, Tensor]) -> Tensor:
            policy = model if isinstance(model, RoutingPolicy) else model(chosen[0].customers)
            return best_tours(policy, chosen, Instances.of(batch), batch["item"], settings, seed)

        return self._batches(label, solve, device, model.config if isinstance(model, RoutingPolicy) else None)

    def from_savings(self, milliseconds: float, ruin: bool) -> Solved:
        """Return tours of a local search from randomised savings, or of ruin and recreate after it."""
        label = "savings, then ruin and recreate" if ruin else "randomised savings + local search"
        share, seconds = None if ruin else 1.0, milliseconds / 1000

        def solve(chosen: list[Problem], batch: Mapping[str, Tensor]) -> Tensor:
            return searched(chosen, batch["item"], self.config.seed, seconds, "savings", share=share)

        return self._batches(f"{label}, {milliseconds:.3g} ms", solve, CPU)

    def searches(self, milliseconds: float) -> list[Solved]:
        """Return tours of our own searches from savings, in each budget of the solvers and in that of the model."""
        if not milliseconds or native.unavailable():
            return []
        budgets = sorted({*self.times(milliseconds), milliseconds})
        return [self.from_savings(budget, ruin) for ruin in (False, True) for budget in budgets]

    def fleets(self, model: RoutingPolicy | None) -> list[Solved]:
        """Return plans for problems beyond the plain CVRP: our own, and others for the first problems in equal times.

        A `model` that reads these builds starts: of our own method if `starts_from` is policy, else in a further row.
        """
        settings, seed, found = self.config.evaluation, self.config.seed, list[Solved]()
        own = settings.milliseconds or max(problem.customers for problem in self.problems)
        solvers: list[tuple[str, Callable[[float, Problem], Plan | None]]] = [
            ("ruin and recreate", lambda seconds, problem: plan(problem, seconds=seconds, seed=seed)),
            (pyvrp_label(), lambda seconds, problem: pyvrp_plan(problem, seconds, seed)),
        ]
        if model is not None:
            started = RoutingSettings(**settings.model_dump(include=set(SearchSettings.model_fields)), seed=seed)

            def from_policy(seconds: float, problem: Problem) -> Plan:
                asked = started.model_copy(update={"starts_from": "policy", "milliseconds": 1000 * seconds})
                return plan_from(model, Asked(problem), asked)

            first = 0 if settings.starts_from == "policy" else 1
            solvers.insert(first, (f"ruin and recreate from {self.config.model.kind}", from_policy))
        pyvrp_plan(TRIFLE, 1e-4, seed)  # imports and the like are not the method's time
        for milliseconds in dict.fromkeys([own, *self.times(own)]):
            for name, solve in solvers if settings.reference else solvers[:1]:
                label, bench = f"{name}, {milliseconds:.3g} ms", self.few() if found else self
                try:
                    found.append(bench.each(label, partial(solve, milliseconds / 1000)))
                except validator.InvalidTourError as error:
                    if name == solvers[0][0]:
                        raise
                    print(f"{label}: left out, as it found no plan in time ({error})", file=sys.stderr)
        return found

    def by_solvers(self, milliseconds: float) -> list[Solved]:
        """Return tours of each configured solver that runs on this machine, for each time budget."""
        names, budgets = list(self.config.evaluation.reference), self.times(milliseconds)
        if "hgs" in names and budgets and (reason := lacking()):
            print(f"{reason}: PyVRP is compared with, HGS is left out", file=sys.stderr)
            names.remove("hgs")
        return [self.by_solver(name, budget) for name in names for budget in budgets]

    def by_solver(self, name: str, budget: float) -> Solved:
        """Return the tours of the solver `name` after `budget` milliseconds of CPU time per problem."""
        (called, solve), seed = SOLVERS[name], self.config.seed
        solve(TRIFLE, 1e-4, seed)  # imports and the like are not the method's time
        return self.each(f"{called()}, {budget:.3g} ms", lambda problem: solve(problem, budget / 1000, seed))

    def _batches(self, label: str, solve: Solve, device: torch.device, reads: RoutingConfig | None = None) -> Solved:
        """Return the tours of a method for batches of problems of one size, with what a policy `reads`."""

        def batch_of(numbers: Sequence[int]) -> dict[str, Tensor]:
            instances = to_instances([self.problems[i] for i in numbers], device, reads)
            return {**instances.fields(), "item": torch.tensor(numbers, device=device)}

        by_size: dict[int, list[int]] = defaultdict(list)
        for i, problem in enumerate(self.problems):
            by_size[problem.customers].append(i)
        plans = [Plan([], [])] * len(self.problems)
        solve([self.problems[0]], batch_of([0]))  # starting threads and the like is not the method's time
        began, core = time.perf_counter(), 0.0
        for customers, members in by_size.items():

            def timed(batch: Mapping[str, Tensor], steps: int = 2 * customers) -> Mapping[str, Tensor]:
                began = time.process_time()
                actions = padded(solve([self.problems[i] for i in batch["item"].tolist()], batch).to(device), steps)
                share = (time.process_time() - began) / len(actions)
                return {"actions": actions, "core": torch.full((len(actions),), share, device=device)}

            found = self.map_items(Resident(batch_of(members), device), timed, at_once(self.problems[members[0]]))
            core += float(found["core"].sum())
            for i, actions in zip(members, found["actions"], strict=True):
                routes, problem = routes_of(actions), self.problems[i]
                plans[i] = _plan(routes if problem.plain else mended(problem, routes))
        on = f"{device.type} x {torch.get_num_threads()}" if device.type == "cpu" else device.type
        return self._validated(label, plans, time.perf_counter() - began, core, on)

    def each(self, label: str, solve: Callable[[Problem], Routes | Plan | None]) -> Solved:
        """Return the tours of a method for single problems, on one thread."""
        longest = 2 * max(problem.customers for problem in self.problems)

        def encode(batch: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
            (i,), began = batch["item"].tolist(), time.process_time()
            with as_user_error(f"{self.problems[i].name}: "):
                found = solve(self.problems[i])
            core = torch.tensor([time.process_time() - began])
            routes, kinds = _plan(found)
            rows = actions_of(routes, longest), padded(torch.tensor(kinds, dtype=torch.long), longest)
            solved = {"plan": torch.stack(rows)[None], "core": core}
            return {name: tensor.to(batch["item"].device) for name, tensor in solved.items()}

        began = time.perf_counter()
        found = self.map_items(Resident({"item": torch.arange(len(self.problems))}, CPU), encode, 1)
        seconds, core = time.perf_counter() - began, float(found["core"].sum())
        routes = [routes_of(actions) for actions in found["plan"][:, 0]]
        kinds = [row[: len(own)].tolist() for row, own in zip(found["plan"][:, 1], routes, strict=True)]
        return self._validated(label, list(map(Plan, routes, kinds)), seconds, core, "cpu x 1")

    def _validated(self, method: str, plans: list[Plan], seconds: float, core_seconds: float, on: str) -> Solved:
        """Return plans with their costs; the independent validator raises InvalidTourError for a wrong one."""
        for problem, found in zip(self.problems, plans, strict=True):
            validator.check(problem, *found)
        costs = np.array([cost_of(problem, *found) for problem, found in zip(self.problems, plans, strict=True)])
        return Solved(method, plans, costs, seconds, 1000 * core_seconds / len(plans), on)


def _plan(found: Routes | Plan | None) -> Plan:
    """Return routes as a plan of vehicles of the first kind; an empty plan for None."""
    return found if isinstance(found, Plan) else Plan(found or [], [0] * len(found or []))
