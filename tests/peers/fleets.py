"""Compare native ruin and recreate with PyVRP in equal CPU time: on files with time windows, and on one-way roads.

python tests/peers/fleets.py FOLDER 10     # every file of the folder, ten seconds of one thread each
python tests/peers/fleets.py FOLDER 4 2    # two threads, of four seconds each, beside one thread in place of PyVRP
python tests/peers/fleets.py one-way 0.25  # ten random instances of 100 customers
"""

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[2])

import numpy as np

from common.statistics import mean_and_half_width
from models.routing.fleet import plan
from models.routing.problems import Problem, cost_of
from pipelines.workloads.cvrp.instances.files import read
from pipelines.workloads.cvrp.solvers.pyvrp_search import pyvrp_plan
from pipelines.workloads.cvrp.solvers.validator import check

CUSTOMERS, CAPACITY = 100, 50


def one_way(number: int) -> Problem:
    """Return a problem whose roads are up to 1.6 times as long as straight lines, differently there and back."""
    random = np.random.default_rng([CUSTOMERS, number])
    places = random.random((CUSTOMERS + 1, 2))
    roads = np.hypot(*(places[:, None] - places[None]).transpose(2, 0, 1)) * (
        1 + 0.6 * random.random((CUSTOMERS + 1,) * 2)
    )
    np.fill_diagonal(roads, 0)
    for over in range(CUSTOMERS + 1):
        roads = np.minimum(roads, roads[:, over : over + 1] + roads[over : over + 1])
    demand = random.integers(1, 10, CUSTOMERS + 1)
    demand[0] = 0
    return Problem(f"one-way-{number}", places, demand, CAPACITY, "exact", metric="EXPLICIT", matrix=roads)


def main(what: str, seconds: str, threads: str = "1") -> None:
    """Print a line for each problem, and the mean difference."""
    if what == "one-way":
        problems = [one_way(number) for number in range(10)]
    else:
        problems = [problem for found in read(Path(what)).values() for problem in found]
    pyvrp_plan(problems[0], 0.0, 0)  # imports are not in the time
    costs, crew, other = [], int(threads), "PyVRP" if threads == "1" else "one thread"
    for problem in problems:
        found = [plan(problem, seconds=float(seconds), seed=1, crew=each) for each in sorted({crew, 1}, reverse=True)]
        found += [pyvrp_plan(problem, float(seconds), 1)] if crew == 1 else []
        for each in found:
            check(problem, *each)
        costs.append([cost_of(problem, *each) for each in found])
        known = "" if problem.best_known is None else f", best known {problem.best_known:g}"
        print(f"{problem.name}: ruin and recreate {costs[-1][0]:g}, {other} {costs[-1][1]:g}{known}", flush=True)
    ours, theirs = np.array(costs).T
    mean, half = mean_and_half_width(100 * (ours / theirs - 1))
    print(f"mean cost {ours.mean():.6g}, {other} {theirs.mean():.6g}; ours is longer by {mean:.2f} ± {half:.2f} %")
    if all(problem.best_known for problem in problems):
        known = np.array([problem.best_known for problem in problems])
        gaps = [100 * float((each / known - 1).mean()) for each in (ours, theirs)]
        print(f"gap to the best known: {gaps[0]:.2f} %, {other} {gaps[1]:.2f} %")


if __name__ == "__main__":
    main(*sys.argv[1:])
