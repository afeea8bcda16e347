"""Cost against time of a policy that comes with the project, beside other searches, in alternated rounds.

    python tests/peers/routing_front.py POLICY CUSTOMERS INSTANCES ROUNDS [METHOD ...]

A METHOD and its core-milliseconds an instance: policy:MS, mix:MS or savings:MS (starts of the search; policy:0 is no
search), local:MS (randomised savings + local search), then:MS (savings, then ruin and recreate), hgs:MS or
pyvrp:MS. A mix holds tours of the policy if there is time enough for them. All solve the first
instances of the standard test set on one thread, one after the other, ROUNDS times, so that a machine that slows down
slows them all. A gap is to the best known mean, or else to the best that any of them found. The last line is JSON: for
each method the gap in % and the core-milliseconds an instance, medians over rounds with least and most.
"""

import json
import sys
from pathlib import Path

import numpy as np

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from accelerate import Accelerator

from models import io, shipped
from models.routing.inputs import STARTS_FROM
from pipelines.engine.batches import mapper
from pipelines.workloads.cvrp.config import Config
from pipelines.workloads.cvrp.instances.generated import standard_test_set
from pipelines.workloads.cvrp.solvers.solving import Bench, Solved

METHODS = ("policy:0", "policy:0.6", "mix:0.6", "local:0.6", "then:0.6", "hgs:0.5")


def main(name: str, customers: int, instances: int, rounds: int, methods: list[str]) -> None:
    """Measure the methods and print a table and the line."""
    accelerator = Accelerator(cpu=True)
    common = {"data": {"customers": customers}, "hardware": {"threads": 1}}
    Config.model_validate(common).hardware.apply(accelerator.device, print)
    policy, map_items = io.load(shipped.FOLDER / name).eval(), mapper(accelerator)
    problems = standard_test_set(customers, instances)

    def solve(method: str) -> Solved:
        kind, _, budget = method.partition(":")
        if kind in STARTS_FROM:
            config = Config.model_validate({**common, "evaluation": {"starts_from": kind}})
            bench = Bench(config, problems, map_items)
            return bench.with_model(policy, accelerator.device, "multistart", False, float(budget))
        bench = Bench(Config.model_validate(common), problems, map_items)
        if kind in ("local", "then"):
            return bench.from_savings(float(budget), kind == "then")
        return bench.by_solver(kind, float(budget))

    found: dict[str, list[Solved]] = {method: [] for method in methods}
    for _ in range(rounds):
        for method, solved in found.items():
            solved.append(solve(method))
    best = np.array([np.nan if problem.best_known is None else problem.best_known for problem in problems])
    if np.isnan(best).any():
        best = np.min([solved.costs for each in found.values() for solved in each], 0)
    figures = {}
    for method, each in found.items():
        gaps = [100 * (solved.costs.mean() / best.mean() - 1) for solved in each]
        row = {"gap %": _spread(gaps), "core ms": _spread([solved.core_ms for solved in each])}
        figures[method] = row
        print(
            f"{method:14}",
            *(f"{key} {median:.3g} ({least:.3g} to {most:.3g})" for key, (median, least, most) in row.items()),
        )
    print(json.dumps(figures))


def _spread(values: list[float]) -> list[float]:
    """Return median, least and most."""
    return [round(float(value), 4) for value in (np.median(values), min(values), max(values))]


if __name__ == "__main__":
    if len(sys.argv) < 5:
        sys.exit(__doc__)
    main(sys.argv[1], *map(int, sys.argv[2:5]), sys.argv[5:] or list(METHODS))
