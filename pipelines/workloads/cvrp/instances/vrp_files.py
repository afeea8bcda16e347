"""Files of operations research: VRPLIB's `.vrp` with TYPE CVRP and one depot, in any metric of METRICS, and `.sol`.

Node numbers may be any distinct whole numbers; nodes, and the rows of an explicit matrix, are taken in their order with
the depot moved to the front. DISTANCE limits a route's length and its customers' SERVICE_TIME together. A file must end
with EOF or with the -1 that closes DEPOT_SECTION; any other is refused as cut short.
"""

import re
from collections.abc import Collection, Sequence
from pathlib import Path

import numpy as np

from common.errors import UserError
from models.routing.distance_metrics import LAYOUTS, METRICS, in_a_plane
from models.routing.problems import MAX_COORDINATE, MOST_CAPACITY, MOST_CUSTOMERS, Problem, usual_rounding

SECTIONS = {  # title: columns of each row
    "NODE_COORD_SECTION": ("number", "x", "y"),
    "DEMAND_SECTION": ("number", "demand"),
    "DEPOT_SECTION": (),
}
WEIGHTS = "EDGE_WEIGHT_SECTION"
UNREAD_SECTIONS = ("DISPLAY_DATA_SECTION",)
TYPES = ("CVRP", "DCVRP")  # the second has limited routes
# Keys that are read or restrict nothing. Any other key (VEHICLES, ...) might restrict the routes.
HEADER_KEYS = (
    *("NAME", "COMMENT", "TYPE", "DIMENSION", "CAPACITY", "DISTANCE", "SERVICE_TIME"),
    *("EDGE_WEIGHT_TYPE", "EDGE_WEIGHT_FORMAT", "NODE_COORD_TYPE", "DISPLAY_DATA_TYPE"),
)
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)

Header = dict[str, str]
Rows = list[tuple[int, list[str]]]  # (line number, words) of each row of a section


def read_vrp(path: Path) -> list[Problem]:
    """Return the one problem of a `.vrp` file; raise UserError, in one line, for an unusable file."""
    # Only comments may hold text beyond ASCII; elsewhere it is refused as no number.
    header, sections, complete = _split(path, path.read_bytes().decode("utf-8-sig", errors="replace"))
    metric = _check_kind(path, header, sections)
    _check_complete(path, sections, metric, complete)
    dimension, capacity = _sizes(path, header, metric)
    coords = {} if metric == "EXPLICIT" else _nodes(path, sections, "NODE_COORD_SECTION", dimension)
    demands = _nodes(path, sections, "DEMAND_SECTION", dimension)
    if coords and (unmatched := sorted(coords.keys() ^ demands.keys())):
        node = unmatched[0]
        has, lacks = "NODE_COORD_SECTION", "DEMAND_SECTION"
        if node in demands:
            has, lacks = lacks, has
        raise UserError(f"{path}: node {node} is in {has} but not in {lacks}; both must list the same nodes")
    depot = _depot(path, sections, demands)

    # False sorts before True: the depot comes first, then the customers by number.
    nodes = sorted(demands, key=lambda node: (node != depot, node))
    demand = _demands(path, nodes, demands, capacity)
    locs, matrix = _layout(path, header, sections, metric, nodes, coords)
    limit = _number(path, "DISTANCE", header["DISTANCE"]) if "DISTANCE" in header else np.inf
    # Named after the file: NAME inside it is free text, which must not decide where a solution is written.
    return [
        Problem(
            path.stem,
            locs,
            np.array(demand, np.int64),
            capacity,
            usual_rounding((header.get("NAME", ""), path.stem), matrix if metric == "EXPLICIT" else None),
            _best_known(path),
            metric,
            matrix,
            limit * (1 + 1e-9),  # sums of distances err by far less
            _number(path, "SERVICE_TIME", header.get("SERVICE_TIME", "0")),
        )
    ]


def _best_known(path: Path) -> float | None:
    """Return the cost in the `.sol` file beside an instance; None without one."""
    solution = path.with_suffix(".sol")
    if not solution.is_file():
        return None
    found = re.findall(r"^cost:?\s+(\S+)\s*$", solution.read_bytes().decode("utf-8", "replace"), re.I | re.M)
    if len(found) != 1 or not NUMBER.fullmatch(found[0]):
        raise UserError(f"{solution}: it must have one line 'Cost NUMBER', the best known cost; correct or remove it")
    return float(found[0])


def read_routes(path: Path) -> list[list[int]]:
    """Return the routes of a `.sol` file: customers numbered from 1."""
    found = re.findall(r"^route[^:]*:(.*)$", path.read_bytes().decode("utf-8", "replace"), re.I | re.M)
    if not found:
        raise UserError(f"{path}: it must have lines such as 'Route #1: 3 1 2'; correct or remove it")
    return [[_whole(path, "a customer", word) for word in line.split()] for line in found]


def solution_text(routes: Sequence[Sequence[int]], cost: float) -> str:
    """Return the text of a `.sol` file, with the cost in the problem's metric."""
    lines = [f"Route #{number}: {' '.join(map(str, route))}" for number, route in enumerate(routes, 1)]
    cost = float(cost)
    lines.append(f"Cost {int(cost) if cost.is_integer() else cost}")
    return "\n".join(lines) + "\n"


def _split(path: Path, text: str) -> tuple[Header, dict[str, Rows], bool]:
    """Return the `KEY : VALUE` lines, the rows of each section, and whether the file is complete."""
    header: Header = {}
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
        # A title is one word, so that a comment may end in "_section".
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
    # Without an end mark, a last row cut in the middle ("22 700" to "22 70") would look whole.
    closed = bool(rows and rows is sections.get("DEPOT_SECTION") and rows[-1][1] == ["-1"])
    return header, sections, closed


def _check_kind(path: Path, header: Header, sections: dict[str, Rows]) -> str:
    """Return the metric, a key of METRICS; raise UserError for a problem of another kind than a CVRP in one of them."""
    # TYPE comes first: in files of other kinds, other sections and keys are no faults.
    kind = _header(path, header, "TYPE")
    if kind.upper() not in TYPES:
        raise UserError(
            f"{path}: TYPE is {kind[:40]!r}; only {' and '.join(TYPES)} can be solved here, give such a file"
        )
    metric = _header(path, header, "EDGE_WEIGHT_TYPE")
    if metric.upper() not in METRICS:
        raise UserError(
            f"{path}: EDGE_WEIGHT_TYPE is {metric[:40]!r}; only {', '.join(METRICS)} are supported, "
            "give a file of such a type"
        )
    known = (*SECTIONS, WEIGHTS, *UNREAD_SECTIONS)
    unknown = [key for key in header if key not in HEADER_KEYS] + [title for title in sections if title not in known]
    if unknown:
        raise UserError(f"{path}: {unknown[0][:40]!r} is not part of a plain CVRP; remove it to solve without it")
    return metric.upper()


def _check_complete(path: Path, sections: dict[str, Rows], metric: str, complete: bool) -> None:
    """Raise UserError for a missing section or a missing end."""
    places, *others = SECTIONS
    missing = [title for title in (WEIGHTS if metric == "EXPLICIT" else places, *others) if title not in sections]
    if missing or not complete:
        what = missing[0] if missing else "its end (EOF, or the -1 that closes DEPOT_SECTION)"
        raise UserError(
            f"{path}: {what} is missing; the file may be cut short, download it again or add the missing part"
        )


def _sizes(path: Path, header: Header, metric: str) -> tuple[int, int]:
    """Return DIMENSION and CAPACITY."""
    dimension = _whole(path, "DIMENSION", _header(path, header, "DIMENSION"))
    capacity = _whole(path, "CAPACITY", _header(path, header, "CAPACITY"))
    if dimension < 2:
        raise UserError(f"{path}: DIMENSION is {dimension}; a depot and at least one customer make 2 or more")
    if dimension > MOST_CUSTOMERS + 1 and not METRICS[metric].planar:
        raise UserError(
            f"{path}: DIMENSION is {dimension}; a matrix of {metric} distances is held for at most {MOST_CUSTOMERS} "
            "customers, give a smaller problem or one with coordinates in a plane, as EUC_2D"
        )
    if not 1 <= capacity <= MOST_CAPACITY:
        raise UserError(
            f"{path}: CAPACITY is {capacity}; give a number from 1 to {MOST_CAPACITY} "
            "(dividing all demands and the capacity by one number changes nothing)"
        )
    return dimension, capacity


def _nodes(path: Path, sections: dict[str, Rows], title: str, dimension: int) -> dict[int, list[str]]:
    """Return {node number: the other words of its row} after checking the number and shape of the rows."""
    rows = sections[title]
    if len(rows) != dimension:
        raise UserError(
            f"{path}: DIMENSION is {dimension} but {title} has {len(rows)} rows; "
            "the file may be cut short, download it again or correct DIMENSION"
        )
    columns = SECTIONS[title]
    nodes: dict[int, list[str]] = {}
    for number, words in rows:
        if len(words) != len(columns):
            raise UserError(
                f"{path}: line {number}: {' '.join(words)[:40]!r} in {title}; "
                f"each row is {', '.join(columns[:-1])} and {columns[-1]}"
            )
        node = _whole(path, f"line {number}: the node number", words[0])
        if node in nodes:
            raise UserError(
                f"{path}: line {number}: node {node} is given a second time in {title}; "
                "give each node a number of its own"
            )
        nodes[node] = words[1:]
    return nodes


def _layout(
    path: Path, header: Header, sections: dict[str, Rows], metric: str, nodes: list[int], coords: dict[int, list[str]]
) -> tuple[np.ndarray, np.ndarray | None]:
    """Return places of `nodes` in a plane (N, 2), and their distances (N, N) unless the places define them."""
    if metric == "EXPLICIT":
        row = np.argsort(np.argsort(nodes))
        matrix = _matrix(path, header, sections, len(nodes))[np.ix_(row, row)]
    else:
        locs = np.array([[_coordinate(path, node, word) for word in coords[node]] for node in nodes])
        if METRICS[metric].planar:
            return locs, None
        matrix = METRICS[metric].lengths(locs[:, None], locs)
    return in_a_plane(matrix), matrix


def _matrix(path: Path, header: Header, sections: dict[str, Rows], size: int) -> np.ndarray:
    """Return the matrix (N, N) of EDGE_WEIGHT_SECTION, with a zero diagonal."""
    layout = _header(path, header, "EDGE_WEIGHT_FORMAT").upper()
    if layout not in LAYOUTS:
        raise UserError(f"{path}: EDGE_WEIGHT_FORMAT is {layout[:40]!r}; only {', '.join(LAYOUTS)} are supported")
    rows, columns = LAYOUTS[layout](size)
    words = [(number, word) for number, row in sections[WEIGHTS] for word in row]
    if len(words) != len(rows):
        raise UserError(
            f"{path}: {WEIGHTS} holds {len(words)} numbers, but {layout} of DIMENSION {size} has {len(rows)}; "
            "the file may be cut short, download it again or correct one of them"
        )
    matrix = np.zeros((size, size))
    matrix[rows, columns] = [_number(path, f"line {number}: a distance", word) for number, word in words]
    np.fill_diagonal(matrix, 0)
    if layout != "FULL_MATRIX":
        return matrix + matrix.T
    if (uneven := np.argwhere(matrix != matrix.T)).size:
        one, two = uneven[0] + 1
        raise UserError(
            f"{path}: the distance from the {one}. node to the {two}. is not that of the way back; "
            "only symmetric problems can be solved here"
        )
    return matrix


def _depot(path: Path, sections: dict[str, Rows], nodes: Collection[int]) -> int:
    """Return the node number of the depot."""
    words = [word for _, row in sections["DEPOT_SECTION"] for word in row]
    depots = words[: words.index("-1")] if "-1" in words else words
    if len(depots) != 1 or len(words) > 2:
        raise UserError(
            f"{path}: DEPOT_SECTION holds {' '.join(words)[:40]!r}; only one depot is supported, "
            "its node number followed by -1"
        )
    depot = _whole(path, "the depot", depots[0])
    if depot not in nodes:
        raise UserError(f"{path}: DEPOT_SECTION names node {depot}, which DEMAND_SECTION does not have")
    return depot


def _demands(path: Path, nodes: list[int], demands: dict[int, list[str]], capacity: int) -> list[int]:
    """Return the demands of `nodes`, depot first."""
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
        raise UserError(f"{path}: the depot, node {nodes[0]}, has a demand of {demand[0]}; set it to 0")
    return demand


def _header(path: Path, header: Header, key: str) -> str:
    """Return the value of a required key."""
    if not header.get(key):
        raise UserError(f"{path}: {key} is missing; add a line '{key} : ...'")
    return header[key]


def _coordinate(path: Path, node: int, word: str) -> float:
    """Parse a coordinate, or raise UserError."""
    value = float(word) if NUMBER.fullmatch(word) else np.nan
    # The comparison is also false for nan.
    if not abs(value) <= MAX_COORDINATE:
        raise UserError(
            f"{path}: node {node} has a coordinate {word[:40]!r}; "
            f"coordinates must be numbers of at most {MAX_COORDINATE:.0e}"
        )
    return value


def _number(path: Path, what: str, word: str) -> float:
    """Parse a length or a time, or raise UserError."""
    value = float(word) if NUMBER.fullmatch(word) else np.nan
    if not 0 <= value <= MAX_COORDINATE:
        raise UserError(f"{path}: {what} is {word[:40]!r}; it must be a number from 0 to {MAX_COORDINATE:.0e}")
    return value


def _whole(path: Path, what: str, word: str) -> int:
    """Parse a whole number, or raise UserError."""
    value = float(word) if NUMBER.fullmatch(word) else np.nan
    # Above 2**53 float64 skips whole numbers, and no value here may be near that. Also false for nan and inf.
    if not abs(value) < 2**53 or value != int(value):
        raise UserError(f"{path}: {what} is {word[:40]!r}; it must be a whole number")
    return int(value)
