"""Text files with time windows, as Solomon (1987) and Gehring and Homberger (1999) wrote them."""

from pathlib import Path

import numpy as np

from common.errors import UserError
from models.routing.problems import MOST_CAPACITY, Problem, Vehicles
from pipelines.workloads.cvrp.instances.sol_files import NUMBER, best_known
from pipelines.workloads.cvrp.instances.vrp_files import amount


def read_solomon(path: Path) -> list[Problem]:
    """Return the one problem of a file; raise UserError, in one line, for an unusable file."""
    rows = [line.split() for line in path.read_bytes().decode("ascii", "replace").splitlines() if line.strip()]
    numbers = [row for row in rows if all(NUMBER.fullmatch(word) for word in row)]
    if ["VEHICLE"] not in rows or len(numbers) < 3 or [len(row) for row in numbers] != [2] + [7] * (len(numbers) - 1):
        raise UserError(f"{path}: not one of Solomon's files: VEHICLE, number and capacity, then rows of seven numbers")
    (count, capacity), *nodes = [[amount(path, "a number", word) for word in row] for row in numbers]
    table = np.array(nodes)
    if capacity != int(capacity) or not table[1:, 3].max() <= capacity <= MOST_CAPACITY or (table[:, 3] % 1).any():
        raise UserError(f"{path}: demands must be whole numbers, none above the capacity of {capacity:g}")
    return [
        Problem(
            path.stem,
            table[:, 1:3],
            table[:, 3].astype(np.int64),
            int(capacity),
            "dimacs",
            best_known(path),
            services=table[:, 6],
            windows=table[:, 4:6],
            fleet=(Vehicles(int(capacity), max(1, int(count))),),
        )
    ]
