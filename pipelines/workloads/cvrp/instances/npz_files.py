"""Instance files of machine learning: NumPy archives with the keys that RL4CO uses.

The keys are depot (K, 2), locs (K, n, 2), demand (K, n) and capacity (K,) or (K, 1) or a single number. RL4CO writes
whole demands into its data files, but its generators divide them by the capacity. One rule for the whole file decides:
if every demand is a whole number, they are demands; otherwise, if none is above 1, they are shares of the capacity and
must become whole numbers when multiplied by it; anything else is refused.
"""

import io
import zipfile
import zlib
from pathlib import Path

import numpy as np

from common.errors import UserError
from models.routing.problems import MAX_COORDINATE, MOST_CAPACITY, Problem, exact_problems

KEYS = ("depot", "locs", "demand", "capacity")
# RL4CO divides demands by the capacity in float32; the products miss whole numbers by far less than this.
DIVIDED_DEMAND_TOLERANCE = 0.01


def read_npz(path: Path) -> list[Problem]:
    """Return the problems of an `.npz` file; raise UserError, in one line, for an unusable file."""
    arrays = _load(path)
    for key, array in arrays.items():
        if array.dtype.kind not in "iuf":
            raise UserError(f"{path}: {key!r} holds {array.dtype}, not numbers; save it as float32 or int64")
    depot, locs, demand, capacity = (arrays[key].astype(np.float64) for key in KEYS)
    if locs.ndim != 3 or locs.shape[2] != 2 or 0 in locs.shape:
        raise UserError(
            f"{path}: 'locs' has shape {locs.shape}; it must be (instances, customers, 2), without the depot"
        )
    num, customers = locs.shape[:2]
    for key, array, shape in (("depot", depot, (num, 2)), ("demand", demand, (num, customers))):
        if array.shape != shape:
            raise UserError(
                f"{path}: {key!r} has shape {array.shape} where 'locs' of shape {locs.shape} needs {shape}; "
                "the depot belongs in 'depot' only"
            )
    if capacity.shape not in ((), (num,), (num, 1)):
        raise UserError(
            f"{path}: 'capacity' has shape {capacity.shape}; it must be ({num},), ({num}, 1) or a single number"
        )
    capacity = np.broadcast_to(capacity.reshape(-1), num)
    _check_values(path, depot, locs, capacity)
    return exact_problems(path.stem, depot, locs, _whole_demands(path, demand, capacity), capacity, num)


def _load(path: Path) -> dict[str, np.ndarray]:
    """Return the arrays of the file, after checking its checksums and keys."""
    remedy = "write it with numpy.savez and the keys " + ", ".join(KEYS)
    file = io.BytesIO(path.read_bytes())
    damaged, names, arrays = None, [], {}
    try:
        # Checksums come first: numpy checks them only after trusting the header of an array.
        with zipfile.ZipFile(file) as archive:
            damaged = archive.testzip()
        if damaged is None:
            file.seek(0)
            with np.load(file, allow_pickle=False) as archive:
                names = sorted(archive.files)
                # A member that is not an array is returned as bytes.
                arrays = {key: np.asarray(archive[key]) for key in KEYS if key in names}
    except (
        # All errors of zipfile, zlib and numpy's header parser on corrupt bytes.
        *(OSError, ValueError, KeyError, IndexError, EOFError, MemoryError, OverflowError, TypeError, SyntaxError),
        *(RuntimeError, zipfile.BadZipFile, zlib.error),
    ) as error:
        if "allow_pickle" in str(error):
            what = "holds Python objects (pickle), which are never loaded because they can run code"
        else:
            what = f"not an .npz file, or a damaged one ({type(error).__name__})"
        raise UserError(f"{path}: {what}; {remedy}") from error
    if damaged is not None:
        raise UserError(f"{path}: {damaged[:40]!r} inside it is damaged (wrong checksum); download the file again")
    if missing := [key for key in KEYS if key not in names]:
        raise UserError(f"{path}: {', '.join(missing)} missing; it holds {str(names)[:200]}; {remedy}")
    if extra := [key for key in names if key not in KEYS]:
        raise UserError(
            f"{path}: {str(extra)[:200]} not part of a plain CVRP; save it with only the keys {', '.join(KEYS)}"
        )
    return arrays


def _check_values(path: Path, depot: np.ndarray, locs: np.ndarray, capacity: np.ndarray) -> None:
    """Raise UserError for a coordinate or a capacity out of range."""
    for key, array in (("depot", depot), ("locs", locs)):
        # The comparison is also false for nan.
        if (bad := ~(np.abs(array) <= MAX_COORDINATE)).any():
            where = np.argwhere(bad)[0]
            who = "the depot" if key == "depot" else f"customer {where[1] + 1}"
            raise UserError(
                f"{path}: {who} of instance {where[0]} has a coordinate {array[tuple(where)]}; "
                f"coordinates must be numbers of at most {MAX_COORDINATE:.0e}"
            )
    bad = ~((capacity >= 1) & (capacity <= MOST_CAPACITY) & (capacity == np.rint(capacity)))
    if bad.any():
        index = np.argmax(bad)
        raise UserError(
            f"{path}: the capacity of instance {index} is {capacity[index]}; "
            f"it must be a whole number from 1 to {MOST_CAPACITY}"
        )


def _whole_demands(path: Path, demand: np.ndarray, capacity: np.ndarray) -> np.ndarray:
    """Return demands (K, n) as whole numbers, by the rule in this module's docstring."""

    def refuse(bad: np.ndarray, text: str) -> None:
        if bad.any():
            index, customer = np.argwhere(bad)[0]
            given, most = demand[index, customer], capacity[index]
            raise UserError(
                f"{path}: customer {customer + 1} of instance {index} has demand {given:g}"
                + text.format(most=f"{most:g}", product=f"{given * most:g}")
            )

    refuse(~np.isfinite(demand), "; demands must be numbers")
    refuse(demand < 0, "; demands must be 0 or more")
    is_whole = demand == np.rint(demand)
    if is_whole.all():
        whole = demand
    elif demand.max() <= 1:
        product = demand * capacity[:, None]
        whole = np.rint(product)
        refuse(
            np.abs(product - whole) > DIVIDED_DEMAND_TOLERANCE,
            ", which, as a share of the capacity {most}, comes to {product}; it must come to a whole number, "
            "so store whole demands with the capacity they belong to",
        )
    else:
        refuse(~is_whole, "; demands must be whole numbers, or all divided by the capacity")
    refuse(whole > capacity[:, None], ", above its capacity {most}, so no vehicle can serve it; correct one of the two")
    return whole
