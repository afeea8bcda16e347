"""CVRP instances and the files they come in: VRPLIB `.vrp`, RL4CO `.npz`, and solutions as CVRPLIB `.sol`.

Two metrics are in use and their costs do not compare, so every problem says which one is its own: files of the VRPLIB
family round each distance to the nearest whole number, the machine-learning test sets do not round at all.

Numbering: node 0 is the depot, customers are 1..n in the order of the file. A route is the list of its customers
without the depot, and a solution is a list of routes. That is the numbering of `.sol` files too, where customer k is
the k-th node that is not the depot, so a solution written here fits the file the problem was read from.
"""

import io
import re
import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from common.errors import UserError
from models.routing.environment import Instances

SUFFIXES = (".npz", ".vrp")
# The environment holds loads in float32, which counts whole numbers exactly up to here.
MAX_CAPACITY = 2**24
# Keeps sums of distances far from the limits of int64 in the reference solver, with micrometres to spare in float64.
MAX_COORDINATE = 1e9

VRP_SECTIONS = ("NODE_COORD_SECTION", "DEMAND_SECTION", "DEPOT_SECTION")
# Keys that say nothing about which routes are allowed. Any other key (DISTANCE, SERVICE_TIME, VEHICLES, ...) may.
VRP_KEYS = (
    *("NAME", "COMMENT", "TYPE", "DIMENSION", "CAPACITY"),
    *("EDGE_WEIGHT_TYPE", "EDGE_WEIGHT_FORMAT", "NODE_COORD_TYPE", "DISPLAY_DATA_TYPE"),
)
NPZ_KEYS = ("depot", "locs", "demand", "capacity")
# RL4CO divides demands by the capacity in float32; multiplying back misses the whole number by far less than this.
DIVIDED_DEMAND_TOLERANCE = 0.01

STANDARD_CAPACITIES = {10: 20, 20: 30, 50: 40, 100: 50}
STANDARD_SIZE = 10_000
STANDARD_SEED = 1234

NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)


@dataclass(frozen=True, eq=False)
class Problem:
    """One instance: n customers, one depot, any number of vehicles of one capacity."""

    name: str  # of the file, with a number if the file holds several; fit to be a file name
    locs: np.ndarray  # (n + 1, 2) float64, in the units of the file, depot first
    demand: np.ndarray  # (n + 1,) int64, 0 at the depot
    capacity: int
    rounded: bool  # True: VRPLIB's EUC_2D, each distance rounded to the nearest whole number; False: exact float64

    @property
    def customers(self) -> int:
        """n, their number."""
        return len(self.locs) - 1


def distances(problem: Problem) -> np.ndarray:
    """(n + 1, n + 1) float64 distances between the nodes in the problem's own metric."""
    return _lengths(problem, problem.locs[:, None] - problem.locs)


def cost_of(problem: Problem, routes: Sequence[Sequence[int]]) -> float:
    """Length of all routes, each from the depot and back to it, in the problem's own metric.

    Only measures: whether the routes are a solution is the validator's question.
    """
    path = [0]
    for route in routes:
        path += [*route, 0]
    locs = problem.locs[path]
    return float(_lengths(problem, locs[1:] - locs[:-1]).sum())


def _lengths(problem: Problem, vectors: np.ndarray) -> np.ndarray:
    lengths = np.sqrt((vectors**2).sum(-1))
    return np.floor(lengths + 0.5) if problem.rounded else lengths


def scaled(problem: Problem) -> np.ndarray:
    """(n + 1, 2) float32 coordinates in the unit square, as the models were trained on.

    Both axes are scaled by one factor, because scaling each by its own would change which route is the shortest. An
    instance that is drawn in the unit square stays where it is.
    """
    locs = problem.locs
    low, high = locs.min(0), locs.max(0)
    if problem.rounded or low.min() < 0 or high.max() > 1:
        extent = (high - low).max()
        locs = (locs - low) / (extent if extent > 0 else 1)
    return locs.astype(np.float32)


def to_instances(problems: Sequence[Problem], device: torch.device | str) -> Instances:
    """A batch of problems, all of one size, as the models take it."""
    sizes = sorted({problem.customers for problem in problems})
    assert len(sizes) == 1, f"one batch holds problems of one size, got sizes {sizes}"
    return Instances(
        torch.from_numpy(np.stack([scaled(problem) for problem in problems])).to(device),
        torch.from_numpy(np.stack([problem.demand for problem in problems])).float().to(device),
        torch.tensor([problem.capacity for problem in problems], dtype=torch.float32, device=device),
    )


def standard_test_set(customers: int, num: int) -> list[Problem]:
    """The first `num` of the 10,000 uniform instances of Kool et al. 2019 ("Attention, Learn to Solve Routing
    Problems!"), on which most published figures are measured.

    The same numbers as their `vrp<customers>_test_seed1234.pkl`, drawn again instead of downloaded: coordinates uniform
    in the unit square, demands uniform in 1..9, exact metric. Raises UserError for a size the set does not have.
    """
    if customers not in STANDARD_CAPACITIES:
        raise UserError(
            f"the standard test set has no instances of {customers} customers; "
            f"ask for one of {', '.join(map(str, STANDARD_CAPACITIES))}"
        )
    if not 1 <= num <= STANDARD_SIZE:
        raise UserError(
            f"the standard test set holds {STANDARD_SIZE:,} instances, {num:,} were asked for; "
            f"give a number from 1 to {STANDARD_SIZE}"
        )
    # The order of the three draws is what makes them the published instances: all 10,000 are drawn, then cut.
    random = np.random.RandomState(STANDARD_SEED)
    depot = random.uniform(size=(STANDARD_SIZE, 2))
    locs = random.uniform(size=(STANDARD_SIZE, customers, 2))
    demand = random.randint(1, 10, (STANDARD_SIZE, customers))
    capacity = np.full(STANDARD_SIZE, STANDARD_CAPACITIES[customers])
    name = f"vrp{customers}_test_seed{STANDARD_SEED}"
    return _problems(name, depot[:num], locs[:num], demand[:num], capacity[:num], STANDARD_SIZE)


def _problems(
    name: str, depot: np.ndarray, locs: np.ndarray, demand: np.ndarray, capacity: np.ndarray, num: int
) -> list[Problem]:
    """Problems in the exact metric from depot (K, 2), locs (K, n, 2), demand (K, n) and capacity (K,).

    They are numbered with as many digits as the last of `num` needs, so that their files sort in order.
    """
    locs = np.concatenate([depot[:, None], locs], 1).astype(np.float64)
    demand = np.pad(demand.astype(np.int64), ((0, 0), (1, 0)))
    digits = len(str(num - 1))
    return [
        Problem(f"{name}-{index:0{digits}d}", locs[index], demand[index], int(capacity[index]), rounded=False)
        for index in range(len(locs))
    ]


def read(path: Path) -> dict[str, list[Problem]]:
    """{file stem: problems} of a `.vrp` or `.npz` file, or of all such files that lie directly in a folder.

    `.vrp`: VRPLIB with TYPE CVRP and EDGE_WEIGHT_TYPE EUC_2D, one depot. Node numbers may be any distinct whole
    numbers; nodes are taken in their order, the depot moved to the front. The file is complete when it ends with EOF
    or with the -1 that closes DEPOT_SECTION; anything less is refused as cut short.

    `.npz`: the keys of RL4CO: depot (K, 2), locs (K, n, 2), demand (K, n), capacity (K,) or (K, 1) or a single number.
    RL4CO writes demands as whole numbers in its data files and divided by the capacity from its generators. One rule
    for the whole file tells them apart: if every demand is a whole number, they are demands; else, if none is above 1,
    they are shares of the capacity and must come to whole numbers when multiplied by it; anything else is refused.

    Raises UserError, in one line, for whatever is missing, damaged, contradictory, or asks for more than a CVRP.
    """
    path = Path(path)
    found: dict[str, list[Problem]] = {}
    try:
        for file in _instance_files(path):
            # Results go by the stem, so one file's would overwrite the other's.
            if file.stem in found:
                raise UserError(f"{file}: another file beside it is also called {file.stem}; rename one of the two")
            found[file.stem] = [_read_vrp(file)] if file.suffix.lower() == ".vrp" else _read_npz(file)
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror or error}); check the path and its rights") from error
    return found


def _instance_files(path: Path) -> list[Path]:
    if not path.is_dir():
        if path.suffix.lower() not in SUFFIXES:
            raise UserError(f"{path}: not an instance file; give a file ending in {' or '.join(SUFFIXES)}, or a folder")
        return [path]
    # Hidden files with these endings are what macOS leaves beside the real ones.
    files = [file for file in sorted(path.iterdir()) if file.suffix.lower() in SUFFIXES and file.is_file()]
    files = [file for file in files if not file.name.startswith(".")]
    if not files:
        raise UserError(f"{path}: holds no {' or '.join(SUFFIXES)} file; give the folder that holds the instances")
    return files


# ------------------------------------------------------------------------------------------------------------ .vrp

Rows = list[tuple[int, list[str]]]  # (line number, words) of each row of a section


def _read_vrp(path: Path) -> Problem:
    # What is not ASCII can only be in a comment; anywhere else it is no number and is refused as such.
    header, sections, complete = _split(path, path.read_bytes().decode("utf-8-sig", errors="replace"))

    # What kind of problem it is comes first: the other kinds have other sections and keys, all in order.
    kind = _header(path, header, "TYPE")
    if kind.upper() != "CVRP":
        raise UserError(f"{path}: TYPE is {kind[:40]!r}; only CVRP can be solved here, give a file of that type")
    metric = _header(path, header, "EDGE_WEIGHT_TYPE")
    if metric.upper() != "EUC_2D":
        raise UserError(
            f"{path}: EDGE_WEIGHT_TYPE is {metric[:40]!r}; only EUC_2D (rounded Euclidean) is supported, "
            "give a file of that type"
        )
    unknown = [key for key in header if key not in VRP_KEYS] + [
        title for title in sections if title not in VRP_SECTIONS
    ]
    if unknown:
        raise UserError(f"{path}: {unknown[0][:40]!r} is not part of a plain CVRP; remove it to solve without it")
    missing = [title for title in VRP_SECTIONS if title not in sections]
    if missing or not complete:
        what = missing[0] if missing else "its end (EOF, or the -1 that closes DEPOT_SECTION)"
        raise UserError(f"{path}: {what} is missing; the file may be cut short, fetch it again or add what is missing")

    dimension = _whole(path, "DIMENSION", _header(path, header, "DIMENSION"))
    capacity = _whole(path, "CAPACITY", _header(path, header, "CAPACITY"))
    if dimension < 2:
        raise UserError(f"{path}: DIMENSION is {dimension}; a depot and at least one customer make 2 or more")
    if not 1 <= capacity <= MAX_CAPACITY:
        raise UserError(
            f"{path}: CAPACITY is {capacity}; give a number from 1 to {MAX_CAPACITY} "
            "(dividing all demands and the capacity by one number changes nothing)"
        )

    coords = _nodes(path, sections, "NODE_COORD_SECTION", dimension, "number, x and y")
    demands = _nodes(path, sections, "DEMAND_SECTION", dimension, "number and demand")
    if unmatched := sorted(coords.keys() ^ demands.keys()):
        node = unmatched[0]
        has, lacks = ("DEMAND_SECTION", "NODE_COORD_SECTION") if node in demands else VRP_SECTIONS[:2]
        raise UserError(f"{path}: node {node} is in {has} but not in {lacks}; both must list the same nodes")
    depot = _depot(path, sections, coords)

    # False sorts before True: the depot first, then the customers by number.
    nodes = sorted(coords, key=lambda node: (node != depot, node))
    locs = [[_coordinate(path, node, word) for word in coords[node]] for node in nodes]
    demand = [_whole(path, f"the demand of node {node}", demands[node][0]) for node in nodes]
    for node, load in zip(nodes, demand, strict=True):
        if load < 0:
            raise UserError(f"{path}: the demand of node {node} is {load}; demands must be 0 or more")
        if load > capacity:
            raise UserError(
                f"{path}: node {node} asks for {load} but CAPACITY is {capacity}, so no vehicle can serve it; "
                "correct one of the two"
            )
    if demand[0]:
        raise UserError(f"{path}: the depot, node {depot}, has a demand of {demand[0]}; set it to 0")
    # Named after the file: NAME inside it is free text, which must not decide where a solution is written.
    return Problem(path.stem, np.array(locs), np.array(demand, np.int64), capacity, rounded=True)


def _split(path: Path, text: str) -> tuple[dict[str, str], dict[str, Rows], bool]:
    """The `KEY : VALUE` lines, the rows of each section, and whether the end of the file is there."""
    header: dict[str, str] = {}
    sections: dict[str, Rows] = {}
    rows: Rows | None = None
    for number, line in enumerate(text.splitlines(), 1):
        line = line.strip()
        title = line.rstrip(": \t").upper()
        key, colon, value = (part.strip() for part in line.partition(":"))
        key = key.upper()
        if not line or line.startswith("#"):
            continue
        if title == "EOF":
            return header, sections, True
        if title in sections or (colon and key in header):
            raise UserError(f"{path}: line {number}: {line[:40]!r} is given a second time; keep one")
        # One word only, so that a comment may end in "_section".
        if title.endswith("_SECTION") and title.isidentifier():
            rows = sections[title] = []
        elif colon:
            header[key] = value
            rows = None
        elif rows is not None:
            rows.append((number, line.split()))
        else:
            raise UserError(
                f"{path}: line {number}: {line[:40]!r} is neither 'KEY : VALUE' nor the title of a section; "
                "correct or remove it"
            )
    # Without a mark at its end, a last row cut in the middle ("22 700" to "22 70") could not be told from a whole one.
    closed = bool(rows) and rows is sections.get("DEPOT_SECTION") and rows[-1][1] == ["-1"]
    return header, sections, closed


def _header(path: Path, header: dict[str, str], key: str) -> str:
    if not header.get(key):
        raise UserError(f"{path}: {key} is missing; add a line '{key} : ...'")
    return header[key]


def _nodes(path: Path, sections: dict[str, Rows], title: str, dimension: int, columns: str) -> dict[int, list[str]]:
    """Node number -> the other words of its row, after checking the count and shape of the rows."""
    rows = sections[title]
    if len(rows) != dimension:
        raise UserError(
            f"{path}: DIMENSION is {dimension} but {title} has {len(rows)} rows; "
            "the file may be cut short, fetch it again or correct DIMENSION"
        )
    nodes: dict[int, list[str]] = {}
    width = {"NODE_COORD_SECTION": 3, "DEMAND_SECTION": 2}[title]
    for number, words in rows:
        if len(words) != width:
            raise UserError(f"{path}: line {number}: {' '.join(words)[:40]!r} in {title}; each row is {columns}")
        node = _whole(path, f"line {number}: the node number", words[0])
        if node in nodes:
            raise UserError(f"{path}: line {number}: node {node} is given a second time in {title}; number nodes apart")
        nodes[node] = words[1:]
    return nodes


def _depot(path: Path, sections: dict[str, Rows], coords: dict[int, list[str]]) -> int:
    words = [word for _, row in sections["DEPOT_SECTION"] for word in row]
    depots = words[: words.index("-1")] if "-1" in words else words
    if len(depots) != 1 or len(words) > 2:
        raise UserError(
            f"{path}: DEPOT_SECTION holds {' '.join(words)[:40]!r}; only one depot is supported, "
            "its node number followed by -1"
        )
    depot = _whole(path, "the depot", depots[0])
    if depot not in coords:
        raise UserError(f"{path}: DEPOT_SECTION names node {depot}, which NODE_COORD_SECTION does not have")
    return depot


def _coordinate(path: Path, node: int, word: str) -> float:
    value = float(word) if NUMBER.fullmatch(word) else np.nan
    # Also false for nan.
    if not abs(value) <= MAX_COORDINATE:
        raise UserError(
            f"{path}: node {node} has a coordinate {word[:40]!r}; "
            f"coordinates must be numbers of at most {MAX_COORDINATE:.0e}"
        )
    return value


def _whole(path: Path, what: str, word: str) -> int:
    value = float(word) if NUMBER.fullmatch(word) else np.nan
    # Above 2**53 float64 skips whole numbers; nothing here may be near that. Also false for nan and inf.
    if not abs(value) < 2**53 or value != int(value):
        raise UserError(f"{path}: {what} is {word[:40]!r}; it must be a whole number")
    return int(value)


# ------------------------------------------------------------------------------------------------------------ .npz


def _read_npz(path: Path) -> list[Problem]:
    arrays = _load_npz(path)
    for key, array in arrays.items():
        if array.dtype.kind not in "iuf":
            raise UserError(f"{path}: {key!r} holds {array.dtype}, not numbers; save it as float32 or int64")
    depot, locs, demand, capacity = (arrays[key].astype(np.float64) for key in NPZ_KEYS)
    if locs.ndim != 3 or locs.shape[2] != 2 or 0 in locs.shape:
        raise UserError(
            f"{path}: 'locs' has shape {locs.shape}; it must be (instances, customers, 2), without the depot"
        )
    num, customers = locs.shape[:2]
    for key, array, shape in (("depot", depot, (num, 2)), ("demand", demand, (num, customers))):
        if array.shape != shape:
            raise UserError(
                f"{path}: {key!r} has shape {array.shape} where 'locs' of shape {locs.shape} needs {shape}; "
                "the depot belongs only into 'depot'"
            )
    if capacity.shape not in ((), (num,), (num, 1)):
        raise UserError(
            f"{path}: 'capacity' has shape {capacity.shape}; it must be ({num},), ({num}, 1) or a single number"
        )
    capacity = np.broadcast_to(capacity.reshape(-1), num)
    _check_values(path, depot, locs, capacity)
    return _problems(path.stem, depot, locs, _whole_demands(path, demand, capacity), capacity, num)


def _load_npz(path: Path) -> dict[str, np.ndarray]:
    remedy = "write it with numpy.savez and the keys " + ", ".join(NPZ_KEYS)
    file = io.BytesIO(path.read_bytes())
    damaged, names, arrays = None, [], {}
    try:
        # Checksums first: numpy looks at them only after it has believed the header of an array.
        with zipfile.ZipFile(file) as archive:
            damaged = archive.testzip()
        if damaged is None:
            file.seek(0)
            with np.load(file, allow_pickle=False) as archive:
                names = sorted(archive.files)
                # A member that is no array comes out as bytes.
                arrays = {key: np.asarray(archive[key]) for key in NPZ_KEYS if key in names}
    except (
        # Whatever zipfile, zlib and numpy's header parser raise over bytes that are not what they claim to be.
        *(OSError, ValueError, KeyError, IndexError, EOFError, MemoryError, OverflowError, TypeError, SyntaxError),
        *(RuntimeError, zipfile.BadZipFile, zlib.error),
    ) as error:
        if "allow_pickle" in str(error):
            what = "holds Python objects (pickle), which are never loaded because they can run code"
        else:
            what = f"no .npz file, or a damaged one ({type(error).__name__})"
        raise UserError(f"{path}: {what}; {remedy}") from error
    if damaged is not None:
        raise UserError(f"{path}: {damaged[:40]!r} inside it is damaged (wrong checksum); fetch the file again")
    if missing := [key for key in NPZ_KEYS if key not in names]:
        raise UserError(f"{path}: {', '.join(missing)} missing, it holds {str(names)[:200]}; {remedy}")
    if extra := [key for key in names if key not in NPZ_KEYS]:
        raise UserError(
            f"{path}: {str(extra)[:200]} not part of a plain CVRP; save it without to solve for {', '.join(NPZ_KEYS)}"
        )
    return arrays


def _check_values(path: Path, depot: np.ndarray, locs: np.ndarray, capacity: np.ndarray) -> None:
    for key, array in (("depot", depot), ("locs", locs)):
        # Also false for nan.
        if (bad := ~(np.abs(array) <= MAX_COORDINATE)).any():
            where = np.argwhere(bad)[0]
            who = "the depot" if key == "depot" else f"customer {where[1] + 1}"
            raise UserError(
                f"{path}: {who} of instance {where[0]} has a coordinate {array[tuple(where)]}; "
                f"coordinates must be numbers of at most {MAX_COORDINATE:.0e}"
            )
    bad = ~((capacity >= 1) & (capacity <= MAX_CAPACITY) & (capacity == np.rint(capacity)))
    if bad.any():
        where = np.argmax(bad)
        raise UserError(
            f"{path}: the capacity of instance {where} is {capacity[where]}; "
            f"it must be a whole number from 1 to {MAX_CAPACITY}"
        )


def _whole_demands(path: Path, demand: np.ndarray, capacity: np.ndarray) -> np.ndarray:
    """Demands (K, n) as whole numbers, see `read` for the rule."""

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
            "store whole demands with the capacity they belong to",
        )
    else:
        refuse(~is_whole, "; demands must be whole numbers, or all divided by the capacity")
    refuse(whole > capacity[:, None], ", above its capacity {most}, so no vehicle can serve it; correct one of the two")
    return whole


def write_npz(path: Path, problems: Sequence[Problem]) -> None:
    """Write problems of one size as RL4CO writes them: coordinates and whole demands in float32.

    The format has no place for a metric and readers take it as exact, so problems in the rounded one raise UserError.
    """
    sizes = sorted({problem.customers for problem in problems})
    if len(sizes) != 1:
        raise UserError(f"{path}: a .npz file holds problems of one size, got sizes {sizes}; write one file per size")
    for problem in problems:
        if problem.rounded:
            raise UserError(
                f"{path}: {problem.name} rounds its distances, which a .npz file cannot say; keep it as a .vrp file"
            )
    arrays = {
        "depot": np.stack([problem.locs[0] for problem in problems]),
        "locs": np.stack([problem.locs[1:] for problem in problems]),
        "demand": np.stack([problem.demand[1:] for problem in problems]),
        "capacity": np.array([problem.capacity for problem in problems]),
    }
    # Given a name instead of a file, numpy appends .npz to it when it ends otherwise.
    with Path(path).open("wb") as file:
        np.savez(file, **{key: array.astype(np.float32) for key, array in arrays.items()})


def solution_text(routes: Sequence[Sequence[int]], cost: float) -> str:
    """A solution in the format of CVRPLIB's .sol files. `cost` is in the problem's metric; a whole one has no point."""
    lines = [f"Route #{number}: {' '.join(map(str, route))}" for number, route in enumerate(routes, 1)]
    cost = float(cost)
    lines.append(f"Cost {int(cost) if cost.is_integer() else cost}")
    return "\n".join(lines) + "\n"
