"""The standard test sets of uniform instances, drawn again from their published seed."""

import functools
import json
from itertools import zip_longest
from pathlib import Path

import numpy as np

from models.routing.problems import Problem
from pipelines.workloads.cvrp.instances.distributions import CAPACITY

SIZE = 10_000
SEED = 1234
BEST_KNOWN = Path(__file__).with_name("best_known")  # written by tests/peers/best_known.py


@functools.lru_cache(maxsize=4)
def standard_test_set(customers: int, num: int) -> list[Problem]:
    """Return the first `num` of the 10,000 instances of Kool et al. 2019 (Attention, Learn to Solve Routing Problems!).

    Most published figures are measured on them. They equal those of `vrp<customers>_test_seed1234.pkl`, drawn again
    instead of downloaded: coordinates uniform in the unit square, demands uniform in 1..9, exact metric. `customers` is
    a key of CAPACITY.
    """
    # These are the published instances only if all 10,000 are drawn, in this order, before they are cut.
    random = np.random.RandomState(SEED)
    depot = random.uniform(size=(SIZE, 2))
    locs = random.uniform(size=(SIZE, customers, 2))
    demand = random.randint(1, 10, (SIZE, customers))
    path = BEST_KNOWN / f"{customers}.json"
    known = json.loads(path.read_text())[:num] if path.is_file() else []
    return [
        Problem(
            f"vrp{customers}_test_seed{SEED}-{index:04d}",
            np.concatenate([depot[index : index + 1], locs[index]]),
            np.pad(demand[index], (1, 0)),
            CAPACITY[customers],
            "exact",
            best_known=cost,
        )
        for index, cost in zip_longest(range(num), known)
    ]
