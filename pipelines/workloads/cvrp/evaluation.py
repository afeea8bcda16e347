"""Evaluation on problems: the model beside the methods it has to beat."""

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from common.errors import UserError
from common.plain import Plain
from common.statistics import interval_around, mean_and_half_width
from models import io, shipped
from models.routing import native
from models.routing.policy import RoutingPolicy
from models.routing.problems import MOST_CUSTOMERS, Problem, unreadable
from models.routing.solve import BEYOND, check_work
from pipelines.engine.workload import Evaluation, MapItems
from pipelines.workloads.cvrp.config import Config
from pipelines.workloads.cvrp.input_files import shipped as fitting
from pipelines.workloads.cvrp.instances.distributions import CAPACITY
from pipelines.workloads.cvrp.instances.files import read
from pipelines.workloads.cvrp.instances.generated import problems_of, standard_test_set
from pipelines.workloads.cvrp.instances.vrp_files import solution_text
from pipelines.workloads.cvrp.prepare import load
from pipelines.workloads.cvrp.solvers.heuristics import HEURISTICS
from pipelines.workloads.cvrp.solvers.solving import Bench, Solved
from pipelines.workloads.cvrp.solvers.validator import InvalidTourError

MOST_SCORES = 1e10  # (step of a tour, node) pairs per problem; a network takes some minutes for them on a core


def evaluate(
    config: Config, models: Mapping[str, RoutingPolicy], folder: Path, device: torch.device, map_items: MapItems
) -> list[Evaluation]:
    """Return one Evaluation per file, or one of the test set."""
    model = next(iter(models.values()), None)  # none for a heuristic
    if reason := native.unavailable():
        print(f"without native code tours are built slowly, and there is no local search: {reason}", file=sys.stderr)
    found = splits(config, folder).items()
    return [_evaluate_split(name, Bench(config, problems, map_items), model, device) for name, problems in found]


def splits(config: Config, folder: Path) -> dict[str, list[Problem]]:
    """Return the problems to solve, by name of the evaluation; the standard test set for a standard distribution."""
    settings, data = config.evaluation, config.data
    if settings.instances != "test":
        words = {name: getattr(settings, name) for name in ("capacity", "speed", "service_times")}
        return read(Path(settings.instances), settings.rounding, **words)
    size = data.sizes[0]
    standard = data.problem == "cvrp" and data.distribution == "uniform" and data.customers in CAPACITY
    if standard and CAPACITY[size] == data.vehicle_capacity:
        return {"test": standard_test_set(size, data.test_instances)}
    return {"test": problems_of(load(folder, "test"), "test")}


def _evaluate_split(name: str, bench: Bench, model: RoutingPolicy | None, device: torch.device) -> Evaluation:
    """Return the Evaluation of one set of problems; its headline is the method configured."""
    config, problems, improved, saves = bench.config, bench.problems, None, None
    if not all(problem.plain for problem in problems):
        if config.evaluation.milliseconds is None:
            print(f"{name}: a millisecond per customer, of which answers take {BEYOND} by default", file=sys.stderr)
        reasons = (unreadable(problem, model.config) for problem in problems if model is not None)
        if (reason := next(filter(None, reasons), None)) or model is None:
            why = f", as it does not read {reason}" if model is not None else ""
            more = f"{name} is more than a plain CVRP"
            print(f"{more}: native ruin and recreate solves it, no network{why}", file=sys.stderr)
            model = None
        methods = bench.fleets(model)
        own: list[Solved] = []
        try:
            own = [bench.with_model(model, device, *way) for way in _ways(config) if model is not None]
        except InvalidTourError as error:
            print(f"{name}: the policy's own tours are left out, as not all are solutions ({error})", file=sys.stderr)
        return _evaluation(name, bench, [*own, *methods], [methods[0], *own][-1], methods[0])
    bench = _bounded(name, bench, model)
    settings = bench.config.evaluation
    built = {kind: bench.each(label, solve) for kind, (label, solve) in HEURISTICS.items()}
    largest = max(problem.customers for problem in problems)
    budget = float(largest if settings.milliseconds is None else settings.milliseconds)
    methods = [*built.values(), *bench.few().searches(budget)]
    headline = built.get(config.model.kind, built["savings"])  # a network's takes its place below
    if model is not None:
        methods += [bench.with_model(model, device, *way) for way in _ways(config)]
        headline = methods[-1]

        def fitting_to(customers: int) -> RoutingPolicy:
            policy = io.load(shipped.FOLDER / fitting({"customers": range(customers)}), device)
            assert isinstance(policy, RoutingPolicy)
            return policy

        theirs = bench.few().with_model(fitting_to, device, *_ways(config)[-1]).costs
        saves = interval_around(*mean_and_half_width(_longer(headline.costs, theirs)))
        if budget and not native.unavailable():
            methods += [improved := bench.with_model(model, device, settings.decode, False, budget)]
    found = _evaluation(name, bench, methods + bench.few().by_solvers(budget), headline, improved)
    return replace(found, summary={**found.summary, "shipped_saves": saves})


def _evaluation(
    name: str, bench: Bench, methods: list[Solved], headline: Solved, improved: Solved | None = None
) -> Evaluation:
    """Return the Evaluation of `methods`; `headline` and, with a search, `improved` are the model's."""
    problems, last = bench.problems, improved or headline
    known = [problem.best_known for problem in bench.few().problems]  # of the standard set, or from .sol files
    reference = Reference("best known", np.array(known))
    if None in known:
        reference = Reference("best found", np.min([method.costs[: len(known)] for method in methods], 0))
    row, (mean, half) = _row(headline, reference), mean_and_half_width(headline.costs)
    return Evaluation(
        split=name,
        summary={
            "cost": mean,
            "cost_interval": interval_around(mean, half),
            "cost_search": None if improved is None else float(improved.costs.mean()),
            "gap": row["gap %"],
            "gap_interval": row["gap 95 %"],
            "gap_to": reference.name,
            "gap_instances": len(reference.costs),
            "n": len(problems),
            "seconds": headline.seconds,
            "core_ms": headline.core_ms,
            "instances_per_s": len(problems) / headline.seconds,
            "decode": headline.method,
            "native_code": native.unavailable() or "yes",
            "customers": sorted({problem.customers for problem in problems}),
            "last": last.method,
        },
        table=comparison_table(methods, last, reference),
        examples={  # the file with one line per instance
            "instance": [problem.name for problem in problems],
            "customers": [problem.customers for problem in problems],
            "cost": headline.costs.tolist(),
            "reference": reference.costs.tolist() + [None] * (len(problems) - len(reference.costs)),
            "routes": [" | ".join(" ".join(map(str, route)) for route in plan.routes) for plan in headline.plans],
        },
        files=_files(name, problems, last, reference),
    )


def _bounded(name: str, bench: Bench, model: RoutingPolicy | None) -> Bench:
    """Return the bench without methods that hold all distances, if customers are too many; UserError for a network."""
    settings, sizes = bench.config.evaluation, {problem.customers for problem in bench.problems}
    if (largest := max(sizes)) <= MOST_CUSTOMERS:
        for customers in sizes if model is not None else ():
            check_work(customers, settings.model_copy(update={"milliseconds": 0}), MOST_SCORES)
        return bench
    why = f"{name} has {largest:,} customers; more than {MOST_CUSTOMERS:,} are too many for"
    if model is not None:
        words = "--workload cvrp --name savings model.kind=savings evaluation.instances=..."
        raise UserError(f"{why} networks, which compare all pairs; solve it with: python pipelines/evaluate.py {words}")
    print(f"{why} HGS and PyVRP: left out", file=sys.stderr)
    settings = settings.model_copy(update={"reference_seconds": ()})
    return replace(bench, config=bench.config.model_copy(update={"evaluation": settings}))


def _ways(config: Config) -> list[tuple[str, bool]]:
    """Return (decode, augment) of the policy alone, from cheap to expensive; the configured decoding comes last."""
    asked = (config.evaluation.decode, config.evaluation.augment)
    return [way for way in (("greedy", False), ("multistart", False)) if way != asked] + [asked]


class Reference(NamedTuple):
    """Costs of the first problems, from which gaps are measured."""

    name: str
    costs: np.ndarray  # (F,)


def comparison_table(methods: Sequence[Solved], last: Solved, reference: Reference) -> list[dict[str, Plain]]:
    """Return a row for each method; those beaten in both gap and time are not on the front.

    Every other method is compared, instance by instance, with `last`, the model's last way.
    """
    rows = [_row(method, reference) for method in methods]
    points = [(_longer(method.costs, reference.costs).mean(), method.core_ms) for method in methods]
    for row, method, (gap, time) in zip(rows, methods, points, strict=True):
        row["front"] = "" if any(g <= gap and t <= time and (g, t) != (gap, time) for g, t in points) else "yes"
        if method is not last:
            # On the instances solved by both: an interval above 0 says that the tours of `last` are shorter.
            more = _longer(method.costs, last.costs)
            row["model saves %, 95 %"] = interval_around(*mean_and_half_width(more))
            row["on % of instances"] = float(100 * (more > 0).mean())
    return rows


def _row(solved: Solved, reference: Reference) -> dict[str, Plain]:
    mean, half = mean_and_half_width(solved.costs)
    gap, width = mean_and_half_width(_longer(solved.costs, reference.costs))
    cost: dict[str, Plain] = {"method": solved.method, "cost": mean, "± 95 %": half, "n": len(solved.costs)}
    gaps = {"gap %": gap, "gap 95 %": interval_around(gap, width)}
    per_s = len(solved.costs) / solved.seconds
    return {**cost, **gaps, "core ms": solved.core_ms, "instances/s": per_s, "on": solved.on}


def _longer(costs: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Return the excess of costs over others in percent, instance by instance, so that their difficulty cancels.

    It is 0 for equal costs, and 100 where others are 0. Rounded, since sums in another order differ in last digits.
    """
    few = min(len(costs), len(others))
    more, whole = costs[:few] - others[:few], np.where(others[:few], others[:few], costs[:few])
    shares: np.ndarray = np.divide(more, whole, out=np.zeros(few), where=more != 0)
    return (100 * shares).round(6)


def _files(name: str, problems: Sequence[Problem], solved: Solved, reference: Reference) -> dict[str, str]:
    """Return the tours drawn by the report and, for a .vrp file, its solution in CVRPLIB's format."""
    order = np.argsort(_longer(solved.costs, reference.costs))
    picks = {"best": order[0], "median": order[len(order) // 2], "worst": order[-1]} if len(order) > 1 else {"only": 0}
    drawings = [
        {"which": which, "name": problem.name, "locs": problem.locs.tolist(), "routes": routes}
        | {"ends": [problem.depot_nodes[problem.vehicles[kind].depot] for kind in kinds]}
        | {"open_routes": problem.open_routes, "cost": float(solved.costs[i]), "reference": float(reference.costs[i])}
        for which, i in picks.items()
        for problem, (routes, kinds) in [(problems[i], solved.plans[i])]
    ]
    files = {f"{name}.tours.jsonl": "".join(json.dumps(drawing) + "\n" for drawing in drawings)}
    if problems[0].name == name:  # from a .vrp file, which holds one problem
        files[f"{name}.sol"] = solution_text(solved.plans[0].routes, solved.costs[0])
    return files
