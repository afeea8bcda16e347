"""Instances for a trained policy to solve: tables of customers, `.vrp` and `.npz` files in, tours beside them out."""

import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from common.config import plain_yaml
from common.disk.files import write_text
from common.errors import UserError
from common.input_files import Given, Inputs, each_file
from common.plain import Plain
from models.routing.inputs import MOST_ASKED, RoutingInput, RoutingSettings, VehiclesInput, problem_of
from models.routing.problems import MAX_COORDINATE, MOST_CUSTOMERS, Plan, Problem, cost_of, distances
from pipelines.workloads.cvrp.instances.customers import TABLES, completed, read_table, write_routes
from pipelines.workloads.cvrp.instances.files import ENDINGS, of_ours
from pipelines.workloads.cvrp.instances.files import read as read_instances
from pipelines.workloads.cvrp.instances.vrp_files import read_routes, solution_text
from pipelines.workloads.cvrp.solvers.heuristics import savings
from pipelines.workloads.cvrp.solvers.pyvrp_search import pyvrp_plan


def read(paths: Sequence[Path]) -> Iterator[Given]:
    """Yield the problems in instance files and in folders of them."""
    for path in paths:
        names: dict[str, Mapping[str, str]] = {}
        for each in each_file([path], ENDINGS, partial(_inputs, names)):
            if not (path.is_dir() and of_ours(Path(each.source))):
                yield each._replace(names=names.get(each.source, {}))


def _inputs(names: dict[str, Mapping[str, str]], path: Path) -> Iterator[tuple[str, Mapping[str, object]]]:
    if path.suffix.lower() in TABLES:
        table = read_table(path)
        print(f"{path}: {table.found}", file=sys.stderr)
        names[str(path)] = table.customers_by_row()
        yield str(path), table.as_input()
        return
    for problems in read_instances(path).values():
        for number, problem in enumerate(problems):
            given = as_input(problem, number)
            if (start := path.with_suffix(".start.sol")).is_file():
                given["initial"] = read_routes(start)
            yield str(path) if len(problems) == 1 else f"{path}:{number + 1}", given


def as_input(problem: Problem, item: int = 0) -> dict[str, object]:
    """Return a problem as an input of the models."""
    (depot, *places), last = problem.locs.tolist(), problem.customers
    hours, *windows = [None] if problem.windows is None else problem.windows.clip(max=MAX_COORDINATE).tolist()
    measured = problem.metric not in ("EUC_2D", "EXPLICIT")  # by what inputs do not know
    matrix = distances(problem) if measured else problem.matrix

    def finite(most: float) -> float | None:
        return most if np.isfinite(most) else None

    found: dict[str, object] = {
        **{name: getattr(problem, name) for name in ("name", "capacity", "open_routes")},
        "depot": depot,
        "customers": places[:last],
        "demands": problem.demand[1 : last + 1].tolist(),
        "rounding": "exact" if measured else problem.rounding,
        "item": item,
        "depots": places[last:],
        "distances": None if matrix is None else matrix.tolist(),
        "durations": None if problem.durations is None else problem.durations.tolist(),
        "service_times": None if problem.services is None else problem.service_times[1 : last + 1].tolist(),
        "hours": hours,
        "windows": windows[:last] or None,
        "depot_hours": windows[last:],
        "vehicles": [
            dict(zip(VehiclesInput.model_fields, (*kind[:5], *map(finite, kind[5:])), strict=True))
            for kind in problem.fleet
        ],
        "prizes": None if problem.prizes is None else [*map(finite, problem.prizes[1 : last + 1].tolist())],
    }
    return {name: value for name, value in found.items() if value is not None}


def beside(path: Path, answer: Mapping[str, Any], run: str) -> None:
    """Write the routes for a table, or for a `.vrp` file as NAME.RUN.sol; NAME.sol is its best known solution."""
    if path.suffix.lower() in TABLES:
        print(f"tours: {' and '.join(map(str, write_routes(path, answer, run)))}", file=sys.stderr)
    elif path.suffix.lower() == ".vrp":
        write_text(path.with_suffix(f".{run}.sol"), solution_text(answer["routes"], answer["cost"]))


def rivals(given: RoutingInput, seconds: float) -> dict[str, dict[str, Plain]]:
    """Return the routes of savings and of solvers, within `seconds` of CPU time each, with their costs and times.

    Without native code there is no ruin and recreate; beyond MOST_CUSTOMERS, no PyVRP either.
    """
    from models.routing import fleet, native

    problem, found = problem_of(given), dict[str, dict[str, Plain]]()
    ways = dict[str, Callable[[], Plan | None]]()
    if problem.plain:
        ways["savings"] = lambda: Plan(savings(problem), [])
    if problem.customers <= MOST_CUSTOMERS:  # as the others hold all distances
        ways["PyVRP"] = lambda: pyvrp_plan(problem, seconds, 0)
        if problem.plain and not native.unavailable():
            ways["ruin and recreate"] = lambda: fleet.plan(problem, seconds=seconds)
    for name, solve in ways.items():
        began = time.perf_counter()
        if plan := solve():
            taken, cost = 1000 * (time.perf_counter() - began), cost_of(problem, *plan)
            depots = [problem.vehicles[kind].depot for kind in plan.kinds]  # none where a method names no vehicles
            found[name] = {"routes": plan.routes, "cost": cost, "depots": depots, "milliseconds": taken}
    return found


def timed(given: Sequence[RoutingInput], settings: RoutingSettings, seconds: float) -> RoutingSettings:
    """Return settings with equal times for problems that by default would together take over half of `seconds`.

    Raises UserError if the times asked for take all of `seconds` or more.
    """
    from models.routing.solve import default_milliseconds

    count, asked = len(given), settings.milliseconds
    if asked is None:
        whole, most = sum(default_milliseconds(problem_of(each)) for each in given), 500 * seconds
        return settings.model_copy(update={"milliseconds": most / count}) if whole > most else settings
    if count * asked >= 1000 * seconds:
        all_of_it = f"milliseconds is {asked:g}: for {count} inputs this is all the {seconds:g} s of an answer or more"
        raise UserError(f"{all_of_it}; give less than {1000 * seconds / count:g}, or fewer inputs at a time")
    return settings


# Customers up to which each shipped policy has, on average, the shortest tours of all by the default settings.
FITTING = {"cvrp-20": 27, "cvrp-50": 62, "cvrp-100": 140}


def shipped(given: Mapping[str, object]) -> str:
    """Return the name of the shipped policy for as many customers as an input has."""
    customers = given["customers"]
    assert isinstance(customers, Sequence)
    return next((name for name, most in FITTING.items() if len(customers) <= most), "cvrp-mixed")


def worse(run: Path) -> str:
    """Return why shipped policies answer in place of a run, if so: it learnt other problems, or evaluated worse."""
    judged, weights = run / "evaluations/test.json", run / "model/best/config.json"
    try:
        if (learnt := plain_yaml.parse((run / "config.yaml").read_bytes())["data"].get("problem", "cvrp")) != "cvrp":
            return f"learnt data.problem={learnt}"
        known = judged.is_file() and judged.stat().st_mtime >= weights.stat().st_mtime  # else of earlier weights
        low, high = (json.loads(judged.read_bytes()) if known else {}).get("shipped_saves") or (0, 0)
        return f"has tours that are {low:.2g} to {high:.2g} % longer than the shipped policies'" if low > 0 else ""
    except (OSError, ValueError, TypeError, AttributeError, LookupError):  # damaged: loading the run says so
        return ""


EXAMPLE = Path(__file__).with_name("customers.csv")

INPUTS = Inputs(
    input=RoutingInput,
    settings=RoutingSettings,
    read=read,
    completed=completed,
    shared=(
        *("capacity", "degrees", "rounding", "speed", "hours", "service_times", "num_vehicles"),
        *("max_length", "max_duration", "open_routes", "vehicles"),
    ),
    beside=beside,
    served={"customers": MOST_ASKED, "samples": 256, "milliseconds": 60_000},
    at_once=16,
    rivals=rivals,
    example=(str(EXAMPLE), "capacity=40"),
    shipped=shipped,
    worse=worse,
    timed=timed,
)
