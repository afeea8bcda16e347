"""Instances for a trained policy to solve: `.vrp` and `.npz` files in, `.sol` files out."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from common.disk.files import write_text
from common.errors import UserError
from common.input_files import Given, Inputs, each_file
from common.plain import Plain
from models.routing.inputs import RoutingInput, RoutingSettings
from models.routing.problems import Problem, cost_of
from pipelines.workloads.cvrp.instances.files import READERS
from pipelines.workloads.cvrp.instances.files import read as read_instances
from pipelines.workloads.cvrp.instances.vrp_files import solution_text
from pipelines.workloads.cvrp.solvers.heuristics import savings
from pipelines.workloads.cvrp.solvers.pyvrp_search import pyvrp
from pipelines.workloads.cvrp.solvers.reference import sisrs

if TYPE_CHECKING:
    from models.routing.environment import Routes


def read(paths: Sequence[Path]) -> Iterator[Given]:
    """Yield the problems in instance files and in folders of them."""
    return each_file(paths, list(READERS), _problems)


def _problems(path: Path) -> Iterator[tuple[str, Mapping[str, object]]]:
    for problems in read_instances(path).values():
        for number, problem in enumerate(problems):
            yield str(path) if len(problems) == 1 else f"{path}:{number + 1}", as_input(problem, number)


def as_input(problem: Problem, item: int = 0) -> dict[str, object]:
    """Return a problem as an input of the models; raise UserError for one that inputs cannot describe."""
    faults = [f"distances of type {problem.metric} (EUC_2D can be used here)"] * (problem.metric != "EUC_2D")
    if faults := faults + ["a limit on routes (DISTANCE)"] * problem.limited:
        which = "savings model.kind=savings" if problem.limited else "cvrp-20"  # networks keep to no limit
        raise UserError(
            f"{problem.name}: {' and '.join(faults)}: solve the file by python pipelines/evaluate.py --workload cvrp "
            f"--name {which} evaluation.instances=FILE"
        )
    depot, *customers = problem.locs.tolist()
    return {
        "name": problem.name,
        "depot": depot,
        "customers": customers,
        "demands": problem.demand[1:].tolist(),
        "capacity": problem.capacity,
        "rounding": problem.rounding,
        "item": item,
    }


def beside(path: Path, answer: Mapping[str, Any], run: str) -> Path | None:
    """Write the routes for a `.vrp` file as NAME.RUN.sol; NAME.sol is its best known solution."""
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


INPUTS = Inputs(
    input=RoutingInput,
    settings=RoutingSettings,
    read=read,
    beside=beside,
    served={"customers": 200, "samples": 256, "local_search": 64, "ruin_rounds": 100_000},
    at_once=16,
    rivals=rivals,
)
