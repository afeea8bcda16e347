"""Where the policy pays, and several threads: ways to solve generated problems, each in the same time.

    python tests/peers/equal_time.py DISTRIBUTION CUSTOMERS INSTANCES MILLISECONDS WAY [WAY ...]
    python tests/peers/equal_time.py vrptw CUSTOMERS INSTANCES MILLISECONDS insertion policy=FOLDER free=FOLDER
    python tests/peers/equal_time.py acvrp CUSTOMERS INSTANCES MILLISECONDS insertion savings policy=FOLDER

A WAY is what the search begins with (savings, policy, mix, ...), or one of these with a number of threads, as in
savings:2; each thread has MILLISECONDS of CPU time for a problem. The policy is the one that ships for the size, and
seconds are wall time. The last line is JSON: for each way but the first, its mean excess over the first in %, and half
the width of its interval over the instances.

With the name of a problem such as vrptw in place of a distribution, uniform instances of it are solved by ruin and
recreate: from its own insertion, from tours that the policy in FOLDER builds in the same time, or from the best of as
many as there are customers, which take none of it (free), as if a faster decoder had built them. `alone` in place of
`free` are those tours themselves. With one-way roads `savings` begins with savings of the means of both directions,
for nothing.
"""

import json
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from common.statistics import mean_and_half_width
from models import io, shipped
from models.routing.environment import routes_of
from models.routing.fleet import plan
from models.routing.inputs import RoutingSettings, SearchSettings
from models.routing.problems import Plan, Problem, cost_of, to_instances
from models.routing.solve import Asked, best_tours, plan_from, start_of
from pipelines.workloads.cvrp.config import Data
from pipelines.workloads.cvrp.input_files import FITTING
from pipelines.workloads.cvrp.instances.distributions import CAPACITY, PROBLEMS
from pipelines.workloads.cvrp.instances.generated import generate, problems_of
from pipelines.workloads.cvrp.solvers.heuristics import savings
from pipelines.workloads.cvrp.solvers.validator import check


def drawn(distribution: str, customers: int, instances: int) -> list[Problem]:
    """Return generated problems, the same at every call."""
    if distribution in PROBLEMS:
        capacity = CAPACITY.get(customers, 50) if distribution == "acvrp" else 50
        data = Data(problem=distribution, customers=customers, capacity=capacity)
        return problems_of(generate(data, 20261124, torch.arange(instances)))
    capacity = {} if distribution == "x" else {"capacity": CAPACITY.get(customers, max(50, customers // 3))}
    data = Data.model_validate({"distribution": distribution, "customers": customers, **capacity})
    return problems_of(generate(data, 20261123, torch.arange(instances)))


def ruled(problems: list[Problem], milliseconds: float, ways: list[str]) -> dict[str, np.ndarray]:
    """Return the costs of problems with rules by each way."""
    torch.set_num_threads(1)
    policies = {way: io.load(way.partition("=")[2]).eval() for way in ways if "=" in way}
    costs = {way: np.zeros(len(problems)) for way in ways}
    for i, problem in enumerate(problems):
        for way in ways:
            asked, routes = Asked(problem, i), []
            if way.startswith(("free", "alone")):
                routes = start_of(policies[way], asked, RoutingSettings(milliseconds=0)) or []
            if way == "savings":
                routes = savings(replace(problem, matrix=(problem.matrix + problem.matrix.T) / 2))
            if way.startswith("policy"):
                found = plan_from(
                    policies[way], asked, RoutingSettings(starts_from="policy", milliseconds=milliseconds)
                )
            elif way.startswith("alone"):
                found = Plan(routes, [0] * len(routes))
            else:
                found = plan(problem, seconds=milliseconds / 1000, start=Plan(routes, [0] * len(routes)))
            check(problem, *found)
            costs[way][i] = cost_of(problem, *found)
    return costs


def shown(costs: dict[str, np.ndarray], seconds: dict[str, float]) -> None:
    """Print a table and the line."""
    figures, first = {}, next(iter(costs.values()))
    for way, each in costs.items():
        figures[way] = [round(float(x), 3) for x in mean_and_half_width(100 * (each / first - 1))]
        took = f"{seconds[way]:.1f} s" if way in seconds else ""
        print(f"{way:12} {each.mean():10.4f} {figures[way][0]:7.3f} ± {figures[way][1]:.3f} %  {took}")
    print(json.dumps(dict(list(figures.items())[1:])))


def main(distribution: str, customers: int, instances: int, milliseconds: float, ways: list[str]) -> None:
    """Solve by all ways and print what came of it."""
    if distribution in PROBLEMS:
        shown(ruled(drawn(distribution, customers, instances), milliseconds, ways), {})
        return
    torch.set_num_threads(1)
    name = next((name for name, most in FITTING.items() if customers <= most), "cvrp-mixed")
    policy = io.load(shipped.FOLDER / name).eval()
    problems = drawn(distribution, customers, instances)
    costs, seconds = {way: np.zeros(instances) for way in ways}, dict.fromkeys(ways, 0.0)
    for i, problem in enumerate(problems):
        for way in ways:  # in turns, so that a machine that slows down slows all
            source, _, crew = way.partition(":")
            torch.set_num_threads(int(crew or 1))
            begun, each = time.perf_counter(), [problem]
            settings = SearchSettings(milliseconds=milliseconds, starts_from=source)
            instance = to_instances(each, torch.device("cpu"))
            tours = best_tours(policy, each, instance, torch.tensor([i]), settings, 0, crew=int(crew or 1))
            seconds[way] += time.perf_counter() - begun
            costs[way][i] = cost_of(problem, routes_of(tours[0]))
    shown(costs, seconds)


if __name__ == "__main__":
    if len(sys.argv) < 7:
        sys.exit(__doc__)
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]), sys.argv[5:])
