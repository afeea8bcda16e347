"""Instances for a trained policy to solve: tables of customers, `.vrp` and `.npz` files in, tours beside them out."""

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from common.disk.files import write_text
from common.errors import UserError
from common.input_files import Given, Inputs, each_file
from common.plain import Plain
from models.routing.inputs import MOST_ASKED, RoutingInput, RoutingSettings
from models.routing.problems import MOST_CAPACITY, Problem, cost_of, distances
from pipelines.workloads.cvrp.instances.customers import read_table, whole_numbers, write_routes
from pipelines.workloads.cvrp.instances.files import ENDINGS, of_ours
from pipelines.workloads.cvrp.instances.files import read as read_instances
from pipelines.workloads.cvrp.instances.tables import TABLES
from pipelines.workloads.cvrp.instances.vrp_files import read_routes, solution_text
from pipelines.workloads.cvrp.solvers.heuristics import savings
from pipelines.workloads.cvrp.solvers.pyvrp_search import pyvrp
from pipelines.workloads.cvrp.solvers.reference import sisrs

if TYPE_CHECKING:
    from models.routing.environment import Routes


def read(paths: Sequence[Path]) -> Iterator[Given]:
    """Yield the problems in instance files and in folders of them."""
    for path in paths:
        found = each_file([path], ENDINGS, _inputs)
        yield from (each for each in found if not (path.is_dir() and of_ours(Path(each.source))))


def _inputs(path: Path) -> Iterator[tuple[str, Mapping[str, object]]]:
    if path.suffix.lower() in TABLES:
        table = read_table(path)
        print(f"{path}: {table.found}", file=sys.stderr)
        yield str(path), table.as_input()
        return
    for problems in read_instances(path).values():
        for number, problem in enumerate(problems):
            given = as_input(problem, number)
            if (start := path.with_suffix(".start.sol")).is_file():
                given["initial"] = read_routes(start)
            yield str(path) if len(problems) == 1 else f"{path}:{number + 1}", given


def as_input(problem: Problem, item: int = 0) -> dict[str, object]:
    """Return a problem as an input of the models; raise UserError for one that inputs cannot describe."""
    if problem.limited:
        raise UserError(
            f"{problem.name}: a limit on routes (DISTANCE): solve the file by python pipelines/evaluate.py --workload "
            "cvrp --name savings model.kind=savings evaluation.instances=FILE"  # networks keep to no limit
        )
    depot, *customers = problem.locs.tolist()
    plain = problem.metric == "EUC_2D" and problem.matrix is None
    return {
        "name": problem.name,
        "depot": depot,
        "customers": customers,
        "demands": problem.demand[1:].tolist(),
        "capacity": problem.capacity,
        **({"rounding": problem.rounding} if plain else {"distances": distances(problem).tolist()}),
        "item": item,
    }


def completed(given: Mapping[str, object]) -> Mapping[str, object]:
    """Return an input with demands and capacity in whole numbers; raise UserError if it has no capacity."""
    demands, capacity = given.get("demands"), given.get("capacity")
    if capacity is None and demands:
        raise UserError("there is no capacity; give what a vehicle carries as capacity=100 or the like, or in a column")
    given_amounts = [*demands, capacity] if isinstance(demands, list | tuple) else []
    amounts = [each for each in given_amounts if isinstance(each, int | float) and 0 <= each <= MOST_CAPACITY]
    if len(amounts) < len(given_amounts) or not amounts or any(isinstance(each, bool) for each in amounts):
        return given  # the fields say what is wrong
    *whole, most = whole_numbers(amounts)
    if most != amounts[-1] and max(whole) > most:
        who, large = f"customer {whole.index(max(whole)) + 1}", max(amounts)
        raise UserError(f"{who} asks for {large:g}, more than the capacity of {capacity}; split the customer")
    return {**given, "demands": whole, "capacity": most}


def beside(path: Path, answer: Mapping[str, Any], run: str) -> Path | None:
    """Write the routes for a table, or for a `.vrp` file as NAME.RUN.sol; NAME.sol is its best known solution."""
    if path.suffix.lower() in TABLES:
        tours = write_routes(path, answer["routes"], run)
        print(f"tours: {' and '.join(map(str, tours))}", file=sys.stderr)
        return tours[0]
    if path.suffix.lower() != ".vrp":
        return None
    written = path.with_suffix(f".{run}.sol")
    write_text(written, solution_text(answer["routes"], answer["cost"]))
    return written


def rivals(given: RoutingInput, seconds: float) -> dict[str, dict[str, Plain]]:
    """Return the routes of savings and of solvers, within `seconds` of CPU time each, with their costs and times.

    Without native code there is no ruin and recreate.
    """
    from models.routing import native
    from models.routing.solve import problem_of

    problem = problem_of(given)
    found: dict[str, dict[str, Plain]] = {}
    ways: dict[str, Callable[[Problem], Routes]] = {
        "savings": savings,
        "PyVRP": lambda problem: pyvrp(problem, seconds, 0),
    }
    if not native.unavailable():
        ways["ruin and recreate"] = lambda problem: sisrs(problem, seconds=seconds)
    for name, solve in ways.items():
        began = time.perf_counter()
        routes = solve(problem)
        taken = 1000 * (time.perf_counter() - began)
        found[name] = {"routes": routes, "cost": cost_of(problem, routes), "milliseconds": taken}
    return found


# Customers up to which each shipped policy has, on average, the shortest tours of all by the default settings.
FITTING = {"cvrp-20": 27, "cvrp-50": 62, "cvrp-100": 140}


def shipped(given: Mapping[str, object]) -> str:
    """Return the name of the shipped policy for as many customers as an input has."""
    customers = given["customers"]
    assert isinstance(customers, Sequence)
    return next((name for name, most in FITTING.items() if len(customers) <= most), "cvrp-mixed")


EXAMPLE = Path(__file__).with_name("customers.csv")

INPUTS = Inputs(
    input=RoutingInput,
    settings=RoutingSettings,
    read=read,
    completed=completed,
    shared=("capacity", "degrees", "rounding"),
    beside=beside,
    served={"customers": MOST_ASKED, "samples": 256, "milliseconds": 60_000},
    at_once=16,
    rivals=rivals,
    example=(str(EXAMPLE), "capacity=40"),
    shipped=shipped,
)
