"""Best known costs of the first instances of the standard test sets, against which gaps are measured.

python tests/peers/best_known.py CUSTOMERS INSTANCES    # writes pipelines/workloads/cvrp/instances/best_known/

Each is the least cost found by several runs of HGS. Their means agree with published ones: 6.1299 and 6.1599 for the
first 100 and 1,000 instances of 20 customers, 10.508 for the first 200 of 50. Our own are 10.5226 for the first 100
of 50 and 15.4344 for the first 40 of 100. Over all 10,000 instances HGS reaches 10.366 and 15.563 with 50 and 100
customers (Kwon et al. 2020; Luo et al. 2023).
"""

import json
import sys
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from functools import partial
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[2])

import numpy as np

from common.workers import in_order
from models.routing.problems import cost_of
from pipelines.workloads.cvrp.instances.distributions import CAPACITY
from pipelines.workloads.cvrp.instances.generated import BEST_KNOWN, standard_test_set
from pipelines.workloads.cvrp.solvers.reference import hgs
from pipelines.workloads.cvrp.solvers.validator import check

ITERATIONS, SEEDS = 500, (1, 2)


def _solved(customers: int, num: int, index: int) -> float:
    problem = standard_test_set(customers, num)[index]
    tours = [hgs(problem, iterations=ITERATIONS, seed=seed, sizes=(25, 40)) for seed in SEEDS]
    for routes in tours:
        check(problem, routes)
    return min(cost_of(problem, routes) for routes in tours)


if __name__ == "__main__":
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("customers", type=int, choices=tuple(CAPACITY), help="of each instance")
    parser.add_argument("instances", type=int, help="how many, from the first")
    customers, num = vars(parser.parse_args()).values()
    found = list(in_order(partial(_solved, customers, num), range(num), "instances"))
    BEST_KNOWN.mkdir(exist_ok=True)
    (BEST_KNOWN / f"{customers}.json").write_text(json.dumps([round(cost, 9) for cost in found]) + "\n")
    print(f"mean of {num}: {np.mean(found):.4f}")
