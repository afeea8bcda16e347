"""Instance files of machine learning: NumPy archives of K instances with RL4CO's keys, and with those of inputs.

RL4CO's are depot (K, 2), locs (K, n, 2), demand (K, n) and capacity (K,) or (K, 1). Others have the names and the
layout of an input's fields: distances and durations (K, n + 1, n + 1), windows (K, n, 2), and so on. A single number
is that of all instances.

RL4CO writes whole demands into its data files, but its generators divide them by the capacity. One rule for the whole
file decides: if every demand is a whole number, they are demands; otherwise, if none is above 1, they are shares of the
capacity and must become whole numbers when multiplied by it; anything else is refused.
"""

import io
import zipfile
import zlib
from pathlib import Path

import numpy as np

from common.config import checked
from common.errors import UserError
from models.routing.inputs import RoutingInput, problem_of
from models.routing.problems import Problem

KEYS = {"depot": "depot", "locs": "customers", "demand": "demands", "capacity": "capacity"}  # of RL4CO: ours
OWN = RoutingInput.model_fields.keys() - {*KEYS.values(), "name", "rounding", "vehicles", "initial", "item"}
# RL4CO divides demands by the capacity in float32; the products miss whole numbers by far less than this.
DIVIDED_DEMAND_TOLERANCE = 0.01


def read_npz(path: Path) -> list[Problem]:
    """Return the problems of an `.npz` file; raise UserError, in one line, for an unusable file."""
    arrays = _load(path)
    demand = arrays["demand"]
    if demand.ndim != 2 or 0 in demand.shape:
        raise UserError(f"'demand' has shape {demand.shape}; it must be (instances, customers)")
    if (locs := arrays.get("locs", np.zeros((1, 1, 2)))).ndim != 3:
        raise UserError(f"'locs' has shape {locs.shape}; it must be (instances, customers, 2)")
    for key, array in arrays.items():
        if array.dtype.kind not in "biuf":
            raise UserError(f"{key!r} holds {array.dtype}, not numbers; save it as float32 or int64")
        if array.ndim and (len(array) != len(demand) or (key == "capacity" and array.size != len(demand))):
            raise UserError(f"{key!r} has shape {array.shape}, but 'demand' is of {len(demand)} instances")
    arrays["capacity"] = np.broadcast_to(arrays["capacity"].reshape(-1), len(demand))
    arrays["demand"] = _whole_demands(demand, arrays["capacity"])
    digits = len(str(len(demand) - 1))
    problems = []
    for index in range(len(demand)):
        given = {KEYS.get(key, key): (array[index] if array.ndim else array).tolist() for key, array in arrays.items()}
        if "prizes" in given:
            given["prizes"] = [prize if np.isfinite(prize) else None for prize in given["prizes"]]
        given["name"] = f"{path.stem}-{index:0{digits}d}"
        problems.append(problem_of(checked(RoutingInput, given, f"instance {index}")))
    return problems


def _load(path: Path) -> dict[str, np.ndarray]:
    """Return the arrays of the file, after checking its checksums and keys."""
    remedy = f"write it with numpy.savez and the keys {', '.join(KEYS)}"
    file = io.BytesIO(path.read_bytes())
    damaged, arrays = None, {}
    try:
        # Checksums come first: numpy checks them only after trusting the header of an array.
        with zipfile.ZipFile(file) as archive:
            damaged = archive.testzip()
        if damaged is None:
            file.seek(0)
            with np.load(file, allow_pickle=False) as archive:
                # A member that is not an array is returned as bytes.
                arrays = {key: np.asarray(archive[key]) for key in archive.files}
    except (
        # All errors of zipfile, zlib and numpy's header parser on corrupt bytes.
        *(OSError, ValueError, KeyError, IndexError, EOFError, MemoryError, OverflowError, TypeError, SyntaxError),
        *(RuntimeError, zipfile.BadZipFile, zlib.error),
    ) as error:
        pickled = "holds Python objects (pickle), which are never loaded because they can run code"
        damage = f"not an .npz file, or a damaged one ({type(error).__name__})"
        what = pickled if "allow_pickle" in str(error) else damage
        raise UserError(f"{what}; {remedy}") from error
    if damaged is not None:
        raise UserError(f"{damaged[:40]!r} inside it is damaged (wrong checksum); download the file again")
    needed = ("demand", "capacity") if "distances" in arrays else tuple(KEYS)
    if missing := [key for key in needed if key not in arrays]:
        raise UserError(f"{', '.join(missing)} missing; it holds {str(sorted(arrays))[:200]}; {remedy}")
    if extra := sorted(arrays.keys() - {*KEYS, *OWN}):
        raise UserError(f"{str(extra)[:200]} cannot be solved here; save it without, or as {', '.join(sorted(OWN))}")
    return arrays


def _whole_demands(demand: np.ndarray, capacity: np.ndarray) -> np.ndarray:
    """Return demands (K, n) as whole numbers, by the rule in this module's docstring, or as they are."""
    if (demand == np.rint(demand)).all() or not demand.max() <= 1:
        return demand
    product = demand * capacity[:, None]
    whole: np.ndarray = np.rint(product)
    if (bad := np.abs(product - whole) > DIVIDED_DEMAND_TOLERANCE).any():
        index, customer = np.argwhere(bad)[0]
        has = f"instance {index}: customer {customer + 1} has demand {demand[index, customer]:g}"
        share = f"which, as a share of the capacity, comes to {product[index, customer]:g}"
        store = "it must come to a whole number, so store whole demands with the capacity they belong to"
        raise UserError(f"{has}, {share}; {store}")
    return whole
