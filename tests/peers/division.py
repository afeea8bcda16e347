"""How the time for a problem is best divided, for the table DIVISIONS of models/routing/solve.py.

    python tests/peers/division.py CUSTOMERS INSTANCES MILLISECONDS

The first standard instances of 10, 20, 50 or 100 customers, or generated ones of another size as in the set X, are
solved on one thread, in the same time by each way: start tours of savings or of all kinds, the local search of the best
of each group, and the share of the time after which ruin and recreate begins.
The last line is JSON: the mean cost of each way, and its mean excess over the best on each instance in %.
"""

import itertools
import json
import sys
from pathlib import Path

import numpy as np
import torch

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from models.routing import native, solve
from models.routing.environment import routes_of
from models.routing.problems import cost_of
from pipelines.workloads.cvrp.instances.distributions import CAPACITY
from pipelines.workloads.cvrp.instances.generated import standard_test_set
from tests.peers.equal_time import drawn

SHARES, GROUPS = (0.1, 0.2, 0.35, 0.6, 1.0), (1, 4)


def main(customers: int, instances: int, milliseconds: float) -> None:
    """Measure the ways and print a table and the line."""
    torch.set_num_threads(1)
    problems = standard_test_set(customers, instances) if customers in CAPACITY else drawn("x", customers, instances)
    costs = {}
    for kinds, group, share in itertools.product((("savings",), tuple(native.KINDS)), GROUPS, SHARES):
        solve.DIVISIONS = (solve.Division(customers, kinds, group, share, 0),)
        tours = solve.searched(problems, torch.arange(instances), 0, milliseconds / 1000)
        lengths = [cost_of(problem, routes_of(tour)) for problem, tour in zip(problems, tours, strict=True)]
        costs[f"{'+'.join(kinds)} {group} {share}"] = np.array(lengths)
    best = np.min(list(costs.values()), 0)
    figures = {
        way: [round(float(each.mean()), 4), round(float(100 * (each / best - 1).mean()), 3)]
        for way, each in costs.items()
    }
    for way, (cost, above) in sorted(figures.items(), key=lambda item: item[1][1]):
        print(f"{way:36} {cost:9.4f} {above:6.3f} %")
    print(json.dumps(figures))


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    main(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]))
