"""Solutions are written as CVRPLIB has them."""

import numpy as np
import vrplib

from pipelines.workloads.cvrp.instances.solutions import solution_text


def test_a_solution_is_written_as_cvrplib_has_it(tmp_path):
    path = tmp_path / "small.sol"
    path.write_text(solution_text([[3, 5, 7], [np.int64(1)]], 375.0))
    assert path.read_text() == "Route #1: 3 5 7\nRoute #2: 1\nCost 375\n"
    assert vrplib.read_solution(path) == {"routes": [[3, 5, 7], [1]], "cost": 375}
    assert solution_text([[1]], np.float64(6.25)) == "Route #1: 1\nCost 6.25\n"
