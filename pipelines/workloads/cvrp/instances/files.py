"""Reading instances from a file or from all files in a folder.

A new format is one entry of READERS: the ending of its files and the function that reads one. Tables, which may lack a
capacity, are read by `customers`. Solomon's format is short enough to be read here.
"""

import re
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np

from common.config import checked
from common.errors import UserError, as_user_error
from models.routing.inputs import RoutingInput, problem_of
from models.routing.problems import MOST_CAPACITY, Problem, Vehicles
from pipelines.workloads.cvrp.instances.customers import TABLES, WRITTEN, completed, read_table
from pipelines.workloads.cvrp.instances.npz_files import read_npz
from pipelines.workloads.cvrp.instances.vrp_files import NUMBER, amount, best_known, read_vrp


def read_solomon(path: Path) -> list[Problem]:
    """Return the problem of a text file as Solomon (1987) and Gehring and Homberger (1999) wrote them, or VRPLIB's."""
    rows = [line.split() for line in path.read_bytes().decode("ascii", "replace").splitlines() if line.strip()]
    if any(" ".join(row).startswith(("DIMENSION:", "DIMENSION :")) for row in rows):
        return read_vrp(path)
    numbers = [row for row in rows if all(NUMBER.fullmatch(word) for word in row)]
    if ["VEHICLE"] not in rows or len(numbers) < 3 or [len(row) for row in numbers] != [2] + [7] * (len(numbers) - 1):
        others = "Cordeau's and others can be given as .vrp or tables, pickups and deliveries (Li and Lim) not at all"
        wanted = "VEHICLE, number and capacity, then rows of seven numbers"
        raise UserError(f"not one of Solomon's files: {wanted}; {others}")
    (count, capacity), *nodes = [[amount("a number", word) for word in row] for row in numbers]
    table = np.array(nodes)
    if capacity != int(capacity) or not table[1:, 3].max() <= capacity <= MOST_CAPACITY or (table[:, 3] % 1).any():
        raise UserError(f"demands must be whole numbers, none above the capacity of {capacity:g}")
    read = path.stem, table[:, 1:3], table[:, 3].astype(np.int64), int(capacity), "dimacs", best_known(path)
    fleet = (Vehicles(int(capacity), max(1, int(count))),)
    return [Problem(*read, services=table[:, 6], windows=table[:, 4:6], fleet=fleet)]


READERS: dict[str, Callable[[Path], list[Problem]]] = {".npz": read_npz, ".vrp": read_vrp, ".txt": read_solomon}
INSTANCE = re.compile(rb"VEHICLE|DIMENSION|\A[\d\s.-]+\n")  # in instances, not in notes: titles, or numbers alone
KEY = re.compile(r"(?<= without )(?=speed=|service_times=)")  # words of answers, which evaluations have as keys
ENDINGS = (*READERS, *TABLES)
NAMED = f"{', '.join(ENDINGS[:-1])} or {ENDINGS[-1]}"


def read(path: Path, rounding: str | None = None, **words: float | None) -> dict[str, list[Problem]]:
    """Return {file stem: problems} of one instance file, or of all instance files that lie directly in a folder.

    `rounding`, a key of ROUNDINGS, replaces each file's usual one, `words`, such as capacity, the fields of tables.
    Raises UserError, in one line, for anything missing, damaged or contradictory, and for problems beyond the CVRP.
    """
    found: dict[str, list[Problem]] = {}
    with as_user_error(f"{path}: cannot be read (", "); check the path and its permissions", OSError):
        for file in _instance_files(path):
            # Results are named after the stem: those of one file would overwrite the other's.
            if file.stem in found:
                raise UserError(f"{file}: another file in the folder is also called {file.stem}; rename one of the two")
            if file.suffix.lower() in READERS:
                with as_user_error(f"{file}: "):
                    found[file.stem] = READERS[file.suffix.lower()](file)
                continue
            table = read_table(file)
            print(f"{file}: {KEY.sub('evaluation.', table.found)}", file=sys.stderr)
            with as_user_error(f"{file}: "):
                given = completed({**table.as_input(), **{word: at for word, at in words.items() if at is not None}})
            found[file.stem] = [problem_of(checked(RoutingInput, given, str(file)))]
    if rounding is not None:
        # A best known cost is of the usual rounding.
        found = {
            stem: [p if p.rounding == rounding else replace(p, rounding=rounding, best_known=None) for p in problems]
            for stem, problems in found.items()
        }
    return found


def of_ours(file: Path) -> bool:
    """Return whether a file in a user's folder is no instance: a hidden one, a spreadsheet's lock, our tours, notes."""
    notes = file.suffix.lower() == ".txt" and not INSTANCE.search(file.read_bytes()[:1000])
    return notes or file.name.startswith((".", "~$")) or file.name.lower().endswith(WRITTEN)


def _instance_files(path: Path) -> list[Path]:
    """Return `path` itself or, for a folder, the instance files in it."""
    if not path.is_dir():
        if path.suffix.lower() not in ENDINGS:
            raise UserError(f"{path}: not an instance file; give a file ending in {NAMED}, or a folder")
        return [path]
    # macOS leaves hidden files with the same endings beside the real ones.
    files = [file for file in sorted(path.iterdir()) if file.suffix.lower() in ENDINGS and file.is_file()]
    if not (files := [file for file in files if not of_ours(file)]):
        raise UserError(f"{path}: holds no {NAMED} file; give the folder that holds the instances")
    return files
